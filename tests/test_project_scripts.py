"""The scripts run, continue where they stopped, and report what they should. Speed and quality are not tested here."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from scripts import real_data
from scripts.bench.peers import report

ROOT = Path(__file__).parent.parent
SOURCE = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SOURCE.is_dir(), reason="needs the data sets, which are too large for the project")


def printed(script: str, *words: object) -> str:
    """The standard output of a script in a process of its own."""
    command = [sys.executable, "-m", f"scripts.{script}", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=ROOT).stdout


RATIOS = {
    "loop_over_sklearn_averaged",
    "loop_over_sklearn_averaged_shuffling",
    "loop_over_sklearn_last",
    "loop_over_sklearn_last_shuffling",
    "pipeline_over_loop_sparse",
    "pipeline_over_loop_dense",
    "lanes_16_over_1",
}


@pytest.mark.slow
def test_quick_gives_every_ratio(tmp_path: Path) -> None:
    found = json.loads(printed("bench.peers", "--quick", "--rows", "2000", "--repeats", "1", "--out", tmp_path))
    assert found["ratios"].keys() == RATIOS
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert json.loads((tmp_path / "quick.json").read_text()) == found


@pytest.mark.slow
def test_bench_reports_each_peer_from_its_own_process(tmp_path: Path) -> None:
    peers = ("streampgs-arrow", "parquet-decoded")
    folders = ("--data", tmp_path / "data", "--out", tmp_path / "out")
    text = printed("bench.peers", "--rows", "3000", "--target", "0.6", "--peers", ",".join(peers), *folders)
    assert "3,000 rows, 47,236 features" in text
    assert len([line for line in text.splitlines() if line.startswith("|")]) == 2 + len(peers)
    result = json.loads((tmp_path / "out" / "bench.json").read_text())
    streampgs, decoded = result["peers"]
    assert streampgs["summary"]["reached"]
    assert streampgs["summary"]["accuracy"] >= 0.6
    assert streampgs["outcome"]["notes"]["own_stop"]["stopped_by"] == "target-accuracy"
    assert decoded["outcome"]["seconds_loading"] > 0
    assert decoded["outcome"]["curve"] == []


def test_the_curve_of_a_peer_is_the_median_and_time_never_runs_backwards() -> None:
    curves = [[(1.0, 0.7), (3.0, 0.8), (2.0, 0.9)], [(1.5, 0.6), (2.5, 0.9), (2.5, 0.8)], [(0.5, 0.8), (4.0, 0.7)]]
    outcomes = [{"curve": [{"seconds": s, "accuracy": a} for s, a in curve]} for curve in curves]
    assert report.median_curve(outcomes) == ([1.0, 3.0], [0.7, 0.8])
    assert report.median_curve(outcomes[:1]) == ([1.0, 3.0, 3.0], [0.7, 0.8, 0.9])
    assert report.median_curve([{"curve": []}]) == ([], [])


SMALL = [
    "--rows",
    "1500",
    "--old-rows",
    "1000",
    "--test-rows",
    "300",
    "--shares",
    "0.5",
    "--epochs",
    "1,2",
    "--seeds",
    "1",
]


@pytest.mark.slow
def test_appends_are_measured_once_and_judged(tmp_path: Path) -> None:
    words = ("--tables", "synthetic,rotation", "--kinds", "same,later", "--out", tmp_path, *SMALL)
    text = printed("papers.growth", *words)
    cells = [json.loads(line) for line in (tmp_path / "growth.jsonl").read_text().splitlines()]
    assert len(cells) == 2 * 2  # the same law and drift; two numbers of epochs
    assert all(loss > 0.0 for cell in cells for _, loss in cell["resumed"].values())
    assert all(cell["visits"] >= cell["new_rows"] for cell in cells)
    assert {len(cell["before"]) for cell in cells} == {
        1,
        3,
    }  # one law; or the old law, the new one, and the next part in time
    assert text.count("of 2 cells") == 4  # what must hold, of the cells of the same law
    with open(tmp_path / "growth.jsonl", "a") as file:
        file.write('{"table": "synth')  # a benchmark that was killed
    again = printed("papers.growth", *words)
    assert [json.loads(line) for line in (tmp_path / "growth.jsonl").read_text().splitlines()] == cells
    assert again.splitlines()[1:] == text.splitlines()[1:]  # the first line has the time


@pytest.mark.slow
def test_nights_are_judged_on_the_rows_of_the_next_night(tmp_path: Path) -> None:
    words = ["--tables", "abrupt", "--nights", "3", "--night-rows", "300", "--seeds", "1", "--out"]
    text = printed("papers.growth.nights", *words, tmp_path)
    (cell,) = (json.loads(line) for line in (tmp_path / "nights.jsonl").read_text().splitlines())
    assert {len(nights) for nights in cell["quality"].values()} == {1}  # the first is trained on, the last only judged
    assert cell["rows"] == [300] * 3
    assert all(resume["rows"] >= 300 for resume in cell["resumes"])
    assert "| never updated | " in text
    assert text.count(" of 1 tables") == 4


@pytest.mark.slow
def test_cells_of_the_pgs_paper_are_measured_once(tmp_path: Path) -> None:
    words = ("--quick", "--only", "batch,files,toys", "--tables", "synthetic", "--out", tmp_path)
    text = printed("papers.pgs", *words, "--pictures", tmp_path / "pictures")
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert {cell["experiment"] for cell in cells} == {"batch", "files", "toy"}
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"files.png", "toys.png"}
    looks = [look for cell in cells if cell["experiment"] == "batch" for run in cell["runs"] for look in run]
    assert all(visits > 0 and seconds >= 0.0 and 0.4 < accuracy < 1.0 for visits, seconds, accuracy in looks)
    assert all(run[3] for cell in cells if cell["experiment"] == "files" for run in cell["runs"])
    assert any(found is not None for cell in cells if cell["experiment"] == "toy" for found in cell["iterations"])
    with open(tmp_path / "cells.jsonl", "a") as file:
        file.write('{"experiment": "cli')  # a run that was killed
    again = printed("papers.pgs", *words)
    assert [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()] == cells
    assert again.splitlines()[1:] == [line for line in text.splitlines()[1:] if not line.startswith("('")]


@pytest.mark.slow
@needs_data
def test_the_figures_of_the_l1_paper_are_drawn(tmp_path: Path) -> None:
    words = ["--quick", "--problems", "duke", "--l1", "1e-2", "--accesses", "2e7", "--source"]
    text = printed("papers.l1", *words, SOURCE, "--out", tmp_path)
    (figure,) = [json.loads(line) for line in (tmp_path / "curves.jsonl").read_text().splitlines()]
    curves: list[dict[str, Any]] = figure["curves"]
    last = {curve["solver"]: curve["objectives"][-1] for curve in curves}
    assert {
        "SCD",
        "GCD",
        "SMIDAS",
        "SMIDAS (paper)",
        "TRUNCGRAD",
        "TRUNCGRAD (paper)",
        "dual averaging",
        "coordinate",
    } <= set(last)
    for curve in curves:
        assert min(curve["objectives"]) > figure["optimum"] * (1.0 - 1e-9)  # an optimum has nothing below it
        assert f"| {curve['solver']} |" in text
    assert math.isclose(last["coordinate"], figure["optimum"], rel_tol=1e-6)
    assert last["SCD"] < last["TRUNCGRAD"]
    picture = tmp_path / "duke-1e-02.png"
    assert picture.exists()
    assert not picture.exists() or picture.read_bytes().startswith(b"\x89PNG")


def plain_grams(name: bytes) -> list[int]:
    """FNV-1a of each gram of ^name$, with the upper bits folded onto the lower 20."""
    padded = b"^" + name + b"$"
    found = set()
    for length in (3, 4, 5):
        for first in range(len(padded) - length + 1):
            hashed = 0xCBF29CE484222325
            for byte in padded[first : first + length]:
                hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
            found.add((hashed ^ (hashed >> 20)) % 2**20)
    return sorted(found)


def test_names_become_their_grams() -> None:
    names = [b"a", b"ab", b"streampgs", "größer".encode(), b"aaaaaaaaaaaa", b"left-pad"]
    (batch,) = real_data.name_batches(pa.array([b"before", *names])[1:], np.ones(len(names), np.int8))
    assert batch["indices"].to_pylist() == [plain_grams(name) for name in names]
    for values in batch["values"].to_pylist():
        assert values == pytest.approx([1 / math.sqrt(len(values))] * len(values))


def test_names_have_no_scopes_and_are_unique(tmp_path: Path) -> None:
    path = tmp_path / "names.txt.gz"
    path.write_bytes(gzip.compress(b'@scope/left-pad\nleft_pad\n@scope/\nzope.interface\n"quoted,\n'))
    assert real_data.read_names(path).to_pylist() == [b"left-pad", b"zope-interface", b'"quoted,']


@needs_data
def test_small_sets_have_the_published_rows(tmp_path: Path) -> None:
    printed("real_data", tmp_path, "a9a", "reuters", "--source", SOURCE)
    found = {}
    for folder in tmp_path.iterdir():
        tables = [pa.ipc.open_file(path).read_all() for path in sorted(folder.glob("*.arrow"))]
        labels = pa.concat_tables(tables)["label"].to_numpy()
        found[folder.name] = len(labels), round(float(np.mean(labels > 0)), 3)
    assert found == {
        "a9a": (32_561, 0.241),
        "a9a-test": (16_281, 0.236),
        "reuters": (7_907, 0.577),
        "reuters-test": (3_460, 0.536),
    }


BLOCKS = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "real-data.md").read_text(), re.MULTILINE | re.DOTALL)


LEAST = {"a9a": 0.848, "magic04": 0.77, "reuters21578": 0.98, "rcv1_small": 0.86}


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("name", LEAST)
def test_the_commands_reach_their_accuracy(name: str, tmp_path: Path) -> None:
    (commands,) = [block for block in BLOCKS if f"$D/{name}" in block]
    environment = {
        **os.environ,
        "D": str(SOURCE),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(re.findall(r"^accuracy +(\S+)", done.stdout, re.MULTILINE)[-1])
    assert accuracy >= LEAST[name]
