"""The benchmark runs and reports its figures. The speed itself is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RATIOS = {
    "loop_over_sklearn_averaged",
    "loop_over_sklearn_averaged_shuffling",
    "loop_over_sklearn_last",
    "loop_over_sklearn_last_shuffling",
    "pipeline_over_loop_sparse",
    "pipeline_over_loop_dense",
    "lanes_16_over_1",
}


def bench(*words: str | Path) -> str:
    command = [sys.executable, "-m", "scripts.bench.peers", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=ROOT).stdout


@pytest.mark.slow
def test_quick_gives_every_ratio(tmp_path: Path) -> None:
    printed = json.loads(bench("--quick", "--rows", "2000", "--repeats", "1", "--out", tmp_path))
    assert printed["ratios"].keys() == RATIOS
    assert all(ratio > 0 for ratio in printed["ratios"].values())
    assert json.loads((tmp_path / "quick.json").read_text()) == printed


@pytest.mark.slow
def test_bench_reports_each_peer_from_its_own_process(tmp_path: Path) -> None:
    peers = ("streampgs-arrow", "parquet-decoded")
    folders = ("--data", tmp_path / "data", "--out", tmp_path / "out")
    printed = bench("--rows", "3000", "--target", "0.6", "--peers", ",".join(peers), *folders)
    assert "3,000 rows, 47,236 features" in printed
    assert len([line for line in printed.splitlines() if line.startswith("|")]) == 2 + len(peers)
    result = json.loads((tmp_path / "out" / "bench.json").read_text())
    streampgs, decoded = result["peers"]
    assert streampgs["summary"]["reached"]
    assert streampgs["summary"]["accuracy"] >= 0.6
    assert streampgs["outcome"]["notes"]["own_stop"]["stopped_by"] == "target-accuracy"
    assert decoded["outcome"]["seconds_loading"] > 0
    assert decoded["outcome"]["curve"] == []


def test_the_curve_of_a_peer_is_the_median_and_time_never_runs_backwards() -> None:
    from scripts.bench.peers import report

    curves = [[(1.0, 0.7), (3.0, 0.8), (2.0, 0.9)], [(1.5, 0.6), (2.5, 0.9), (2.5, 0.8)], [(0.5, 0.8), (4.0, 0.7)]]
    outcomes = [{"curve": [{"seconds": s, "accuracy": a} for s, a in curve]} for curve in curves]
    assert report.median_curve(outcomes) == ([1.0, 3.0], [0.7, 0.8])
    assert report.median_curve(outcomes[:1]) == ([1.0, 3.0, 3.0], [0.7, 0.8, 0.9])
    assert report.median_curve([{"curve": []}]) == ([], [])
