"""Parquet columns of every kind have the values that were written, in every encoding and compression and from every writer."""

from __future__ import annotations

import datetime as dt
import errno
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError, Unreadable
from streampgs.formats.registry import open_shard
from streampgs.model.model import Model

ROWS, GROUP_ROWS = 400, 130
STRINGS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
WORDS = ["red", "green", "", "blue sky", "grün", "x" * 300]


def of_rows(value: Callable[[int], Any], kind: pa.DataType, nulls: bool = True) -> pa.Array:
    return pa.array([None if nulls and row % 7 == 3 else value(row) for row in range(ROWS)], kind)


def word(row: int) -> str:
    return WORDS[row * row % 11 % len(WORDS)]


COLUMNS = {
    "bool": of_rows(lambda row: row % 3 == 0, pa.bool_()),
    "int8": of_rows(lambda row: row % 100 - 50, pa.int8()),
    "int32": of_rows(lambda row: row * 1_000_003 % 2**31 - 2**30, pa.int32()),
    "int64": of_rows(lambda row: row**6 - 2**40, pa.int64()),
    "uint64": of_rows(lambda row: 2**64 - 1 - row, pa.uint64()),
    "float32": of_rows(lambda row: row / 8, pa.float32()),
    "float64": of_rows(lambda row: row / 7, pa.float64()),
    "decimal": of_rows(lambda row: Decimal(row) / 4, pa.decimal128(30, 2)),
    "date": of_rows(lambda row: dt.date(2020, 1, 1) + dt.timedelta(row), pa.date32()),
    "instant": of_rows(lambda row: dt.datetime(2020, 1, 1) + dt.timedelta(hours=row), pa.timestamp("us")),
    "string": of_rows(word, pa.string()),
    "large_string": of_rows(word, pa.large_string()),
    "view": of_rows(word, pa.string_view()),
    "unique": of_rows(lambda row: f"row {row}", pa.string()),
    "required": pa.array([word(row) for row in range(ROWS)]),
    "dictionary": of_rows(word, pa.string()).dictionary_encode(),
    "nulls": pa.nulls(ROWS, pa.string()),
    "strings": of_rows(lambda row: [word(row + one) for one in range(row % 4)], pa.list_(pa.string())),
    "numbers": of_rows(lambda row: [row / 2] * (row % 4), pa.list_(pa.float32())),
    "struct": of_rows(lambda row: {"city": word(row), "size": row}, pa.struct({"city": pa.string(), "size": pa.int32()})),
    "map": of_rows(lambda row: [(word(row + one), one) for one in range(row % 3)], pa.map_(pa.string(), pa.int32())),
}  # fmt: skip
TABLE = pa.table(COLUMNS)
OF_STRINGS = [name for name, column in COLUMNS.items() if "string" in str(column.type) and name != "dictionary"]
ENCODINGS = {
    "dictionary": dict.fromkeys(COLUMNS, None),
    "PLAIN": dict.fromkeys(COLUMNS, "PLAIN"),
    **{encoding: dict.fromkeys(OF_STRINGS, encoding) for encoding in STRINGS},
    "DELTA_BINARY_PACKED": dict.fromkeys(("int8", "int32", "int64", "uint64", "date", "instant"), "DELTA_BINARY_PACKED"),
    "BYTE_STREAM_SPLIT": dict.fromkeys(("int32", "int64", "float32", "float64", "numbers", "decimal"), "BYTE_STREAM_SPLIT"),
    "RLE": {"bool": "RLE"},
}  # fmt: skip
INSIDE = {"struct": ["struct.city"], "map": ["map.key_value.key"], "strings": ["strings.list.element"]}
INSIDE |= {"numbers": ["numbers.list.element"]}
COMPRESSIONS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def written(table: pa.Table, path: Path, encoding: str, **options: Any) -> Path:
    chosen = {name: one for name, one in ENCODINGS[encoding].items() if name in table.schema.names}
    if encoding != "dictionary":
        leaves = {leaf: one for name, one in chosen.items() for leaf in INSIDE.get(name, [name])}
        options |= {"use_dictionary": False, "column_encoding": leaves}
    pq.write_table(table, path, row_group_size=GROUP_ROWS, **options)
    return path


def refuse_other_values(path: Path, expected: pa.Table, slice_rows: int = 57) -> None:
    """Unless all groups decode to the expected rows, with strings as dictionaries and without."""
    for categories in ([], [*expected.schema.names, "struct.city", "struct.size", "absent"]):
        with open_shard(path) as file:
            names, first = expected.schema.names, 0
            for group, rows in enumerate(file.group_rows(names)):
                found = pa.Table.from_batches(file.decode(group, slice_rows, names, categories))
                for name in names:
                    values = expected[name].slice(first, rows).to_pylist()
                    assert found[name].to_pylist() == values, (name, group, categories)
                first += rows
            assert first == len(expected)


@pytest.mark.parametrize("version", ["1.0", "2.0"], ids=["pages v1", "pages v2"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_is_read(tmp_path: Path, encoding: str, version: str) -> None:
    names = [name for name in TABLE.schema.names if encoding == "PLAIN" or name in ENCODINGS[encoding]]
    path = written(TABLE.select(names), tmp_path / "a.parquet", encoding, data_page_version=version)
    with pq.ParquetFile(path) as file:
        used = {one for c in range(file.metadata.num_columns) for one in file.metadata.row_group(1).column(c).encodings}
        assert encoding in used or "RLE_DICTIONARY" in used
    refuse_other_values(path, TABLE.select(names))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_is_read(tmp_path: Path, compression: str) -> None:
    for encoding in ("dictionary", *STRINGS):
        names = [name for name in TABLE.schema.names if name in ENCODINGS[encoding]]
        path = tmp_path / f"{encoding}.parquet"
        refuse_other_values(written(TABLE.select(names), path, encoding, compression=compression), TABLE.select(names))


def test_a_dictionary_that_grows_too_large_continues_in_plain_pages(tmp_path: Path) -> None:
    texts = pa.table({"text": [f"{row} " * 20 for row in range(3000)]})
    pq.write_table(texts, tmp_path / "a.parquet", dictionary_pagesize_limit=1000, data_page_size=2000)
    refuse_other_values(tmp_path / "a.parquet", texts, slice_rows=700)


SIMPLE = TABLE.select([name for name in COLUMNS if name not in ("view", "map", "dictionary", "uint64")])


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_files_of_duckdb_are_read(tmp_path: Path, version: str) -> None:
    simple, path = SIMPLE, tmp_path / "a.parquet"
    duckdb.sql(f"COPY simple TO '{path}' (FORMAT parquet, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048)")
    refuse_other_values(path, simple)


def test_files_of_polars_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.from_arrow(SIMPLE).write_parquet(path, row_group_size=GROUP_ROWS)  # type: ignore[union-attr]
    refuse_other_values(path, SIMPLE)


# Training.


def rows_to_train(rows: int = 600) -> pa.Table:
    random = np.random.default_rng(3)
    cities = np.array(["Bern", "Rom", "Oslo", None], object)[random.integers(0, 4, rows)]
    return pa.table({
        "label": pa.array(np.where((cities == "Rom") ^ (random.random(rows) < 0.1), "yes", "no")),
        "city": pa.array(cities, pa.string()),
        "note": pa.array([" ".join(random.choice(["good", "bad", "fine", "poor"], 3)) for _ in range(rows)]),
        "place": pa.array([{"country": "CH" if city == "Bern" else "other"} for city in cities]),
        "tags": pa.array([[str(tag) for tag in random.choice(["a", "b", "c"], row % 3)] for row in range(rows)]),
        "weight": pa.array(random.integers(1, 4, rows)),
    })  # fmt: skip


def bits(path: Path, run: Path) -> bytes:
    streampgs.train(path, run=run, label="label", text=["note"], weight="weight", sigma=0.1, epochs=2)
    return bytes(Model.load(run).coef_.tobytes())


@pytest.mark.parametrize("encoding", STRINGS)
def test_a_model_of_delta_encoded_strings_has_the_same_bits(tmp_path: Path, encoding: str) -> None:
    """As labels, categories and text, and in structs and lists."""
    table = rows_to_train()
    strings = dict.fromkeys(["label", "city", "note", "place.country", "tags.list.element"], encoding)
    pq.write_table(table, tmp_path / "plain.parquet", row_group_size=200)
    pq.write_table(table, tmp_path / "delta.parquet", row_group_size=200, use_dictionary=False, column_encoding=strings)
    assert bits(tmp_path / "delta.parquet", tmp_path / "delta") == bits(tmp_path / "plain.parquet", tmp_path / "plain")


def test_the_row_groups_of_a_column_may_have_different_encodings(tmp_path: Path) -> None:
    """As DuckDB chooses them by the values of each row group."""
    rows, delta, plain = 2048, tmp_path / "delta.parquet", tmp_path / "plain.parquet"
    table = rows_to_train(3 * rows)
    cities = table["city"].to_pylist()
    cities[rows : 2 * rows] = [f"village {row}" for row in range(rows)]
    table = table.set_column(1, "city", pa.array(cities))
    pq.write_table(table, plain, row_group_size=rows)
    duckdb.sql(
        f"COPY table TO '{delta}' (FORMAT parquet, PARQUET_VERSION v2, ROW_GROUP_SIZE {rows})".replace(
            "table", '"table"', 1
        )
    )
    with pq.ParquetFile(delta) as file:
        found = [file.metadata.row_group(group).column(1).encodings for group in range(3)]
    assert [any(one.startswith("DELTA") for one in encodings) for encodings in found] == [False, True, False]
    assert bits(delta, tmp_path / "a") == bits(plain, tmp_path / "b")


# Errors.


def test_a_column_that_pyarrow_cannot_decode_is_named_and_not_called_damaged(tmp_path: Path) -> None:
    """Such as a column that was a dictionary in memory, which pyarrow makes a dictionary again, with strings in DELTA
    encodings."""
    path, table = tmp_path / "a.parquet", TABLE.select(["int8", "string", "dictionary"])
    pq.write_table(table, path, use_dictionary=False, column_encoding={"dictionary": STRINGS[0]})
    with open_shard(path) as file:
        with pytest.raises(DataError) as refused:
            list(file.decode(0, 50, table.schema.names))
        assert "row group 0, column 'dictionary'" in refused.value.found
        assert "Not yet implemented" in refused.value.found
        assert "damaged" not in refused.value.found
        assert "--ignore" in refused.value.remedy
        assert sum(batch.num_rows for batch in file.decode(0, 50, ["int8", "string"], ["string"])) == ROWS


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_an_error_of_the_disk_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = written(TABLE.select(["int8"]), tmp_path / "a.parquet", "dictionary")

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with open_shard(path) as file:
        monkeypatch.setattr(pq.ParquetFile, "iter_batches", failing)
        with pytest.raises(Unreadable, match=os.strerror(number)):
            list(file.decode(0, 50, ["int8"]))
