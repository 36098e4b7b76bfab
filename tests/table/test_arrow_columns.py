"""Rows [start, stop) fetched by positional reads are the rows that pyarrow reads, next to columns of any type."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.formats.arrow_columns import column_places, list_offsets, read_column
from streampgs.formats.arrow_metadata import BatchMetadata, FileBlock, read_batch_metadata, read_footer
from streampgs.formats.format import Damaged
from streampgs.formats.registry import open_shard
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns

SPARSE = {
    "label": pa.array([1, 0, 1, 0, 1]),
    "indices": pa.array([[1, 2], [], [7], [3], [4, 5, 6]], pa.list_(pa.int32())),
    "values": pa.array([[0.5, 1.5], [], [2.5], [3.5], [4.5, 5.5, 6.5]], pa.list_(pa.float32())),
}


class Fetched:
    """A file opened for positional reads that counts the requested bytes."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.data = path.read_bytes()
        self.schema = pa.ipc.open_file(path).schema
        footer_bytes = int.from_bytes(self.data[-10:-6], "little")
        self.blocks: list[FileBlock] = read_footer(self.data[-10 - footer_bytes : -10])
        self.places = column_places(self.schema, names)
        self.bytes_read = 0

    def metadata(self, number: int) -> BatchMetadata:
        block = self.blocks[number]
        return read_batch_metadata(self.data[block.offset : block.offset + block.metadata_bytes])

    def column(self, name: str, number: int, start: int, stop: int) -> pa.Array:
        block = self.blocks[number]

        def read(offset: int, size: int) -> np.ndarray:
            assert 0 <= offset <= offset + size <= block.body_bytes
            self.bytes_read += size
            body = block.offset + block.metadata_bytes
            return np.frombuffer(self.data, np.uint8, size, body + offset)

        return read_column(self.places[name], self.metadata(number), start, stop, read)


def write(path: Path, batches: list[pa.RecordBatch], **options: object) -> None:
    with pa.ipc.new_file(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


# Any rows of any column.

NUMBERS = st.sampled_from([
    pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64(), pa.float16(), pa.float32(), pa.float64(),
])  # fmt: skip


@st.composite
def kinds(draw: st.DrawFn) -> pa.DataType:
    child = draw(NUMBERS)
    holders = [
        child,
        pa.list_(child),
        pa.large_list(child),
        pa.list_(child, draw(st.integers(1, 4))),
        pa.list_(pa.field("x", child, nullable=False)),
    ]
    return draw(st.sampled_from(holders))


@st.composite
def arrays(draw: st.DrawFn, kind: pa.DataType, size: int) -> pa.Array:
    """A column of a type. Its numbers are random: the test is about the positions of bytes, not about values."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.0, 0.1, 0.9]))

    def numbers(of: pa.DataType, count: int, nullable: bool = True) -> pa.Array:
        data = generator.integers(0, 100, count)
        typed = data.astype(np.bool_ if pa.types.is_boolean(of) else of.to_pandas_dtype())
        mask = generator.random(count) < density if nullable else None
        return pa.array(typed, of, mask=mask)

    if not isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return numbers(kind, size)
    mask = pa.array(generator.random(size) < density)
    nullable = kind.value_field.nullable
    if isinstance(kind, pa.FixedSizeListType):
        child = numbers(kind.value_type, size * kind.list_size, nullable)
        return pa.FixedSizeListArray.from_arrays(child, type=kind, mask=mask)
    lengths = generator.integers(0, 4, size)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    child = numbers(kind.value_type, int(offsets[-1]), nullable)
    holder = pa.ListArray if isinstance(kind, pa.ListType) else pa.LargeListArray
    wide = np.int32 if isinstance(kind, pa.ListType) else np.int64
    return holder.from_arrays(pa.array(offsets.astype(wide)), child, type=kind, mask=mask)


@given(data=st.data())
@settings(max_examples=150)
def test_rows_of_any_column_equal_those_that_pyarrow_reads(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "a.arrow"
    kind, before = data.draw(kinds()), data.draw(kinds())
    sizes = data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=3))
    batches = [
        pa.record_batch([data.draw(arrays(before, size)), data.draw(arrays(kind, size))], names=["before", "wanted"])
        for size in sizes
    ]
    write(path, batches)
    file = Fetched(path, ["wanted"])
    for number, batch in enumerate(batches):
        start = data.draw(st.integers(0, batch.num_rows))
        stop = data.draw(st.integers(start, batch.num_rows))
        found = file.column("wanted", number, start, stop)
        found.validate(full=True)
        assert found.to_pylist() == batch.column("wanted").slice(start, stop - start).to_pylist()


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int32(), pa.list_(pa.bool_()), pa.list_(pa.int8(), 3)], ids=str)
def test_every_start_and_stop_around_byte_boundaries(tmp_path, kind):
    """Bits can only be fetched in whole bytes. Rows 0 … 20 cross two byte boundaries."""
    size = 20
    generator = np.random.default_rng(5)
    drop = generator.random(size) < 0.3

    def cell(r: int) -> object:
        value = bool(r % 3) if "bool" in str(kind) else r
        if pa.types.is_fixed_size_list(kind):
            return [value, None, value]
        return [value, None] * (r % 3) if pa.types.is_list(kind) else value

    batch = pa.record_batch({"c": pa.array([None if drop[r] else cell(r) for r in range(size)], kind)})
    write(tmp_path / "a.arrow", [batch])
    file = Fetched(tmp_path / "a.arrow", ["c"])
    whole = batch.column("c").to_pylist()
    for start, stop in itertools.combinations_with_replacement(range(size + 1), 2):
        assert file.column("c", 0, start, stop).to_pylist() == whole[start:stop]


def test_only_the_bytes_of_the_rows_are_read(tmp_path):
    rows, row_entries = 10_000, 10
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * row_entries),
        pa.array(np.arange(rows * row_entries, dtype=np.int32)),
    )
    write(tmp_path / "a.arrow", [pa.record_batch({"c": lists})])
    file = Fetched(tmp_path / "a.arrow", ["c"])
    assert file.column("c", 0, 5000, 5003).to_pylist() == lists.slice(5000, 3).to_pylist()
    assert file.bytes_read == 4 * (3 + 1) + 4 * 3 * row_entries


def test_lengths_need_only_the_offsets(tmp_path):
    write(tmp_path / "a.arrow", [pa.record_batch(SPARSE)])
    file = Fetched(tmp_path / "a.arrow", ["indices"])
    block = file.blocks[0]
    body = file.data[block.offset + block.metadata_bytes :]

    def read(offset: int, size: int) -> np.ndarray:
        return np.frombuffer(body, np.uint8, size, offset)

    for start, stop in itertools.combinations_with_replacement(range(6), 2):
        offsets = list_offsets(file.places["indices"], file.metadata(0), start, stop, read)
        assert np.diff(offsets).tolist() == [2, 0, 1, 1, 3][start:stop]


# Any columns before and after the wanted ones.


def union(mode: str) -> pa.Array:
    types = pa.array([0, 1, 0, 1, 0], pa.int8())
    if mode == "sparse":
        return pa.UnionArray.from_sparse(types, [pa.array([1, 2, 3, 4, 5]), pa.array(list("abcde"))])
    return pa.UnionArray.from_dense(
        types, pa.array([0, 0, 1, 1, 2], pa.int32()), [pa.array([1, 2, 3]), pa.array(["a", "b"])]
    )


LONG = "longer than the twelve bytes that a view holds itself"
EXTRA: dict[str, pa.Array] = {
    "string": pa.array(["a", None, "c", "", LONG]),
    "large string": pa.array(["a", None, "c", "", LONG], pa.large_string()),
    "binary": pa.array([b"a", None, b"c", b"", b"e"]),
    "fixed binary": pa.array([b"aa", None, b"cc", b"dd", b"ee"], pa.binary(2)),
    "string view": pa.array([LONG, None, "c", "", LONG + LONG], pa.string_view()),
    "string views, all short": pa.array(list("abcde"), pa.string_view()),
    "binary view": pa.array([LONG.encode(), None, b"c", b"", b"e"], pa.binary_view()),
    "views in lists in structs": pa.array(
        [{"x": [LONG], "y": "b"}, None, {"x": [], "y": LONG}, {"x": None, "y": None}, {"x": ["a", LONG], "y": LONG}],
        pa.struct({"x": pa.list_(pa.string_view()), "y": pa.binary_view()}),
    ),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": None, "b": "y"}, {"a": 3, "b": "z"}]),
    "dictionary": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
    "dictionary in a list": pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, 5], pa.int32()), pa.array(["a", "b", "a", None, "b"]).dictionary_encode()
    ),
    "null": pa.nulls(5),
    "boolean": pa.array([True, None, False, True, False]),
    "decimal": pa.array([1, None, 3, 4, 5], pa.decimal128(9, 2)),
    "timestamp": pa.array([1, None, 3, 4, 5], pa.timestamp("us", "UTC")),
    "interval": pa.array([(1, 2, 3)] * 5, pa.month_day_nano_interval()),
    "map": pa.array([[("a", 1)], None, [], [("b", 2), ("c", 3)], [("d", None)]], pa.map_(pa.string(), pa.int8())),
    "list of lists": pa.array([[[1], []], None, [], [[2, 3]], [None]], pa.list_(pa.large_list(pa.int16()))),
    "list view": pa.array([[1], [2, 3], None, [], [4]], pa.list_view(pa.int8())),
    "large list view": pa.array([["a"], [LONG, "c"], None, [], ["d"]], pa.large_list_view(pa.string())),
    "fixed list of structs": pa.array([[{"a": 1}] * 2] * 5, pa.list_(pa.struct({"a": pa.int8()}), 2)),
    "sparse union": union("sparse"),
    "dense union": union("dense"),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", "b"])),
    "extension of text": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None, "[]", "{}", "2"])),
    "extension of bytes": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 5, pa.binary(16))),
    "extension of lists": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.array([[1.0, 2.0, 3.0, 4.0]] * 5, pa.list_(pa.float32(), 4))
    ),
}


def assert_wanted_columns(path: Path, expected: pa.Table) -> None:
    """The shard's reader returns the label, indices and values that were written."""
    shard = surveyed(path, Columns()).shard
    assert sum(shard.group_rows) == len(expected)
    assert sum(shard.group_entries) == len(expected["indices"].combine_chunks().flatten())
    first = 0
    with open_shard(path, shard.fingerprint) as file:
        for number, rows in enumerate(shard.group_rows):
            slices = file.slices(number, shard.layout.columns)
            for name, found in slices.columns(file.file, 0, rows, lambda size: np.empty(size, np.uint8)).items():
                assert found.to_pylist() == expected[name].slice(first, rows).to_pylist(), name
            first += rows
    assert first == len(expected)


def test_extra_columns_of_all_types_in_any_order_are_ignored(tmp_path):
    generator = np.random.default_rng(3)
    columns = list({**EXTRA, **SPARSE}.items())
    for attempt in range(20):
        table = pa.table(dict(columns[i] for i in generator.permutation(len(columns))))
        write(tmp_path / f"{attempt}.arrow", table.to_batches(max_chunksize=3))
        assert_wanted_columns(tmp_path / f"{attempt}.arrow", table)


def test_extra_columns_may_share_a_name(tmp_path):
    table = pa.Table.from_arrays([EXTRA["string"], *SPARSE.values(), EXTRA["boolean"]], ["x", *SPARSE, "x"])
    write(tmp_path / "a.arrow", table.to_batches())
    assert_wanted_columns(tmp_path / "a.arrow", table)


# Other writers.


def polars_frames() -> Iterator[tuple[str, pl.DataFrame]]:
    rows = 1000
    lists = [[r, r + 1] if r % 3 else [] for r in range(rows)]
    wanted = {
        "label": [r % 2 for r in range(rows)],
        "indices": lists,
        "values": [[v / 2 for v in row] for row in lists],
    }
    text = [None if r % 5 == 0 else f"row {r}, {LONG}" for r in range(rows)]
    yield "plain", pl.DataFrame(wanted)
    yield "text before", pl.DataFrame({"text": text, **wanted})
    yield (
        "categories before",
        pl.DataFrame({"kind": pl.Series(["a", "b"] * (rows // 2), dtype=pl.Categorical), **wanted}),
    )
    yield "nulls", pl.DataFrame({"none": [None] * rows, **wanted, "label": [None, 1] * (rows // 2)})
    small = {"label": pl.UInt8, "indices": pl.List(pl.UInt32), "values": pl.List(pl.Float32)}
    yield "small types", pl.DataFrame(wanted, schema=small)


@pytest.mark.parametrize("compat_level", ["newest", "oldest"])
@pytest.mark.parametrize("name", [name for name, _ in polars_frames()])
def test_files_written_by_polars_are_read(tmp_path, name, compat_level):
    frame = dict(polars_frames())[name]
    level = getattr(pl.CompatLevel, compat_level)()
    frame.write_ipc(tmp_path / "a.arrow", compat_level=level, record_batch_size=300)
    assert_wanted_columns(tmp_path / "a.arrow", frame.to_arrow())


def test_batches_made_by_duckdb_are_read(tmp_path):
    made = duckdb.sql(
        "SELECT 'row ' || i AS text, i % 2 = 0 AS label, [i, i + 1]::INTEGER[] AS indices, [0.5, i]::FLOAT[] AS values "
        "FROM range(5000) t(i)"
    ).to_arrow_table()
    write(tmp_path / "a.arrow", made.to_batches())
    assert_wanted_columns(tmp_path / "a.arrow", made)


@pytest.mark.parametrize(("byte_order", "refused"), [(0, False), (1, True)], ids=["little", "big"])
def test_numbers_in_another_byte_order_are_refused(byte_order, refused):
    """None of the available writers makes such files, so the test builds the smallest footer. Field 1 of its table is
    the schema, and field 0 of the schema is the byte order. Each table begins with the distance to its list of fields."""
    footer_fields, footer = struct.pack("<4H", 8, 8, 0, 4), struct.pack("<iI", 8, 12)
    schema_fields, schema = struct.pack("<3Hxx", 6, 6, 4), struct.pack("<ihxx", 8, byte_order)
    data = struct.pack("<I", 12) + footer_fields + footer + schema_fields + schema
    if refused:
        with pytest.raises(Damaged, match="another byte order"):
            read_footer(data)
    else:
        assert read_footer(data) == []
