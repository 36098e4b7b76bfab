"""Weights, offsets and labels that are almost too large: training ends, or fails with the true reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import Diverged

ROWS = 120


def table(folder: Path, **changes: Any) -> Path:
    chance = np.random.default_rng(0)
    x = chance.normal(size=(ROWS, 4))
    columns = {"label": (x[:, 0] > 0.0).astype(float), "weight": np.ones(ROWS), "offset": np.zeros(ROWS)}
    columns |= {f"x{j}": x[:, j] for j in range(4)} | changes
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "0.parquet")
    return folder


def one(value: float, usual: float) -> Any:
    cells = np.full(ROWS, usual)
    cells[57] = value
    return cells


@pytest.mark.parametrize("solver", ["coordinate", "greedy-coordinate"])
def test_a_row_that_outweighs_all_others_leaves_a_sound_checkpoint(solver: str, tmp_path: Path) -> None:
    """The objective is far smaller than the mean slope that counts as 0."""
    data = table(tmp_path / "table", weight=one(1e12, 1.0))
    report = streampgs.train(data, run=tmp_path / "run", solver=solver, l1=1e-3, weight="weight", epochs=5)
    assert report.gap is not None
    assert streampgs.resume(tmp_path / "run", epochs=6).dual_sha256


def test_a_huge_exposure_has_a_finite_base_value(tmp_path: Path) -> None:
    data = table(tmp_path / "table", offset=one(1e60, 0.0))
    streampgs.train(data, run=tmp_path / "run", loss="poisson", offset="offset", solver="ogd", sigma=1e-3, epochs=1)
    assert np.isfinite(streampgs.Model.load(tmp_path / "run").coef_).all()


def test_candidates_that_diverge_on_heavy_rows_are_an_error_without_an_overflow(tmp_path: Path) -> None:
    data = table(tmp_path / "table", weight=np.full(ROWS, 1e12))
    with pytest.raises(Diverged, match="finite range") as raised:
        streampgs.train(data, run=tmp_path / "run", l1=1e-3, loss="squared", weight="weight")
    assert "weights of rows" in raised.value.remedy
