"""The reproductions of the papers run and continue where they stopped. The figures themselves are not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def printed(script: str, *words: str | int | Path) -> str:
    command = [sys.executable, "-m", f"scripts.papers.{script}", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300, cwd=ROOT).stdout


@pytest.mark.slow
def test_cells_of_the_pgs_paper_are_measured_once(tmp_path: Path) -> None:
    words = ("--quick", "--only", "batch,files,toys", "--tables", "synthetic", "--out", tmp_path)
    text = printed("pgs", *words, "--pictures", tmp_path / "pictures")
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert {cell["experiment"] for cell in cells} == {"batch", "files", "toy"}
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"files.png", "toys.png"}
    looks = [look for cell in cells if cell["experiment"] == "batch" for run in cell["runs"] for look in run]
    assert all(visits > 0 and seconds >= 0.0 and 0.4 < accuracy < 1.0 for visits, seconds, accuracy in looks)
    assert all(run[3] for cell in cells if cell["experiment"] == "files" for run in cell["runs"])
    assert any(found is not None for cell in cells if cell["experiment"] == "toy" for found in cell["iterations"])
    with open(tmp_path / "cells.jsonl", "a") as file:
        file.write('{"experiment": "cli')  # a run that was killed
    again = printed("pgs", *words)
    assert [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()] == cells
    assert again.splitlines()[1:] == [line for line in text.splitlines()[1:] if not line.startswith("('")]
