"""A run with several values of l1 shows the path: numbers with inspect, and a picture with inspect --path."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import streampgs
from streampgs.base.errors import MissingPackage, OptionError
from streampgs.cli.inspection_text import run_text

from .test_l1_solvers import write

L1 = (3e-2, 1e-2, 1e-3, 0.0)
SOLVERS: dict[str, dict[str, Any]] = {
    "pgs": {},
    "truncated-gradient": {"solver": "truncated-gradient", "step": 0.02},
    "smidas": {"solver": "smidas", "step": 0.02},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("path") / "table"
    write(path / "0.arrow", 3000)
    return path


@pytest.fixture(scope="module")
def run(table: Path) -> Path:
    run = table.parent / "run"
    streampgs.train(table, run=run, l1=L1[::-1], epochs=3)
    return run


@pytest.mark.parametrize("solver", SOLVERS)
def test_numbers_of_the_path(table: Path, tmp_path: Path, solver: str) -> None:
    streampgs.train(table, run=tmp_path / "run", l1=L1, epochs=2, **SOLVERS[solver])
    shown = streampgs.inspect(tmp_path / "run")
    path = shown["path"]
    assert [point["l1"] for point in path] == sorted(L1, reverse=True)
    nonzeros = [point["nonzeros"] for point in path]
    assert nonzeros == sorted(nonzeros)
    assert nonzeros[0] < nonzeros[-1]
    assert all(point["nonzeros"] + point["zeros"] == shown["features"] for point in path)
    assert sum(point["leads"] for point in path) == 1
    (best,) = (point for point in path if point["leads"])
    assert best["nonzeros"] == shown["nonzeros"]
    assert 0.5 < best["accuracy"] <= 1.0
    assert "judged loss" in run_text(shown)


def test_the_path_of_coordinate_descent_has_the_losses_on_rows_that_are_held_out(table: Path, tmp_path: Path) -> None:
    report = streampgs.train(table, run=tmp_path / "run", solver="coordinate", l1=(3e-2, 1e-2, 1e-3))
    shown = streampgs.inspect(tmp_path / "run", path=tmp_path / "path.svg")
    losses = {point["l1"]: point["loss"] for point in shown["path"]}
    assert [point["judged_on"] for point in shown["path"]] == ["judged"] * 3
    assert min(losses, key=losses.__getitem__) == shown["settings"]["l1"]
    (note,) = (note for note in report.notes if "is the best" in note)
    assert "rows" in note
    assert (tmp_path / "path.svg").stat().st_size > 1000


def test_of_a_grid_the_path_has_the_other_numbers_of_the_best_model(table: Path, tmp_path: Path) -> None:
    streampgs.train(table, run=tmp_path / "run", l1=(1e-2, 1e-3), sigma=(1e-3, 1e-1), epochs=2)
    shown = streampgs.inspect(tmp_path / "run")
    alike = [lane for lane in shown["lanes"] if lane["sigma"] == shown["settings"]["sigma"]]
    assert sorted(point["nonzeros"] for point in shown["path"]) == sorted(lane["nonzeros"] for lane in alike)
    assert len(shown["lanes"]) == 4


def test_the_picture_is_drawn(run: Path, tmp_path: Path) -> None:
    shown = streampgs.inspect(run, path=tmp_path / "path.png")
    assert len(shown["path"]) == 4
    pixels = imread(tmp_path / "path.png")
    colours = np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)
    assert pixels.shape[0] > 500
    assert len(colours) > 20, "the picture is empty"


def test_without_matplotlib_the_remedy_is_named(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackage, match="streampgs\\[plot\\]"):
        streampgs.inspect(run, path=tmp_path / "path.png")


def test_what_cannot_be_drawn_is_refused(run: Path, table: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="svg"):
        streampgs.inspect(run, path=tmp_path / "path.txt")
    streampgs.train(table, run=tmp_path / "one", l1=1e-3, epochs=1)
    assert streampgs.inspect(tmp_path / "one")["path"] == []
    with pytest.raises(OptionError, match="several values"):
        streampgs.inspect(tmp_path / "one", path=tmp_path / "path.png")
    with pytest.raises(OptionError, match="not a run"):
        streampgs.inspect(table, path=tmp_path / "path.png")
    write(tmp_path / "classes" / "0.arrow", 1000, classes=3)
    streampgs.train(tmp_path / "classes", run=tmp_path / "three", l1=(1e-2, 1e-3), epochs=1)
    with pytest.raises(OptionError, match="3 classes"):
        streampgs.inspect(tmp_path / "three", path=tmp_path / "path.png")
    assert not (tmp_path / "path.png").exists()
