"""Run the tests of the compiled loops again without the compiler, and again with bounds checks.

Compiled code does not report some errors that Python reports: an index out of bounds reads or writes other memory, and
an overflow gives infinity. So the tests that compare loops with their plain twins also run in Numba's two other modes,
each in its own process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

READING = ("hashing", "grams", "encoded_rows", "footers")

# Calls a compiled loop with more entries than the array has, to show that bounds are checked.
PROBE = """
import numpy as np
import pytest
from streampgs.kernels.placing_loop import squared_norms

def test_bounds_are_checked():
    with pytest.raises(IndexError):
        squared_norms(np.array([0]), np.array([5]), np.ones(2, np.float32), 2.0, np.empty(1))
"""


def run_tests(tests: list[str], chosen: str, environment: dict[str, str]) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command += ["-c", str(ROOT / "pyproject.toml"), *tests, "-k", chosen]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_plain_python_gives_the_same():
    tests = [f"tests/kernels/test_{name}.py" for name in ("randomness", "rows", "scoring", "mixing", *READING)]
    run_tests([*tests, "tests/learn/test_figure_1.py"], "not likely and not pattern", {"NUMBA_DISABLE_JIT": "1"})


@pytest.mark.slow
def test_no_index_is_out_of_bounds(tmp_path):
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    # A separate cache: code with checks and code without them must not be mixed.
    environment = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    tests = [f"tests/kernels/test_{name}.py" for name in ("rows", *READING)]
    tests += ["tests/learn/test_figure_1.py", str(probe)]
    few_loops = f"test_rows or test_probe or {' or '.join(READING)} or modified-huber or hinge-1.8 or huber-1.1"
    run_tests(tests, few_loops, environment)
