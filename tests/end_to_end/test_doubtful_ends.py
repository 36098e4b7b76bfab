"""Runs that end without what was asked for say so, and say what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.cli.history_text import history_text

ROWS = 300
CERTIFIED: dict[str, dict[str, Any]] = {
    "pgs": {"sigma": 1e-3},
    "ogd": {"sigma": 1e-3},
    "l-bfgs": {"sigma": 1e-3},
    "gradient-descent": {"sigma": 1e-3},
    "coordinate": {"l1": 1e-4, "beta": "global"},
    "greedy-coordinate": {"l1": 1e-4},
}
OF_FIXED_STEPS: dict[str, tuple[dict[str, Any], float]] = {
    "truncated-gradient": ({"l1": 1e-3}, 1e9),
    "smidas": ({"l1": 1e-3}, 1e9),
    "sgd": ({"sigma": 1e-9}, 1e6),
    "gradient-descent": ({"sigma": 1e-3}, 1e3),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    (tmp_path / "table").mkdir()
    columns = {"label": (x[:, 0] > 0.0).astype(float)} | {f"x{j}": x[:, j] for j in range(4)}
    pq.write_table(pa.table(columns), tmp_path / "table" / "0.parquet")
    return tmp_path / "table"


@pytest.mark.parametrize("solver", CERTIFIED)
def test_a_gap_that_is_missed_is_named_with_the_reason(solver: str, table: Path, tmp_path: Path) -> None:
    report = streampgs.train(
        table, run=tmp_path / "run", solver=solver, target_gap=1e-30, epochs=2, **CERTIFIED[solver]
    )
    (found,) = [note for note in report.notes if "was not reached" in note]
    assert "1e-30" in found
    assert "training ended by epochs" in found
    assert "resume" in found
    assert ("column" in found) == ("beta" in CERTIFIED[solver])


@pytest.mark.parametrize("solver", OF_FIXED_STEPS)
@pytest.mark.parametrize("is_too_large", [True, False])
def test_steps_that_are_too_large_for_a_bounded_slope_are_named(
    solver: str, is_too_large: bool, table: Path, tmp_path: Path
) -> None:
    options, step = OF_FIXED_STEPS[solver]
    step = step if is_too_large else 0.01
    report = streampgs.train(table, run=tmp_path / "run", solver=solver, step=step, epochs=20, **options)
    assert any("too large" in note and "step" in note for note in report.notes) == is_too_large


def test_columns_without_l1_name_the_solver_for_sigma_alone(table: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as raised:
        streampgs.train(table, run=tmp_path / "run", solver="coordinate", sigma=1e-3)
    assert "l-bfgs" in raised.value.remedy


def test_the_history_of_columns_has_the_sigma_that_is_used(table: Path, tmp_path: Path) -> None:
    streampgs.train(table, run=tmp_path / "run", solver="coordinate", l1=1e-3)
    assert "sigma 0, l1 0.001" in " ".join(history_text(streampgs.history(tmp_path / "run")).split())
