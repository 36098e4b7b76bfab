"""Columns are used, or reported as left out: none is forgotten."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError, Unreadable
from streampgs.model.model import Model
from streampgs.table.locate import locate
from tests.end_to_end.observers import Notes

ROWS = 600
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=ROWS)
LABELS = (X > 0).astype(int)


def train(folder: Path, *tables: pa.Table, **options: Any) -> tuple[Model, Notes]:
    (folder / "data").mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / "data" / f"{number}.parquet")
    notes = Notes()
    streampgs.train(folder / "data", run=folder / "run", observer=notes, epochs=1, sigma=0.01, **options)
    return Model.load(folder / "run"), notes


SECONDS = {
    "instant": (pa.timestamp("ms"), "time without a time zone"),
    "time of day": (pa.time32("ms"), "time of day"),
    "duration": (pa.duration("ms"), "duration"),
    "number": (pa.int64(), "number"),
}


@pytest.mark.parametrize("first", SECONDS)
def test_instants_times_of_day_durations_and_numbers_do_not_mix(first: str, tmp_path: Path) -> None:
    """All of them are numbers of seconds, but of seconds since other moments."""
    tables = {
        name: pa.table({"t": pa.array(range(ROWS), kind), "x": X, "label": LABELS})
        for name, (kind, _) in SECONDS.items()
    }
    (tmp_path / "alone").mkdir()
    model, _ = train(tmp_path / "alone", tables[first])
    for second in SECONDS.keys() - {first}:
        (tmp_path / second).mkdir()
        kinds = [re.escape(str(SECONDS[name][0])) for name in (second, first)]
        expected = rf"'.*1\.parquet': column 't' is of type {kinds[0]}; a {SECONDS[first][1]} is expected, as shard "
        with pytest.raises(DataError, match=rf"{expected}'.*0\.parquet' has {kinds[1]}"):
            train(tmp_path / second, tables[first], tables[second])
        with pytest.raises(DataError, match=f"a {SECONDS[first][1]} is expected"):
            model.predict(tables[second])


LARGE = {
    "int64": pa.array([2**53, 2**53 + 1] * (ROWS // 2)),
    "uint64": pa.array([2**64 - 1, 2**64 - 2] * (ROWS // 2), pa.uint64()),
    "decimal": pa.array([Decimal(10**30), Decimal(10**30 + 1)] * (ROWS // 2), pa.decimal128(38, 0)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_whole_numbers_beyond_doubles_are_told_apart_as_categories(kind: str, tmp_path: Path) -> None:
    """As labels they are refused: tests/encoding/test_labels.py."""
    table = pa.table({"x": X, "id": LARGE[kind], "label": [1, 0] * (ROWS // 2)})
    model, _ = train(tmp_path, table, category="id")
    scores = model.decision_function(table)
    assert (scores[::2] > 0).all()
    assert (scores[1::2] < 0).all()


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder; the test runs without the rights of root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(before)
        for each in folder.rglob("*"):
            each.chmod(0o700)
        folder.chmod(0o700)
        shutil.rmtree(folder)


@pytest.mark.parametrize(("closed", "source"), [("data/c", "data"), ("data/c", "data/*"), ("data", "data")])
def test_a_folder_that_cannot_be_read_is_an_error(closed: str, source: str, as_nobody: Path) -> None:
    for name in ("data/a", "data/c"):
        (as_nobody / name).mkdir(parents=True)
        (as_nobody / name / "1.parquet").touch()
    assert len(locate([str(as_nobody / source)]).paths) == 2
    (as_nobody / closed).chmod(0)
    with pytest.raises(Unreadable, match=rf"'.*{closed}.*' cannot be read: Permission denied"):
        locate([str(as_nobody / source)])
    with pytest.raises(Unreadable, match="cannot be read"):
        locate([str(as_nobody / closed / "inside")])
