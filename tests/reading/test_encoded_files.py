"""Tables with columns of all types give the same rows when read from files in slices as from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from streampgs.base.errors import DataError
from streampgs.data.sampling import sampled_rows
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import Plan, plan_columns
from streampgs.encoding.rows import FAULTS, FEATURES, INDICES, VALUES
from streampgs.formats import parquet
from streampgs.formats.allowance import decoding_within
from streampgs.formats.registry import open_shard
from streampgs.options.commands import EncodingOptions
from streampgs.reading.decode import Group, columns_of_batch, raw_slices
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns
from tests.encoding.tables import KINDS, encoded, learnt, planned, tables

FORMATS = ["arrow", "zstd", "parquet"]


def write(table: pa.Table, path: Path, file_format: str, group_rows: int) -> None:
    if file_format == "parquet":
        pq.write_table(table, path, row_group_size=group_rows)
        return
    options = pa.ipc.IpcWriteOptions(compression=None if file_format == "arrow" else file_format)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        for start in range(0, table.num_rows, group_rows):
            writer.write_table(table.slice(start, group_rows).combine_chunks())


def can_be_written(kind: pa.DataType, inside: bool = False) -> bool:
    """Whether Parquet's writer accepts the type. It cannot slice views inside of lists and structs."""
    views = (pa.types.is_string_view, pa.types.is_binary_view)
    if pa.types.is_dictionary(kind):
        return not pa.types.is_string_view(kind.value_type)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) or (inside and any(is_(kind) for is_ in views)):
        return False
    return all(can_be_written(kind.field(number).type, True) for number in range(kind.num_fields))


def rows_of_file(path: Path, encoding: Encoding, slice_rows: int) -> list[Any]:
    """The rows of a file, in the form of `encoded`."""
    columns = Columns(None, None, encoding=encoding)
    catalog = build_catalog([str(path)], columns)
    (shard,) = catalog.shards
    found: list[Any] = []
    for group in range(len(shard.group_rows)):
        for batch in Group(group, shard, group, slice_rows, columns).slices():
            assert 0 < batch.num_rows <= slice_rows
            found += _entries(batch.to_batch(), encoding)
    return found


def _entries(batch: pa.RecordBatch, encoding: Encoding) -> list[Any]:
    faults = batch[FAULTS].to_pylist() if FAULTS in batch.schema.names else [0] * batch.num_rows
    if encoding.dense:
        rows = [list(enumerate(values)) for values in batch[FEATURES].to_pylist()]
    else:
        pairs = zip(batch[INDICES].to_pylist(), batch[VALUES].to_pylist(), strict=True)
        rows = [list(zip(*pair, strict=True)) for pair in pairs]
    bits = [tuple((index, np.float32(value).tobytes()) for index, value in row) for row in rows]
    return [fault or row for fault, row in zip(faults, bits, strict=True)]


@pytest.mark.parametrize("file_format", FORMATS)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_from_files_equal_rows_in_memory(file_format: str, tmp_path: Path, data: st.DataObject) -> None:
    table = data.draw(st.one_of(tables(most_rows=30), *(tables(most_rows=30, kinds=(kind,)) for kind in KINDS)))
    if file_format == "parquet":
        assume(all(can_be_written(kind) for kind in table.schema.types))
    options = table.options(null_flags=True, hash_bits=10, standardize="on")
    encoding = learnt(table, options)
    path = tmp_path / f"table.{'parquet' if file_format == 'parquet' else 'arrow'}"
    write(pa.table(table.arrays), path, file_format, data.draw(st.integers(1, 30)))
    found = rows_of_file(path, encoding, data.draw(st.sampled_from([1, 2, 3, 7, 100])))
    assert found == encoded(encoding, table.arrays, table.rows)


NESTED = {
    "dictionary in a list": pa.array([["a", "b"], None, ["b"], [], ["a"]]).cast(
        pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
    "dictionary in a struct": pa.StructArray.from_arrays(
        [pa.array(["a", "b", None, "b", "a"]).dictionary_encode(), pa.array([1, 2, 3, 4, None])],
        ["c", "n"],
        mask=pa.array([False, False, False, True, False]),
    ),
    "dictionary of numbers": pa.array([1.5, 2.5, None, 1.5, 2.5]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["x", None])),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None, "[1]", "{}", "2"])),
    "bits": pa.array([True, None, False, True, False]),
    "nothing below": pa.array([None] * 5, pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))])),
    "map": pa.array([[], None, [], [("a", 1.0)], []], pa.map_(pa.string(), pa.float32())),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("file_format", ["arrow", "zstd"])
def test_types_that_only_arrow_files_have(name: str, file_format: str, tmp_path: Path) -> None:
    table = pa.table({"x": NESTED[name], "number": pa.array(range(5))})
    options = EncodingOptions(hash_bits=10)
    encoding = learn(
        plan_columns(table.schema, options, {}, "a table"),
        options,
        [{name: table[name].combine_chunks() for name in table.schema.names}],
        (),
    )
    expected = encoded(encoding, {name: table[name] for name in table.schema.names}, 5)
    path = tmp_path / "table.arrow"
    with pa.ipc.new_file(
        str(path),
        table.schema,
        options=pa.ipc.IpcWriteOptions(compression=None if file_format == "arrow" else file_format),
    ) as writer:
        writer.write_table(table, max_chunksize=3)
    for slice_rows in (1, 2, 100):
        assert rows_of_file(path, encoding, slice_rows) == expected


@pytest.mark.parametrize("file_format", FORMATS)
def test_dictionaries_may_grow_from_batch_to_batch(file_format: str, tmp_path: Path) -> None:
    """Parquet has a new dictionary in each row group. Arrow files extend theirs."""
    words = [f"w{number // 3}" for number in range(30)]
    options = EncodingOptions(hash_bits=12)
    plan = plan_columns(pa.schema([("c", pa.string())]), options, {}, "a table")
    encoding = learn(plan, options, [{"c": pa.array(words)}])
    path = tmp_path / f"table.{'parquet' if file_format == 'parquet' else 'arrow'}"
    kind = pa.dictionary(pa.int16(), pa.string())
    if file_format == "parquet":
        pq.write_table(pa.table({"c": pa.array(words).dictionary_encode()}), path, row_group_size=7)
    else:
        compression = None if file_format == "arrow" else file_format
        more = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True, compression=compression)
        with pa.ipc.new_file(str(path), pa.schema([("c", kind)]), options=more) as writer:
            for stop in (6, 15, 30):
                known = list(dict.fromkeys(words[:stop]))
                start = {6: 0, 15: 6, 30: 15}[stop]
                places = pa.array([known.index(word) for word in words[start:stop]], pa.int16())
                writer.write_batch(pa.record_batch([pa.DictionaryArray.from_arrays(places, pa.array(known))], ["c"]))
    for slice_rows in (2, 100):
        assert rows_of_file(path, encoding, slice_rows) == encoded(encoding, {"c": pa.array(words)}, 30)


@pytest.mark.parametrize("file_format", FORMATS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_sample_of_a_small_table_is_all_of_it(file_format: str, tmp_path: Path, data: st.DataObject) -> None:
    """So the learned encoding does not depend on the groups of the table."""
    table = data.draw(tables(most_rows=40))
    if file_format == "parquet":
        assume(all(can_be_written(kind) for kind in table.schema.types))
    path = tmp_path / f"table.{'parquet' if file_format == 'parquet' else 'arrow'}"
    write(pa.table(table.arrays), path, file_format, data.draw(st.integers(1, 40)))
    options = table.options(vocabulary=True)
    plan: Plan = planned(table, options)
    columns = Columns(None, None, encoding=plan)
    catalog = build_catalog([str(path)], columns)
    sample = sampled_rows(catalog, columns, 0, 1 << 25).batches
    assert sum(len(next(iter(batch.values()))) for batch in sample) == table.rows
    # Everything except the names, which come from some batches only.
    found, expected = learn(plan, options, sample), learnt(table, options)
    assert (found.columns, found.hash_bits, found.entries_per_row) == (
        expected.columns,
        expected.hash_bits,
        expected.entries_per_row,
    )
    assert found.words.tolist() == expected.words.tolist()
    assert found.rarities.keys() == expected.rarities.keys()
    assert all(np.array_equal(found.rarities[name], rarity) for name, rarity in expected.rarities.items())
    raw = [
        columns_of_batch(batch, shard)
        for shard in catalog.shards
        for g in range(len(shard.group_rows))
        for batch in raw_slices(shard, g, 5, columns)
    ]
    assert set(raw[0]) == set(table.arrays)


def test_a_row_that_takes_more_memory_than_is_allowed_is_refused(tmp_path: Path) -> None:
    """While rows are sampled, and while they are encoded."""
    table = pa.table({"t": ["a", "b c", "ab " * 300_000]})
    write(table, tmp_path / "a.parquet", "parquet", 10)
    options = EncodingOptions(text=("t",), ngrams=None, char_ngrams=(3, 5))
    plan = plan_columns(table.schema, options, {}, "a table")
    encoding = learn(plan, options, [{"t": pa.array(["a"])}])
    message = r"row 2: column 't' has 900.0 kB, whose features take about 44.1 MB .*\n.* --memory 177MB, .* --ignore t"
    with decoding_within(1):
        with pytest.raises(DataError, match=message):
            rows_of_file(tmp_path / "a.parquet", encoding, 10)
        columns = Columns(None, None, encoding=plan)
        with pytest.raises(DataError, match=message):
            sampled_rows(build_catalog([str(tmp_path / "a.parquet")], columns), columns, 0, 1 << 30)
    with decoding_within(45 << 20):
        assert len(rows_of_file(tmp_path / "a.parquet", encoding, 10)) == 3


def test_a_value_of_parquet_beyond_the_allowed_memory_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_SLICE_BYTES", 1000)
    write(pa.table({"t": ["a " * 50_000], "x": [1.0]}), tmp_path / "a.parquet", "parquet", 10)
    message = r"row group 0: the values of column 't' have 100.1 kB\n.* --memory 1MB, .* --ignore t"
    with open_shard(tmp_path / "a.parquet") as file:
        with decoding_within(99_000):
            with pytest.raises(DataError, match=message):
                list(file.decode(0, 10, ["t", "x"]))
            assert sum(batch.num_rows for batch in file.decode(0, 10, ["x"])) == 1
        with decoding_within(101_000):
            assert sum(batch.num_rows for batch in file.decode(0, 10, ["t"])) == 1
