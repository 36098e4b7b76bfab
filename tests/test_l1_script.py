"""The script that draws the figures of the l1 paper runs, and its curves agree with known facts about the solvers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT.parent / "shared" / "data"


@pytest.mark.slow
@pytest.mark.skipif(not SOURCE.is_dir(), reason="needs the data sets, which are too large for the project")
def test_the_figures_of_the_l1_paper_are_drawn(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.papers.l1", "--quick", "--out", str(tmp_path)]
    words = ["--source", str(SOURCE), "--problems", "duke", "--l1", "1e-2", "--accesses", "2e7"]
    text = subprocess.run(
        [*command, *words], check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=ROOT
    ).stdout
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
