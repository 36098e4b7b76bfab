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
from streampgs.run.report import Silent
from streampgs.table.locate import locate

ROWS = 600
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=ROWS)
LABELS = (X > 0).astype(int)
INDICES = [RANDOM.choice(20, 3, replace=False).tolist() for _ in range(ROWS)]


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.chosen: dict[str, str] = {}

    def note(self, message: str) -> None:
        self.notes.append(message)

    def choices(self, choices: dict[str, str]) -> None:
        self.chosen = choices


def train(folder: Path, *tables: pa.Table, **options: Any) -> tuple[Model, Notes]:
    (folder / "data").mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / "data" / f"{number}.parquet")
    notes = Notes()
    streampgs.train(folder / "data", run=folder / "run", observer=notes, epochs=1, sigma=0.01, **options)
    return Model.load(folder / "run"), notes


def columns_of(model: Model) -> list[tuple[str, str]]:
    return [] if model.encoding is None else [(column.name, column.kind) for column in model.encoding.all_columns]


def test_a_list_called_features_beside_other_columns_is_one_of_them(tmp_path: Path) -> None:
    lists = RANDOM.normal(size=(ROWS, 2)).tolist()
    model, _ = train(tmp_path, pa.table({"x": X, "features": lists, "label": LABELS}))
    assert columns_of(model) == [("x", "number"), ("features", "list")]


@pytest.mark.parametrize("role", ["weight", "offset"])
def test_features_beside_label_and_weight_are_rows_of_features(role: str, tmp_path: Path) -> None:
    lists = RANDOM.normal(size=(ROWS, 2)).tolist()
    table = pa.table({"features": lists, "label": LABELS, "w": np.ones(ROWS)})
    model, _ = train(tmp_path, table, **{role: "w"})
    assert model.encoding is None


def test_indices_and_values_beside_other_columns_are_a_vector(tmp_path: Path) -> None:
    values = [[1.0, 2.0, 3.0]] * ROWS
    model, _ = train(tmp_path, pa.table({"indices": INDICES, "values": values, "x": X, "label": LABELS}))
    assert columns_of(model) == [("x", "number"), ("values", "vector")]


@pytest.mark.parametrize("labels", [LABELS, np.where(LABELS, "yes", "no")], ids=["numbers", "strings"])
def test_indices_without_values_beside_other_columns_are_a_vector_of_ones(labels: Any, tmp_path: Path) -> None:
    table = pa.table({"indices": INDICES, "x": X, "label": labels})
    model, _ = train(tmp_path, table)
    assert columns_of(model) == [("x", "number"), ("indices", "vector")]
    ones = pa.table({"indices": INDICES, "values": [[1.0] * 3] * ROWS})
    (tmp_path / "ones").mkdir()
    other, _ = train(tmp_path / "ones", ones.append_column("x", pa.array(X)).append_column("label", pa.array(labels)))
    np.testing.assert_array_equal(model.coef_, other.coef_)


def test_later_columns_beside_rows_of_features_are_reported(tmp_path: Path) -> None:
    first = pa.table({"indices": INDICES, "label": LABELS})
    model, notes = train(tmp_path, first, first.append_column("age", pa.array(X)))
    assert model.encoding is None
    assert any("not used" in note and "'age'" in note for note in notes.notes)


def test_a_column_of_only_nulls_is_left_out_and_reported(tmp_path: Path) -> None:
    table = pa.table({"x": X, "n": pa.nulls(ROWS, pa.float64()), "s": pa.nulls(ROWS, pa.string()), "label": LABELS})
    model, notes = train(tmp_path, table)
    assert columns_of(model) == [("x", "number")]
    assert notes.chosen["left out"] == "n (has only nulls in the sample), s (has only nulls in the sample)"


def test_a_table_of_only_nulls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column can be a feature: .*n \(has only nulls"):
        train(tmp_path, pa.table({"n": pa.nulls(ROWS, pa.float64()), "label": LABELS}))


@pytest.mark.parametrize("name", ["label", "w"])
@pytest.mark.parametrize("features", ["columns", "lists"])
def test_two_columns_with_the_name_of_the_label_or_weight_are_refused(name: str, features: str, tmp_path: Path) -> None:
    own = pa.array(X) if features == "columns" else pa.array(INDICES)
    columns = {"x" if features == "columns" else "indices": own, "label": LABELS, "w": np.ones(ROWS)}
    table = pa.table([*columns.values(), columns[name]], [*columns, name])
    with pytest.raises(DataError, match=f"2 columns are called '{name}'"):
        train(tmp_path, table, weight="w")


@pytest.mark.parametrize("zones", [(None, "UTC"), ("UTC", None)])
def test_times_with_and_without_a_zone_do_not_mix(zones: tuple[str | None, str | None], tmp_path: Path) -> None:
    tables = [
        pa.table({"t": pa.array(range(ROWS), pa.timestamp("ms", zone)), "x": X, "label": LABELS}) for zone in zones
    ]
    with pytest.raises(DataError, match=r"'.*1\.parquet': column 't' is of type timestamp\[ms.*zone is expected"):
        train(tmp_path, *tables)
    (tmp_path / "alone").mkdir()
    model, _ = train(tmp_path / "alone", tables[0])
    with pytest.raises(DataError, match=r"zone is expected"):
        model.predict(tables[1])
    assert len(model.predict(tables[0])) == ROWS


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


@pytest.mark.parametrize("types", [(pa.date32(), pa.timestamp("ns")), (pa.date64(), pa.date32())])
def test_dates_and_timestamps_are_instants(types: tuple[pa.DataType, pa.DataType], tmp_path: Path) -> None:
    days = pa.array(np.arange(ROWS).astype("datetime64[D]"))
    tables = [pa.table({"t": days.cast(kind), "label": LABELS}) for kind in types]
    model, _ = train(tmp_path, *tables)
    assert model.decision_function(tables[0]).tolist() == model.decision_function(tables[1]).tolist()


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


def test_truth_values_and_numbers_are_not_mixed_as_categories(tmp_path: Path) -> None:
    tables = [pa.table({"x": X, "c": kind, "label": LABELS}) for kind in (np.arange(ROWS) % 2 > 0, np.arange(ROWS) % 2)]
    with pytest.raises(DataError, match=r"truth values in shard '.*0\.parquet' and numbers in shard '.*1\.parquet'"):
        train(tmp_path, *tables, category="c")
    (tmp_path / "number").mkdir()
    model, _ = train(tmp_path / "number", *tables)
    assert columns_of(model) == [("x", "number"), ("c", "number")]


def test_a_note_says_that_large_whole_numbers_are_rounded(tmp_path: Path) -> None:
    _, notes = train(tmp_path, pa.table({"x": LARGE["int64"], "y": pa.array([2**53 - 1, 1] * 300), "label": LABELS}))
    [note] = [note for note in notes.notes if "2^53" in note]
    assert "column 'x' holds whole numbers of 2^53 or more, which are rounded" in note


@pytest.mark.parametrize("weights", [[0.0], [0.0] * (ROWS - 1) + [1.0]], ids=["all zero", "one not zero"])
def test_a_note_says_that_all_weights_are_zero(weights: list[float], tmp_path: Path) -> None:
    rows = np.resize(weights, ROWS)
    _, notes = train(tmp_path, pa.table({"x": X, "w": rows, "label": LABELS}), weight="w")
    assert any("all rows have weight 0 in column 'w'" in note for note in notes.notes) == (not rows.any())


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
