"""Values of a row other than its label and features: its offset, and its number in the catalog."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streampgs.base.errors import DataError
from streampgs.data.open import open_table
from streampgs.options.commands import EncodingOptions, ModelOptions
from streampgs.reading.window import Window
from streampgs.table.catalog import Catalog, with_cache

from .plain_reader import WRITERS, Reader, Setup, dense_table, plain_groups, sparse_table

HALF = 0.5


def numbered(table: pa.Table, first: int = 0) -> pa.Table:
    """The table with an offset that identifies the row: its number plus a half."""
    return table.append_column("exposure", pa.array(np.arange(first, first + table.num_rows) + HALF))


def write_shards(folder: Path, writer: str, make: Any = sparse_table) -> None:
    folder.mkdir()
    for number, first in enumerate((0, 600)):
        WRITERS[writer](numbered(make(600, seed=number), first), folder / f"{number}.{writer.split(',')[0]}", 75)


def assert_each_row_has_its_own(window: Window, labels: np.ndarray) -> None:
    """`labels` are those of all rows of the catalog."""
    np.testing.assert_array_equal(window.offsets, window.numbers + HALF)
    np.testing.assert_array_equal(window.labels, np.where(labels[window.numbers] == 1.0, 1.0, -1.0))


@pytest.mark.parametrize("make", [sparse_table, dense_table])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("writer", ["arrow", "arrow, lz4", "parquet"])
def test_each_row_has_its_own_offset_and_number(tmp_path: Path, writer: str, cached: bool, make: Any) -> None:
    write_shards(tmp_path / "data", writer, make)
    setup = Setup(tmp_path / "data", tmp_path / "cache" if cached else None, offset="exposure", weighted=True)
    with setup.reader() as reader:
        labels = np.array([row[0] for group in plain_groups(reader.catalog) for row in group])
        for epoch in range(2):
            seen = []
            for window in reader.windows(first_epoch=epoch):
                assert_each_row_has_its_own(window, labels)
                seen.append(window.numbers)
            assert sorted(np.concatenate(seen).tolist()) == list(range(1200))
        read = [(window.numbers, window.offsets.copy()) for window in reader.filler.in_file_order(1_000)]
        assert np.concatenate([numbers for numbers, _ in read]).tolist() == list(range(1200))
        assert np.concatenate([offsets for _, offsets in read]).tolist() == (np.arange(1200) + HALF).tolist()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("writer", ["arrow", "parquet"])
def test_encoded_rows_keep_offset_and_number(tmp_path: Path, writer: str, cached: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    names = ["a", "b", None]
    columns = {"label": np.arange(800) % 2, "city": [names[r % 3] for r in range(800)], "size": np.arange(800.0)}
    WRITERS[writer](numbered(pa.table(columns)), folder / f"0.{writer}", 100)
    options = ModelOptions(offset="exposure", sigma=1.0)
    table = open_table([str(folder)], options, EncodingOptions())
    assert table.encoding is not None
    assert {source for column in table.encoding.all_columns for source in column.sources} == {"city", "size"}
    setup = Setup(folder, tmp_path / "cache" if cached else None, offset="exposure")
    catalog = Catalog(with_cache(table.catalog.shards, 0, (1 << 40) if cached else 0)[0])
    with Reader(setup, catalog, table.encoding) as reader:
        for epoch in range(2):
            for window in reader.windows(first_epoch=epoch):
                assert_each_row_has_its_own(window, np.arange(800) % 2)


def test_the_offsets_and_numbers_of_skipped_rows_are_skipped_too(tmp_path: Path) -> None:
    table = numbered(sparse_table(400))
    offsets = table["exposure"].to_pylist()
    offsets[7], offsets[300] = None, math.inf
    table = table.set_column(table.schema.get_field_index("exposure"), "exposure", pa.array(offsets))
    WRITERS["arrow"](table, tmp_path / "0.arrow", 100)
    with Setup(tmp_path / "0.arrow", offset="exposure", skip_bad_rows=True).reader() as reader:
        seen = []
        for window in reader.windows():
            np.testing.assert_array_equal(window.offsets, window.numbers + HALF)
            seen += window.numbers.tolist()
    assert sorted(seen) == [row for row in range(400) if row not in (7, 300)]


def test_numbers_are_computed_only_if_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS["arrow"](sparse_table(100), tmp_path / "0.arrow", 100)
    asked = []
    monkeypatch.setattr("streampgs.reading.loader._row_numbers", lambda plan, catalog: asked.append(plan))
    with Setup(tmp_path / "0.arrow").reader() as reader:
        window = reader.first_window()
        assert not asked
        assert window.numbers is None
        assert len(asked) == 1


def test_a_table_without_the_offset_column_is_refused(tmp_path: Path) -> None:
    WRITERS["arrow"](sparse_table(10), tmp_path / "0.arrow", 10)
    with pytest.raises(DataError, match="no offset column 'exposure'"):
        Setup(tmp_path / "0.arrow", offset="exposure").catalog()
