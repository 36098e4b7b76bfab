"""A window holds the rows of its plan in visiting order, as the plain twin reads them, for shards of every writer."""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataError
from streampgs.reading.loader import refuse_unreadable

from .plain_reader import (
    WRITERS,
    Setup,
    assert_windows_are_right,
    dense_table,
    plain_groups,
    rows_in,
    sparse_table,
    with_classes,
)

TABLES = {
    "sparse": sparse_table(240),
    "sparse, all ones": sparse_table(240, values=False),
    "dense, fixed": dense_table(240),
    "dense, variable": dense_table(240, fixed=False),
}


@pytest.fixture(params=["cached", "not cached"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "cache" if request.param == "cached" else None


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


# Every writer, every layout.


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("writer", WRITERS)
def test_windows_are_right_for_every_writer_and_layout(tmp_path, cache, writer, table):
    WRITERS[writer](TABLES[table], folder(tmp_path) / "a", 40)
    # duckdb does not write row groups of fewer than 2,048 rows.
    window_bytes = 20_000 if "duckdb" in writer else 8_000
    sizes = assert_windows_are_right(Setup(tmp_path / "data/a", cache, window_bytes=window_bytes))
    assert sum(sizes) == 2 * 240


INDICES = [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


@pytest.mark.parametrize("writer", ["arrow", "parquet"])
@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize("values", [pa.float16(), pa.float32(), pa.float64(), pa.int16()], ids=str)
def test_every_number_type_is_read(tmp_path, writer, indices, values):
    table = sparse_table(60)
    numbers = [
        [np.float16(round(4 * v) / 4) if values == pa.float16() else round(v) for v in row]
        for row in table["values"].to_pylist()
    ]
    table = table.set_column(table.schema.get_field_index("values"), "values", pa.array(numbers, pa.large_list(values)))
    lists = table["indices"].cast(pa.large_list(indices))
    table = table.set_column(table.schema.get_field_index("indices"), "indices", lists)
    WRITERS[writer](table, folder(tmp_path) / "a", 20)
    assert_windows_are_right(Setup(tmp_path / "data/a", tmp_path / "cache"))


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("window_bytes", [500, 3_000, 1_000_000])
def test_windows_of_any_size_hold_every_row_once_an_epoch(tmp_path, seed, window_bytes):
    WRITERS["arrow"](TABLES["sparse"], folder(tmp_path) / "a.arrow", 70)
    WRITERS["parquet"](TABLES["sparse"], tmp_path / "data/b.parquet", 70)
    setup = Setup(tmp_path / "data", tmp_path / "cache", window_bytes=window_bytes, block_bytes=400, seed=seed)
    with setup.reader() as reader:
        everything = [row for group in plain_groups(reader.catalog) for row in group]
        for epoch in range(2):
            seen = Counter(row for window in reader.windows(first_epoch=epoch) for row in rows_in(window))
            assert seen == Counter(with_classes(everything, weighted=False))


# Groups larger than a window.


@pytest.mark.parametrize("writer", ["parquet", "arrow, zstd", "arrow"])
def test_a_group_larger_than_a_window_is_read_in_parts(tmp_path, writer):
    WRITERS[writer](TABLES["sparse"], folder(tmp_path) / "a", 240)
    setup = Setup(tmp_path / "data/a", tmp_path / "cache", window_bytes=3_000, block_bytes=500)
    refuse_unreadable(setup.catalog(), setup.schedule(setup.catalog()))
    sizes = assert_windows_are_right(setup)
    assert sum(sizes) == 480
    assert len(sizes) >= 8


# Many files.


def test_there_may_be_more_shards_than_open_files(tmp_path):
    data = folder(tmp_path)
    for s in range(150):
        WRITERS["arrow"](sparse_table(3, seed=s), data / f"{s:03d}.arrow", 3)
        WRITERS["parquet"](sparse_table(3, seed=s), data / f"{s:03d}.parquet", 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 150, hard))
    try:
        sizes = assert_windows_are_right(Setup(data, tmp_path / "cache", window_bytes=1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sizes == [900, 900]


# The order of the files, for evaluation.


@pytest.mark.parametrize("block_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("table", TABLES)
def test_rows_can_be_read_in_the_order_of_the_files(tmp_path, table, block_bytes):
    data = folder(tmp_path)
    for number, (name, write) in enumerate(WRITERS.items()):
        write(
            TABLES[table].slice(30 * number, 30), data / f"{number}.{'parquet' if 'parquet' in name else 'arrow'}", 11
        )
    with Setup(data).reader() as reader:
        found = [row for window in reader.filler.in_file_order(block_bytes) for row in rows_in(window)]
        everything = [row for group in plain_groups(reader.catalog) for row in group]
        assert found == with_classes(everything, weighted=False)


# Stops, and files that change or are damaged.


# Parquet has page checksums if the writer adds them.


def last_bytes_of_pages(path: Path) -> list[tuple[int, str, int]]:
    """(row group, column, offset of the last byte of its last page)"""
    places = []
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            start = column.dictionary_page_offset or column.data_page_offset
            places.append((group, column.path_in_schema, start + column.total_compressed_size - 1))
    return places


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_damaged_parquet_page_is_named_with_its_row_group(tmp_path, cache, compression):
    path = folder(tmp_path) / "a.parquet"
    pq.write_table(
        TABLES["sparse"].drop_columns(["text", "weight"]),
        path,
        row_group_size=100,
        compression=compression,
        write_page_checksum=True,
        use_dictionary=False,
    )
    whole = path.read_bytes()
    setup = Setup(tmp_path / "data", cache, window_bytes=1 << 20)
    places = last_bytes_of_pages(path)
    assert len(places) == 3 * 3
    for group, _, place in places:
        data = bytearray(whole)
        data[place] ^= 1
        path.write_bytes(data)
        with setup.reader() as reader:
            with pytest.raises(DataError, match=rf"shard '{path}', row group {group}: damaged or shortened"):
                reader.first_window()
    path.write_bytes(whole)
    assert_windows_are_right(setup)


def test_damage_to_a_parquet_page_never_drops_rows(tmp_path):
    """Page headers have no checksum: if they are damaged, the decoder may end early without an error."""
    path = folder(tmp_path) / "a.parquet"
    pq.write_table(
        TABLES["sparse"].drop_columns(["text", "weight"]).slice(0, 12), path, row_group_size=6, write_page_checksum=True
    )
    whole = path.read_bytes()
    setup = Setup(tmp_path / "data", window_bytes=1 << 20)
    catalog = setup.catalog()
    for place in range(4, max(place for _, _, place in last_bytes_of_pages(path)) + 1):
        data = bytearray(whole)
        data[place] ^= 1 << (place % 8)
        path.write_bytes(data)
        with setup.reader(catalog) as reader:
            try:
                assert len(reader.first_window()) == 12
            except DataError as error:
                assert str(path) in error.found


# Memory.
