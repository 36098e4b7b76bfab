"""The number of values in a Parquet footer is the one that pyarrow reads, and a damaged footer never ends the process."""

from __future__ import annotations

import random
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.torture_parts.forks import in_child
from streampgs.errors import DataError
from streampgs.formats.format import Damaged
from streampgs.formats.parquet_footer import values_of_column
from streampgs.formats.registry import open_shard
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns


def shard(path: Path, **options: object) -> Path:
    lists = [list(range(row % 5)) for row in range(100)]
    table = pa.table({"label": np.ones(100), "indices": lists, "values": [[1.0] * len(row) for row in lists]})
    pq.write_table(table, path, row_group_size=30, **options)
    return path


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"version": "1.0"}, {"compression": "zstd", "write_page_index": True}, {"write_statistics": False},
        {"store_schema": False}, {"use_dictionary": False, "data_page_version": "2.0"}, {"write_page_checksum": True},
        {"sorting_columns": [pq.SortingColumn(0)]},
    ],
    ids=str,
)  # fmt: skip
def test_counts_of_values_equal_those_of_pyarrow(tmp_path: Path, options: dict[str, object]) -> None:
    path = shard(tmp_path / "a.parquet", **options)
    metadata = pq.read_metadata(path)
    for leaf in range(metadata.num_columns):
        expected = [metadata.row_group(g).column(leaf).num_values for g in range(metadata.num_row_groups)]
        assert list(values_of_column(footer_of(path.read_bytes()), leaf)) == expected


def test_a_missing_column_is_reported_as_damage(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="without all of the columns"):
        values_of_column(footer_of(shard(tmp_path / "a.parquet").read_bytes()), 3)


def test_random_bytes_give_counts_or_an_error(tmp_path: Path) -> None:
    footer, chance = footer_of(shard(tmp_path / "a.parquet").read_bytes()), random.Random(1)
    noise = [chance.randbytes(chance.randrange(60)) for _ in range(300)] + [b"\x1c" * 5000, b"\x19\xfc" + b"\xff" * 9]
    flipped = [
        footer[:place] + bytes([value]) + footer[place + 1 :] for place in range(len(footer)) for value in (0, 255)
    ]
    for data in (*noise, *flipped, *(footer[:size] for size in range(len(footer)))):
        try:
            assert all(count >= 0 for count in values_of_column(data, 1))
        except Damaged as damage:
            assert str(damage)


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """The histograms of a chunk's levels are one too long. pyarrow's own accessor aborts on such a file."""
    whole, chance = shard(tmp_path / "a.parquet").read_bytes(), random.Random(3)
    start = len(whole) - 8 - len(footer_of(whole))

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        refused = 0
        for _ in range(2000):
            changed = bytearray(whole)
            changed[chance.randrange(start, len(whole) - 4)] = chance.randrange(256)
            (tmp_path / "b.parquet").write_bytes(changed)
            try:
                found = surveyed(tmp_path / "b.parquet", Columns()).shard
                with open_shard(tmp_path / "b.parquet", found.fingerprint) as file:
                    for group in range(len(found.group_rows)):
                        list(file.decode(group, 10, found.layout.columns))
            except DataError as error:
                assert "b.parquet" in error.found
                refused += 1
        return refused

    ended = in_child(work, seconds=120.0)
    assert ended.finished, ended.told
    assert ended.result > 500
