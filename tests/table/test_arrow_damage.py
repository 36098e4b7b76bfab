"""A damaged Arrow file gives an error of this library or rows, but never a crash, a hang or more memory than its size.

Arrow files have no checksums, so damage can also change numbers undetected. These tests require that reads stay inside
the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampgs.base.errors import DataError, Unreadable
from streampgs.formats.format import Damaged, OpenShard
from streampgs.formats.registry import open_shard
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns

LONG = "longer than the twelve bytes that a view holds itself"
TABLES = {
    "sparse": pa.table({
        "text é": pa.array(["a", None, "c", "d"], pa.string_view()),
        "label": pa.array([1, None, 0, 1], pa.int8()),
        "indices": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int32())),
        "values": pa.array([[0.5, 1.5], [], None, [2.5]], pa.large_list(pa.float32())),
    }),
    "views": pa.table({
        "a": pa.array([LONG, None, LONG], pa.string_view()),
        "label": pa.array([True, False, True]),
        "indices": pa.array([[1, 2], [3], []], pa.list_(pa.uint16())),
    }),
    "dense": pa.table({
        "label": pa.array([0.5, 1.5, None]),
        "features": pa.array([[1.0, 2.0], [None, 3.0], None], pa.list_(pa.float64(), 2)),
    }),
}  # fmt: skip
COMPRESSIONS = [None, "lz4", "zstd"]


def written(path: Path, table: pa.Table, compression: str | None = None) -> bytes:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=2)
    return path.read_bytes()


def read_all_there_is(path: Path) -> int:
    """Do all reads of an Arrow shard. Return the number of rows that it seems to have."""
    size = path.stat().st_size
    shard, rows = surveyed(path, Columns()).shard, 0
    with open_shard(path, shard.fingerprint) as file:
        for number, count in enumerate(shard.group_rows):
            if shard.decoded:
                try:
                    rows += sum(part.num_rows for part in file.decode(number, 2, shard.layout.columns))
                except (DataError, Unreadable):
                    continue
            else:
                read_group(file, number, shard.layout.columns, count, size)
                rows += count
                assert count <= 8 * size  # a row has at least one bit
                assert shard.group_entries[number] <= 8 * size
    return rows


def read_group(file: OpenShard, number: int, columns: Sequence[str], rows: int, size: int) -> None:
    slices = file.slices(number, columns)
    asked = 0

    def take(count: int) -> np.ndarray:
        nonlocal asked
        asked += count
        assert asked <= 4 * size
        return np.empty(count, np.uint8)

    try:
        for name in {"indices"} & {*columns}:
            slices.lengths(file.file, 0, rows, name, take)
        for column in slices.columns(file.file, 0, rows, take).values():
            column.validate()
            assert len(column) == rows
    except (Damaged, pa.ArrowInvalid):  # when a window is read, these become a DataError that names the shard
        pass


def damaged(data: bytes) -> Iterator[bytes]:
    """Damage each byte in turn: one of its bits, or all of them."""
    for place in range(len(data)):
        copy = bytearray(data)
        copy[place] ^= 0xFF if place % 3 == 0 else 1 << (place % 8)
        yield bytes(copy)


def refusals(path: Path, versions: Iterator[bytes]) -> int:
    """The number of versions that are refused. Each refusal is an error of this library that names the file."""
    refused = 0
    for data in versions:
        path.write_bytes(data)
        try:
            read_all_there_is(path)
        except (DataError, Unreadable) as error:
            assert str(path) in error.found
            refused += 1
    return refused


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_byte_of_an_uncompressed_file_gives_rows_or_an_error(tmp_path, table):
    path = tmp_path / "a.arrow"
    whole = written(path, TABLES[table])
    assert read_all_there_is(path) == len(TABLES[table])
    assert refusals(path, damaged(whole)) > 100


@given(data=st.data())
@settings(max_examples=100)
def test_damage_in_many_positions_gives_rows_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damage") / "a.arrow"
    whole = written(path, data.draw(st.sampled_from(list(TABLES.values()))), data.draw(st.sampled_from(COMPRESSIONS)))
    copy = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(copy) - 1))
        part = data.draw(st.binary(min_size=1, max_size=8))
        copy[start : start + len(part)] = part
    refusals(path, iter([bytes(copy)]))


@pytest.mark.parametrize("promise", [1 << 31, 1 << 40, (1 << 63) - 1])
def test_counts_in_the_metadata_that_are_too_large_are_refused(tmp_path, promise):
    """Each count of the file's metadata in turn becomes one that would need too much memory."""
    whole = written(tmp_path / "a.arrow", pa.table({"label": np.zeros(5, np.int8), "indices": [[1, 2]] * 5}))

    def versions() -> Iterator[bytes]:
        for count in (2, 4, 1):  # rows of a batch and entries of its lists, and of the last batch
            place = whole.find(count.to_bytes(8, "little"))
            while place >= 0:
                yield whole[:place] + promise.to_bytes(8, "little") + whole[place + 8 :]
                place = whole.find(count.to_bytes(8, "little"), place + 1)

    assert refusals(tmp_path / "a.arrow", versions()) > 5


def test_a_shard_that_is_truncated_while_it_is_read_is_named(tmp_path):
    path = tmp_path / "a.arrow"
    whole = written(path, TABLES["dense"])
    shard = surveyed(path, Columns()).shard
    with open_shard(path, shard.fingerprint) as file:
        path.write_bytes(whole[: len(whole) // 4])
        with pytest.raises(DataError, match=rf"shard '{path}' ends at byte {len(whole) // 4}"):
            for number, rows in enumerate(shard.group_rows):
                read_group(file, number, shard.layout.columns, rows, len(whole))
