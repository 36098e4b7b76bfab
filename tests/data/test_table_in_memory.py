"""Solvers that keep a whole table in memory: pauses, growth, shards that are gone, bad rows, and tables that are too large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.data.budget import refuse_too_large_table
from streampgs.options.commands import ModelOptions, Resources
from streampgs.table.catalog import Catalog, build_catalog
from streampgs.table.layout import Columns

OPTIONS: dict[str, Any] = {"solver": "coordinate", "memory": "60MB", "standardize": "off", "l1": 1e-2}
ROWS, FEATURES = 300, 8


def frame(seed: int) -> pd.DataFrame:
    x = np.random.default_rng(seed).normal(size=(ROWS, FEATURES))
    return pd.DataFrame({**{f"x{j}": x[:, j] for j in range(FEATURES)}, "label": (x[:, 0] - x[:, 1] > 0.2).astype(int)})


def write(folder: Path, number: int, rows: pd.DataFrame | None = None) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pandas(frame(number) if rows is None else rows, preserve_index=False)
    pq.write_table(table, folder / f"{number}.parquet", row_group_size=100)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / "table", number)
    return tmp_path / "table"


@pytest.mark.parametrize("solver", ["coordinate", "greedy-coordinate"])
def test_pauses_change_no_bit(solver: str, table: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "solver": solver, "epochs": 5}
    whole = streampgs.train(table, run=tmp_path / "whole", **options)
    report = streampgs.train(table, run=tmp_path / "paused", **options, rows=500)
    for rows in (900, 1801, 3600):
        assert report.stopped_by == "rows"
        report = streampgs.resume(tmp_path / "paused", epochs=5, rows=rows)
    report = streampgs.resume(tmp_path / "paused", epochs=5)
    assert (report.dual_sha256, report.rows, report.gap) == (whole.dual_sha256, whole.rows, whole.gap)


def test_new_shards_belong_to_the_next_epoch_and_shards_that_are_gone_do_not(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table, run=run, **OPTIONS, rows=1200)  # in the middle of the second epoch
    write(table, 3)
    assert streampgs.resume(run, rows=100_000, target_gap=1e-9).found.new_rows == ROWS
    (table / "0.parquet").unlink()
    report = streampgs.resume(run, rows=200_000, target_gap=1e-9, accept_removed=True)
    anew = streampgs.train(table, run=tmp_path / "anew", **OPTIONS, target_gap=1e-9)
    assert report.progressive_loss == pytest.approx(anew.progressive_loss, rel=1e-6)
    found, expected = (streampgs.Model.load(tmp_path / name).predict(frame(9)) for name in ("run", "anew"))
    assert (np.asarray(found) == np.asarray(expected)).all()


def test_rows_that_are_skipped_count_once(table: Path, tmp_path: Path) -> None:
    write(table, 1, frame(1).assign(label=lambda own: own["label"].astype(float).where(own["x2"] < 1.0)))
    bad = int((frame(1)["x2"] >= 1.0).sum())
    report = streampgs.train(table, run=tmp_path / "run", **OPTIONS, on_bad_row="skip", epochs=3)
    assert sum(report.skipped_rows.values()) == bad
    again = streampgs.resume(tmp_path / "run", epochs="+2")
    assert sum(again.skipped_rows_of_run.values()) == bad


def catalog_of(rows: int, folder: Path) -> Catalog:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * 50, np.float32)), 50)
    pq.write_table(pa.table({"label": np.ones(rows), "features": lists}), folder / "0.parquet")
    return build_catalog([str(folder)], Columns())


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"solver": "coordinate", "l1": 0.1}, "`--solver pgs` with the same --l1"),
        ({"solver": "kernel", "kernel": "rbf"}, "--kernel without `--solver kernel`"),
    ],
)
def test_a_table_that_is_too_large_is_refused_with_its_size(options: Any, remedy: str, tmp_path: Path) -> None:
    catalog, own = catalog_of(200_000, tmp_path), ModelOptions(**options)
    with pytest.raises(OptionError) as raised:
        refuse_too_large_table(catalog, own, Resources(memory=60_000_000))
    assert "200,000 rows take" in raised.value.found
    assert remedy in raised.value.remedy
    refuse_too_large_table(catalog, own, Resources(memory=400_000_000))
    refuse_too_large_table(catalog, ModelOptions(l1=0.1), Resources(memory=60_000_000))


def write_wide(folder: Path, number: int, rows: int) -> None:
    folder.mkdir(exist_ok=True)
    values = np.resize(np.arange(7, dtype=np.float32), rows * 50)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values), 50)
    pq.write_table(pa.table({"label": np.arange(rows) % 2, "features": lists}), folder / f"{number}.parquet")


def test_a_table_that_is_too_large_is_refused_before_training_at_a_start_and_after_it_has_grown(tmp_path: Path) -> None:
    run, too_large = tmp_path / "run", "keeps all rows in memory: .* and memory is 60MB"
    write_wide(tmp_path / "large", 0, 100_000)
    with pytest.raises(OptionError, match=too_large):
        streampgs.train(tmp_path / "large", run=run, **OPTIONS, epochs=1)
    write_wide(tmp_path / "table", 0, 100)
    assert streampgs.train(tmp_path / "table", run=run, **OPTIONS, epochs=1).rows == 100
    write_wide(tmp_path / "table", 1, 100_000)
    with pytest.raises(OptionError, match=too_large):
        streampgs.resume(run, epochs="+1", memory="60MB")
    assert streampgs.inspect(run)["rows"] == 100


def test_training_continues_from_the_present_weights_when_shards_join(table: Path, tmp_path: Path) -> None:
    """A step of this solver changes one weight."""
    run = tmp_path / "run"
    streampgs.train(table, run=run, **{**OPTIONS, "solver": "greedy-coordinate", "epochs": 12})
    before = streampgs.Model.load(run).coef_
    write(table, 3)
    assert streampgs.resume(run, passes=1).found.new_rows == ROWS
    after = streampgs.Model.load(run).coef_
    assert np.count_nonzero(before) > 1
    assert np.count_nonzero(after != before) == 1
