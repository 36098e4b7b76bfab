"""Compiled code on disk: processes that compile at the same time, or are killed, never load the wrong loop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCORES = """
import sys
import numpy as np
from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import LOSSES

for name in sys.argv[1:]:
    print(name, loss_sum_for(LOSSES[name])(np.array([0.3, -2.0]), np.array([1.0, 1.0]), np.empty(0), 0.25))
"""
LOSSES = ["hinge", "squared", "absolute", "huber", "quantile", "squared-hinge"]


def started(cache: Path, *losses: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen([sys.executable, "-c", SCORES, *losses], env=environment, stdout=subprocess.PIPE, text=True)


def printed(process: subprocess.Popen[str]) -> set[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return set(out.splitlines())


@pytest.mark.slow
def test_processes_that_compile_at_the_same_time_get_the_right_loops(tmp_path: Path) -> None:
    alone = set.union(*(printed(started(tmp_path / f"{number}", name)) for number, name in enumerate(LOSSES[:2])))
    shared = tmp_path / "shared"
    compiling = [started(shared, *LOSSES[number:], *LOSSES[:number]) for number in range(3)]
    results = [printed(process) for process in compiling]
    assert results[0] == results[1] == results[2] >= alone
    # The cached code is also correct for a process that compiles nothing.
    assert printed(started(shared, *LOSSES)) == results[0]


def test_code_under_another_name_is_not_loaded(tmp_path: Path) -> None:
    """The name is the key. There is no index that could point to the wrong file."""
    expected = printed(started(tmp_path, "hinge"))
    files = sorted(tmp_path.rglob("*.nb*"))
    assert files
    assert all(file.suffix == ".nbc" for file in files)
    for file in files:
        file.rename(file.with_name(file.name.replace(".nbc", "x.nbc")))
    assert printed(started(tmp_path, "hinge")) == expected


STEPS = """
import sys
from streampgs.options.commands import ModelOptions
from streampgs.selection.grid import warm_up

for p, sigma in ((2.0, 1.0), (2.0, (1.0, 2.0, 3.0, 4.0)), (1.8, 1.0)):
    warm_up(ModelOptions(p=p, sigma=sigma), "sparse", 100_000)
"""


@pytest.mark.slow
def test_the_next_process_loads_the_loops_of_the_solver_from_the_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    files = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", STEPS], env=environment, check=True, timeout=120)
        files.append({file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbc")})
    loops = [file.name for file in files[0] if "advance" in file.name or "rebuild" in file.name]
    assert len(loops) == 6  # two for each of the three models
    assert files[1] == files[0]
