"""Laws of every shard format in the registry. A format that pyarrow.dataset can write is tested without being listed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataChanged, DataError, RunError, Unfinished, Unreadable
from streampgs.formats import registry
from streampgs.formats import remote as remote_module
from streampgs.formats.format import OpenShard
from streampgs.formats.registry import FORMATS, fingerprint_of, is_shard_name, open_shard
from streampgs.stores.access import RemoteObject
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns
from tests.reading.plain_reader import Setup

ROWS, GROUP_ROWS = 1_000, 300
LONG_AGO = 1_000_000_000


def table(rows: int = ROWS) -> pa.Table:
    chance = np.random.default_rng(7)
    lengths = chance.integers(0, 9, rows)
    lists = [chance.permutation(99)[:length].tolist() for length in lengths]
    return pa.table({
        "extra": pa.array([None if r % 7 == 0 else f"text {r % 5}" for r in range(rows)]),
        "label": pa.array(chance.integers(0, 2, rows), pa.int8()),
        "indices": pa.array(lists, pa.list_(pa.int32())),
        "values": pa.array([[value / 4 for value in row] for row in lists], pa.list_(pa.float32())),
        "city": pa.array([None if r % 11 == 0 else f"city {r % 3}" for r in range(rows)]),
    })  # fmt: skip


def write(groups: Sequence[pa.Table], name: str, path: Path, settled: bool = True) -> Path:
    """Write a shard with these groups. `settled`: its modification time is old enough to be trusted."""
    schema = groups[0].schema
    if name == "arrow":
        with pa.ipc.new_file(path, schema) as writer:
            for group in groups:
                for batch in group.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema)]:
                    writer.write_batch(batch)
    elif name == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            for group in groups:
                writer.write_table(group)
    else:
        whole = pa.concat_tables(groups)
        ds.write_dataset(whole, path.parent / "written", format=name, max_rows_per_group=len(groups[0]))
        (written,) = (path.parent / "written").iterdir()
        written.rename(path)
    if settled:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def cut(whole: pa.Table, group_rows: int = GROUP_ROWS) -> list[pa.Table]:
    return [whole.slice(first, group_rows) for first in range(0, len(whole), group_rows)]


@pytest.fixture(params=list(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shard(name: str, tmp_path: Path) -> Path:
    return write(cut(table()), name, tmp_path / f"shard{min(FORMATS[name].suffixes)}")


def decoded(file: OpenShard, group: int, columns: Sequence[str], slice_rows: int = 64) -> pa.Table:
    batches = list(file.decode(group, slice_rows, columns))
    assert all(batch.num_rows <= slice_rows for batch in batches)
    return pa.Table.from_batches(batches).select(list(columns))


def plain(found: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in found.to_pylist()]


# Metadata.


def test_the_format_is_recognised_by_its_suffix_and_by_its_first_bytes(name: str, shard: Path) -> None:
    assert is_shard_name(shard.name)
    unnamed = shard.rename(shard.with_name("no-suffix"))
    with open_shard(unnamed) as file:
        assert file.format is FORMATS[name]


def test_the_metadata_agrees_with_the_table(name: str, shard: Path) -> None:
    whole = table()
    with open_shard(shard) as file:
        assert file.schema.remove_metadata().equals(whole.schema)
        assert file.group_rows(["label"]) == tuple(len(group) for group in cut(whole))
        for column in ("indices", "values"):
            rows = [row for group in cut(whole) for row in [group[column].to_pylist()]]
            exact = [sum(len(one) for one in group) for group in rows]
            found = file.group_values(column)
            most = [count + sum(not one for one in group) for count, group in zip(exact, rows, strict=True)]
            assert all(low <= count <= high for low, count, high in zip(exact, found, most, strict=True))
    found = surveyed(shard, Columns()).shard
    assert (found.format, found.rows, found.fingerprint) == (name, ROWS, fingerprint_of(shard))


# Rows.


@pytest.mark.parametrize("slice_rows", [1, 7, GROUP_ROWS, 10_000])
def test_decoding_gives_the_rows_of_the_group_in_order(shard: Path, slice_rows: int) -> None:
    columns = ["label", "indices", "values", "extra"]
    with open_shard(shard) as file:
        for number, group in enumerate(cut(table(), GROUP_ROWS)[-2:], start=2):
            assert plain(decoded(file, number, columns, slice_rows)) == plain(group.select(columns))


def test_slices_read_in_place_agree_with_decoded_rows(shard: Path) -> None:
    columns = ["label", "indices", "values"]
    with open_shard(shard) as file:
        if file.must_decode():
            with pytest.raises(RunError, match="must be decoded"):
                file.slices(0, columns)
            return
        for start, stop in ((0, GROUP_ROWS), (0, 1), (5, 77), (GROUP_ROWS - 3, GROUP_ROWS), (9, 9)):
            slices, expected = file.slices(1, columns), decoded(file, 1, columns).slice(start, stop - start)
            found = slices.columns(file.file, start, stop, lambda size: np.empty(size, np.uint8))
            for column in columns:
                assert found[column].to_pylist() == expected[column].to_pylist()
            lengths = slices.lengths(file.file, start, stop, "indices", lambda size: np.empty(size, np.uint8))
            assert lengths.tolist() == [len(row) for row in expected["indices"].to_pylist()]


def test_only_the_named_columns_are_decoded(shard: Path) -> None:
    with open_shard(shard) as file:
        (batch,) = file.decode(0, GROUP_ROWS, ["city"])
        assert batch.schema.names == ["city"]
        with pytest.raises(DataError, match="has no column 'absent'"):
            list(file.decode(0, GROUP_ROWS, ["absent"]))


def test_dictionary_encoded_columns_have_the_same_strings(shard: Path) -> None:
    with open_shard(shard) as file:
        found = pa.Table.from_batches(file.decode(0, GROUP_ROWS, ["city", "extra"], {"city", "no such column"}))
    assert found["city"].cast(pa.string()).to_pylist() == table()["city"].to_pylist()[:GROUP_ROWS]


def test_groups_without_rows_are_kept(name: str, tmp_path: Path) -> None:
    if name not in ("arrow", "parquet"):
        pytest.skip("pyarrow.dataset writes no empty groups")
    whole = table(20)
    groups = [whole.slice(0, 0), whole.slice(0, 12), whole.slice(0, 0), whole.slice(12), whole.slice(0, 0)]
    shard = write(groups, name, tmp_path / "shard")
    with open_shard(shard) as file:
        assert file.group_rows(["label", "indices"]) == (0, 12, 0, 8, 0)
        for number, group in enumerate(groups):
            batches = list(file.decode(number, 5, ["label", "indices"]))
            assert [row for batch in batches for row in batch.to_pylist()] == plain(group.select(["label", "indices"]))


# Damage and change.


def test_a_shard_without_its_end_is_unfinished(shard: Path) -> None:
    whole = shard.read_bytes()
    for size in (0, 3, 8, len(whole) // 2, len(whole) - 1):
        shard.write_bytes(whole[:size])
        with pytest.raises(Unfinished, match=str(shard)):
            open_shard(shard)


def test_a_damaged_shard_raises_an_error_that_names_it(shard: Path) -> None:
    """Bytes are inverted one at a time. Reading either gives rows or raises a DataError."""
    whole, refused = shard.read_bytes(), 0
    for place in range(0, len(whole), max(37, len(whole) // 300)):
        shard.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = surveyed(shard, Columns()).shard
            with open_shard(shard, found.fingerprint) as file:
                for number in range(len(found.group_rows)):
                    list(file.decode(number, 100, found.layout.columns))
        except (DataError, Unreadable) as error:
            assert str(shard) in error.found
            refused += 1
    assert refused > 0


def test_a_shard_that_changed_after_it_was_catalogued_is_refused(name: str, shard: Path) -> None:
    expected = fingerprint_of(shard)
    open_shard(shard, expected).close()
    write(cut(table(ROWS - 1)), name, shard)
    with pytest.raises(DataChanged, match=str(shard)):
        open_shard(shard, expected)


# Object stores.


class Store:
    """Objects in memory, with a count of the requests."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests = 0

    @contextmanager
    def opened(self, remote: RemoteObject, stopping: object = None) -> Iterator[Store]:
        self._data = self.objects[remote.address]
        yield self

    def read(self, size: int, offset: int) -> bytes:
        self.requests += 1
        assert 0 <= offset <= offset + size <= len(self._data)
        return self._data[offset : offset + size]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store()
    monkeypatch.setattr(remote_module, "opened", store.opened)
    return store


@pytest.mark.parametrize("group_rows", [4, GROUP_ROWS])
def test_an_object_gives_the_same_rows_as_a_file(name: str, tmp_path: Path, store: Store, group_rows: int) -> None:
    shard = write(cut(table(), group_rows), name, tmp_path / "shard")
    store.objects["s3://bucket/shard"] = data = shard.read_bytes()
    remote = RemoteObject("s3://bucket/shard", len(data), f"version of {group_rows}")
    columns = ["label", "indices", "values"]
    with open_shard(shard) as here, open_shard(remote) as there:
        assert there.fingerprint.footer_digest == here.fingerprint.footer_digest
        assert there.group_rows(columns) == here.group_rows(columns)
        assert there.group_values("indices") == here.group_values("indices")
        assert there.must_decode() == here.must_decode()
        assert store.requests <= 3 + len(data) // (1 << 16)  # neighbouring ranges are fetched together
        for group in (0, len(here.group_rows(columns)) - 1):
            assert decoded(there, group, columns).equals(decoded(here, group, columns))
            if not here.must_decode():
                found = there.slices(group, columns).columns(there.file, 1, 3, lambda size: np.empty(size, np.uint8))
                assert found["values"].to_pylist() == decoded(here, group, columns)["values"].to_pylist()[1:3]


# Footers.


def test_a_footer_is_read_once_for_any_number_of_groups_and_epochs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once per file for cataloguing and reading together. What pyarrow parses describes one group, and
    each decoding of a group needs it once."""
    files, groups, epochs = 3, 12, 4
    (tmp_path / "data").mkdir()
    for number in range(files):
        write(cut(table(20 * groups), 20), name, tmp_path / "data" / f"{number}{min(FORMATS[name].suffixes)}")
    read: list[object] = []
    parsed: list[int] = []
    read_footer, read_metadata, parquet_file = type(FORMATS[name]).read_footer, pq.read_metadata, pq.ParquetFile

    def counted_read(self: object, file: Any, *more: Any) -> object:
        read.append(file.path)
        return read_footer(self, file, *more)

    def counted_metadata(source: object, *more: Any, **options: Any) -> Any:
        found = read_metadata(source, *more, **options)
        parsed.append(found.num_row_groups)
        return found

    def counted_file(source: object, *more: Any, metadata: object = None, **options: Any) -> pq.ParquetFile:
        """pyarrow parses the footer if it is not given the metadata."""
        file = parquet_file(source, *more, metadata=metadata, **options)
        if metadata is None:
            parsed.append(file.metadata.num_row_groups)
        return file

    monkeypatch.setattr(type(FORMATS[name]), "read_footer", counted_read)
    monkeypatch.setattr(pq, "read_metadata", counted_metadata)
    monkeypatch.setattr(pq, "ParquetFile", counted_file)
    gc.collect()
    gc.disable()  # a footer in a reference cycle stays in memory and is counted
    try:
        before = footers_in_memory()
        with Setup(tmp_path / "data", window_bytes=20_000).reader() as reader:
            rows = sum(len(window) for window in reader.windows(epochs))
        assert rows == files * groups * 20 * epochs
        assert len(read) == len(set(read)) == files
        assert sorted(parsed) in ([], [0] * files + [1] * files * groups * epochs)
        assert footers_in_memory() == before
    finally:
        gc.enable()


def footers_in_memory() -> int:
    return sum(type(one).__name__ == "FileMetaData" for one in gc.get_objects())


def test_the_memory_of_kept_footers_is_bounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry._KnownFiles(0)
    monkeypatch.setattr(registry, "_KNOWN", known)
    paths = [write([table(5)], name, tmp_path / f"{number}") for number in range(5)]
    open_shard(paths[0]).close()
    one, known._most_bytes = known.nbytes, 7 * known.nbytes // 2
    for path in paths:
        with open_shard(path) as file:
            assert file.group_rows(["label"]) == (5,)
    assert list(known._files) == list(map(str, paths[2:]))
    assert known.nbytes == 3 * one
    open_shard(paths[2]).close()
    assert list(known._files) == [str(paths[number]) for number in (3, 4, 2)]
