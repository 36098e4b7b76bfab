"""A row that is skipped counts once, however often its epochs, updates and pauses come past it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs

SMALL: dict[str, Any] = {"memory": "60MB", "window": "20kB", "sigma": 1e-3, "on_bad_row": "skip"}


def write(path: Path, rows: int, bad: int, seed: int, group_rows: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    label = (x[:, 0] > 0).astype(float)
    label[rng.permutation(rows)[:bad]] = np.nan
    path.parent.mkdir(exist_ok=True)
    table = pa.table({**{f"x{k}": x[:, k] for k in range(3)}, "label": label})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=group_rows)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=group_rows)


@pytest.mark.parametrize(
    ("suffix", "group_rows", "cached"),
    [("parquet", 150, True), ("parquet", 150, False), ("parquet", 3_000, True), ("arrow", 150, True)],
)
def test_over_epochs_pauses_and_new_shards(suffix: str, group_rows: int, cached: bool, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    write(data / f"0.{suffix}", 3_000, 70, 0, group_rows)
    options = SMALL if cached else {**SMALL, "no_cache": True}
    streampgs.train(data, run=run, rows=1_000, **options)
    for rows in (2_500, 4_000, 7_000):
        report = streampgs.resume(run, rows=rows)
    assert (report.skipped_rows, report.skipped_rows_of_run) == ({}, {"label not finite": 70})
    write(data / f"1.{suffix}", 2_000, 30, 1, group_rows)
    report = streampgs.resume(run, epochs=4)
    assert (report.skipped_rows, report.skipped_rows_of_run) == ({"label not finite": 30}, {"label not finite": 100})
    write(data / f"2.{suffix}", 500, 7, 2, group_rows)
    report = streampgs.resume(run)  # an update, with several passes and replayed rows
    assert report.rows_this_call > 3 * 493
    assert (report.skipped_rows, report.skipped_rows_of_run) == ({"label not finite": 7}, {"label not finite": 107})
    assert streampgs.resume(run, epochs=6).skipped_rows == {}
