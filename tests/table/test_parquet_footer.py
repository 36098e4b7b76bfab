"""Parts of a Parquet footer say what pyarrow reads in the whole, and a damaged footer never ends the process."""

from __future__ import annotations

import base64
import random
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from streampgs.base.errors import DataError, RunError, Unreadable
from streampgs.formats import parquet_footer
from streampgs.formats.format import Damaged
from streampgs.formats.local import LocalFile
from streampgs.formats.parquet_footer import FooterMap, read_map, values_of_column
from streampgs.formats.registry import FORMATS, open_shard
from streampgs.table.catalog import surveyed
from streampgs.table.layout import Columns
from tests.faults.torture.forks import in_child


def shard(path: Path, groups: int = 4, **options: object) -> Path:
    rows = 30 * groups - 20
    lists = [list(range(row % 5)) for row in range(rows)]
    table = pa.table({"label": np.ones(rows), "indices": lists, "values": [[1.0] * len(row) for row in lists]})
    pq.write_table(table, path, row_group_size=30, **options)
    return path


@contextmanager
def map_of(path: Path) -> Iterator[tuple[LocalFile, FooterMap]]:
    with closing(LocalFile(path)) as file:
        yield file, read_map(file, FORMATS["parquet"].footer_place(file), lambda _: None)


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 1 << 20])
def test_a_footer_is_read_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(parquet_footer, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(parquet_footer, "_GROUPS_AT_ONCE", 2)
    path = shard(tmp_path / "a.parquet", 7)
    whole, metadata = path.read_bytes(), pq.read_metadata(path)
    with closing(LocalFile(path)) as file:
        place, seen = FORMATS["parquet"].footer_place(file), []
        groups = read_map(file, place, lambda part: seen.append(bytes(part)))
        assert b"".join(seen) == whole[place.start :]
        assert groups.rows.tolist() == [metadata.row_group(g).num_rows for g in range(7)] == [30] * 6 + [10]
        for leaf in range(3):
            expected = [metadata.row_group(g).column(leaf).num_values for g in range(7)]
            assert values_of_column(file, groups, leaf).tolist() == expected


@pytest.mark.parametrize(
    "options",
    [
        {}, {"version": "1.0"}, {"compression": "zstd", "write_page_index": True}, {"write_statistics": False},
        {"store_schema": False}, {"use_dictionary": False, "data_page_version": "2.0"}, {"write_page_checksum": True},
        {"sorting_columns": [pq.SortingColumn(0)]},
    ],
    ids=str,
)  # fmt: skip
def test_the_footer_of_a_group_describes_it_as_the_whole_footer_does(
    tmp_path: Path, options: dict[str, object]
) -> None:
    path = shard(tmp_path / "a.parquet", **options)
    whole = pq.read_metadata(path)
    with map_of(path) as (file, groups):
        for number in range(4):
            alone = pq.read_metadata(pa.BufferReader(groups.footer_of(file, number)))
            assert alone.num_row_groups == 1
            found, expected = alone.row_group(0).to_dict(), whole.row_group(number).to_dict()
            assert found == expected
            assert alone.schema.equals(whole.schema)
            assert alone.metadata == whole.metadata
        none = pq.ParquetFile(pa.BufferReader(groups.footer_of(file, None)))
        assert none.num_row_groups == 0
        assert none.schema_arrow.equals(pq.read_schema(path), check_metadata=True)


def test_a_footer_of_ten_thousand_row_groups_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """A few bytes of each group are kept."""
    many, few = 10_000, 10
    for rows in (many, few):
        columns = {f"x{column}": np.arange(rows, dtype=np.float32) for column in range(12)}
        pq.write_table(pa.table(columns), tmp_path / f"{rows}.parquet", row_group_size=1, use_dictionary=False)
    with map_of(tmp_path / f"{few}.parquet") as (file, groups):
        groups.footer_of(file, 0)  # the loops are compiled
    tracemalloc.start()
    try:
        with map_of(tmp_path / f"{many}.parquet") as (file, groups):
            place = FORMATS["parquet"].footer_place(file)
            assert tracemalloc.get_traced_memory()[1] < 6 << 20
            assert place.stop - place.start > 8 << 20
            assert groups.nbytes <= 16 * (many + 1)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            groups.footer_of(file, many - 1)
            assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_missing_column_is_reported_as_damage(tmp_path: Path) -> None:
    with map_of(shard(tmp_path / "a.parquet")) as (file, groups), pytest.raises(Damaged, match="all of the columns"):
        values_of_column(file, groups, 3)


def test_a_footer_with_a_part_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_footer, "_PIECE_BYTES", 10)
    monkeypatch.setattr(parquet_footer, "_LARGEST_PART", 100)
    with pytest.raises(Damaged, match="a part of it"), map_of(shard(tmp_path / "a.parquet")):
        pass


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_file_is_refused_as_such(tmp_path: Path, plaintext_footer: bool) -> None:
    table, path = pa.table({"label": [0, 1] * 50, "x": range(100)}), tmp_path / "a.parquet"
    encryption = pe.EncryptionConfiguration("key", plaintext_footer=plaintext_footer, column_keys={"key": ["x"]})
    connection = pe.KmsConnectionConfig()
    properties = pe.CryptoFactory(Keys).file_encryption_properties(connection, encryption)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match="encrypted") as refused:
        open_shard(path)
    assert "without encryption" in refused.value.remedy


class Keys(pe.KmsClient):
    def __init__(self, connection: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def test_a_damaged_footer_does_not_end_the_process(tmp_path: Path) -> None:
    """The histograms of a chunk's levels are one too long. pyarrow's own accessor aborts on such a file."""
    whole, chance = shard(tmp_path / "a.parquet").read_bytes(), random.Random(3)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")

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
            except (DataError, Unreadable) as error:
                assert "b.parquet" in error.found
                refused += 1
        return refused

    ended = in_child(work, seconds=120.0)
    assert ended.finished, ended.result
    assert ended.result > 500


def test_a_catalog_that_has_rows_of_parquet_read_in_place_is_refused(tmp_path: Path) -> None:
    with (
        open_shard(shard(tmp_path / "a.parquet")) as file,
        pytest.raises(RunError, match="must be decoded\n  → the catalog"),
    ):
        file.slices(0, ["label"])
