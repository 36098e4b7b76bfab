"""The learner gets the number of each row in the table, in every order and format and after a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.options.solvers import LEARNERS, SOLVERS, Solver
from streampgs.run.saved import saved_run

ROWS = 5000


@pytest.fixture(autouse=True)
def visits_is_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    visits = Solver("tests.conformance.visiting:Visits", ())
    monkeypatch.setitem(SOLVERS, "visits", visits)
    monkeypatch.setitem(LEARNERS, "visits", visits.path)


def write(folder: Path, file_format: str) -> Path:
    folder.mkdir()
    for shard in range(2):
        labels = [1.0 if row % 3 else -1.0 for row in range(ROWS // 2)]
        table = pa.table({"label": labels, "indices": [[row % 9] for row in range(ROWS // 2)]})
        path = folder / f"{shard}.{file_format}"
        if file_format == "parquet":
            pq.write_table(table, path, row_group_size=700)
            continue
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    return folder


def visits_of(run: Path) -> Any:
    return saved_run(run).race.lanes.groups[0].state["visits"][:, 0]


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
@pytest.mark.parametrize("threads", [1, 2])
def test_each_row_is_visited_once_an_epoch(file_format: str, threads: int, tmp_path: Path) -> None:
    table, run = write(tmp_path / "table", file_format), tmp_path / "run"
    streampgs.train(table, run=run, solver="visits", epochs=2, rows=ROWS + 777, window="60kB", threads=threads)
    assert visits_of(run).sum() == ROWS + 777
    assert set(visits_of(run)[:ROWS].tolist()) == {1, 2}
    streampgs.resume(run, epochs=2)
    np.testing.assert_array_equal(visits_of(run)[:ROWS], 2)
    assert not visits_of(run)[ROWS:].any()
