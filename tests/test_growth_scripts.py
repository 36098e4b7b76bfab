"""The benchmarks of growth run, continue where they stopped, and report what must hold. Quality itself is not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALL = (
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
)


def printed(script: str, *words: str | int | Path) -> str:
    command = [sys.executable, "-m", f"scripts.papers.{script}", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=ROOT).stdout


@pytest.mark.slow
def test_appends_are_measured_once_and_judged(tmp_path: Path) -> None:
    words = ("--tables", "synthetic,rotation", "--kinds", "same,later", "--out", tmp_path, *SMALL)
    text = printed("growth", *words)
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
    again = printed("growth", *words)
    assert [json.loads(line) for line in (tmp_path / "growth.jsonl").read_text().splitlines()] == cells
    assert again.splitlines()[1:] == text.splitlines()[1:]  # the first line has the time


@pytest.mark.slow
def test_nights_are_judged_on_the_rows_of_the_next_night(tmp_path: Path) -> None:
    text = printed(
        "growth.nights", "--tables", "abrupt", "--nights", 3, "--night-rows", 300, "--seeds", 1, "--out", tmp_path
    )
    (cell,) = (json.loads(line) for line in (tmp_path / "nights.jsonl").read_text().splitlines())
    assert {len(nights) for nights in cell["quality"].values()} == {1}  # the first is trained on, the last only judged
    assert cell["rows"] == [300] * 3
    assert all(resume["rows"] >= 300 for resume in cell["resumes"])
    assert "| never updated | " in text
    assert text.count(" of 1 tables") == 4
