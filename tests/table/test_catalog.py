"""The catalog describes the shards, never renumbers them, and detects every change of a shard."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.base.errors import DataChanged
from streampgs.table.catalog import Catalog, build_catalog, decoded_bytes, survey, with_cache
from streampgs.table.layout import Columns

SPARSE = pa.schema({"label": pa.int64(), "indices": pa.list_(pa.int64()), "values": pa.list_(pa.float64())})


def sparse(rows: int, seed: int = 0) -> pa.Table:
    """Row r has r % 4 entries."""
    generator = np.random.default_rng(seed)
    indices = [list(range(r % 4)) for r in range(rows)]
    values = [generator.normal(size=r % 4).tolist() for r in range(rows)]
    label = generator.integers(0, 2, rows)
    return pa.table({"label": label, "indices": indices, "values": values}, schema=SPARSE)


def write_arrow(table: pa.Table, path: Path, group_rows: int | None = None, compression: str | None = None) -> None:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=group_rows)


def write_parquet(table: pa.Table, path: Path, group_rows: int | None = None) -> None:
    pq.write_table(table, path, row_group_size=group_rows)


def catalog_of(*sources: Path, columns: Columns = Columns()) -> Catalog:
    return build_catalog([str(source) for source in sources], columns)


# Rows, groups, entries.


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_the_groups_of_an_arrow_file_are_its_record_batches(tmp_path, compression):
    write_arrow(sparse(10), tmp_path / "a.arrow", 4, compression)
    (shard,) = catalog_of(tmp_path).shards
    assert (shard.format, shard.rows, shard.entries) == ("arrow", 10, 13)
    assert shard.group_rows == (4, 4, 2)
    assert shard.group_entries == (6, 6, 1)
    assert shard.decoded == (compression is not None)


def test_groups_are_numbered_through_all_shards(tmp_path):
    write_arrow(sparse(10), tmp_path / "a.arrow", 4)
    write_parquet(sparse(5), tmp_path / "b.parquet", 5)
    write_arrow(sparse(6), tmp_path / "c.arrow", 2)
    catalog = catalog_of(tmp_path)
    assert (catalog.rows, catalog.groups) == (21, 7)
    assert catalog.group_rows.tolist() == [4, 4, 2, 5, 2, 2, 2]
    assert [catalog.shard_of(g) for g in range(7)] == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert catalog.per_group(s.format == "parquet" for s in catalog.shards).tolist() == [
        *[False] * 3,
        True,
        *[False] * 3,
    ]


# Shards that do not match.


# Tables and digests of catalogs.


@pytest.fixture
def three(tmp_path) -> tuple[Path, Catalog]:
    folder = tmp_path / "data"
    folder.mkdir()
    write_arrow(sparse(10, seed=1), folder / "a.arrow", 4)
    write_parquet(sparse(9, seed=2), folder / "b.parquet", 5)
    write_arrow(sparse(8, seed=3), folder / "c.arrow", 8, "zstd")
    return folder, catalog_of(folder)


def test_a_catalog_is_read_back_from_its_table(three):
    _, catalog = three
    marked = Catalog(with_cache(catalog.shards, 0, 1 << 20)[0])
    back = Catalog.from_table(marked.to_table())
    assert back.shards == marked.shards
    assert back.digest() == marked.digest()
    assert Catalog.from_table(marked.to_table().slice(0, 2)).digest() == marked.digest(2)


def test_the_digest_is_stable_and_depends_on_the_order(three):
    folder, catalog = three
    assert catalog_of(folder).digest() == catalog.digest()
    assert Catalog(catalog.shards[::-1]).digest() != catalog.digest()
    assert len({catalog.digest(n) for n in range(4)}) == 4
    assert catalog.first(2).digest() == catalog.digest(2)


def test_appended_shards_do_not_change_the_numbers_of_the_others(three):
    folder, catalog = three
    write_arrow(sparse(7, seed=4), folder / "0-first-by-name.arrow", 3)
    new = [one.shard for one in survey([folder / "0-first-by-name.arrow"], Columns(), {})]
    grown = catalog.appended(new)
    assert grown.shards[:3] == catalog.shards
    assert grown.group_rows[: catalog.groups].tolist() == catalog.group_rows.tolist()
    assert [grown.shard_of(g) for g in range(catalog.groups)] == [catalog.shard_of(g) for g in range(catalog.groups)]
    assert grown.shard_of(catalog.groups) == (3, 0)
    assert grown.digest(3) == catalog.digest()
    assert catalog.rows == 27  # the old catalog is unchanged


# Shards that changed.


def rewritten_with_labels_flipped(path: Path) -> None:
    """Shape, schema, size and footer are the same. Only the labels differ."""
    size = path.stat().st_size
    table = pa.ipc.open_file(path).read_all()
    flipped = table.set_column(0, "label", pa.array(1 - table["label"].to_numpy()))
    write_arrow(flipped, path, 4)
    assert path.stat().st_size == size


def bytes_edited_in_place(path: Path) -> None:
    """Edit the first batch without a rewrite of the file."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def later(path: Path) -> None:
    """Set the time stamp that a later edit would have: a test may be faster than the clock of the file system."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


CHANGES = {
    "labels flipped": (rewritten_with_labels_flipped, "was modified (same size and footer, different time stamp)"),
    "one bit of the data": (bytes_edited_in_place, "was modified"),
    "touched": (lambda path: None, "was modified"),
    "shortened": (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes; it had|has no footer"),
    "emptied": (lambda path: os.truncate(path, 0), "is empty"),
    "missing": (lambda path: path.unlink(), "is missing"),
    "replaced by other rows": (lambda path: write_arrow(sparse(11), path, 4), "bytes; it had"),
    "replaced by Parquet": (lambda path: write_parquet(sparse(10), path, 4), "bytes; it had"),
    "replaced by zeros of the same size": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "has no beginning yet"),
    "renamed column in the same space": (
        lambda path: path.write_bytes(path.read_bytes().replace(b"values", b"valves")), "was replaced: its footer has changed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_shard_is_detected_and_named(three, change):
    folder, catalog = three
    catalog.check_unchanged()
    path = folder / "a.arrow"
    edit, found = CHANGES[change]
    edit(path)
    if path.exists():
        later(path)
    with pytest.raises(DataChanged) as refused:
        catalog.check_unchanged()
    assert refused.value.found.startswith("1 of 3 shards have changed:")
    assert f"'{path}'" in refused.value.found
    assert "b.parquet" not in refused.value.found
    assert any(words in refused.value.found for words in found.split("|"))
    assert ("--accept-touched" in refused.value.remedy) == ("different time stamp" in refused.value.found)


# Which shards are cached.


def test_decoded_shards_are_cached_in_order_while_they_fit(three):
    _, catalog = three
    plain, parquet, compressed = catalog.shards
    both = decoded_bytes(parquet) + decoded_bytes(compressed)
    assert [s.cached for s in with_cache(catalog.shards, 0, both)[0]] == [False, True, True]
    assert with_cache(catalog.shards, 0, both)[1] == both
    assert [s.cached for s in with_cache(catalog.shards, 0, both - 1)[0]] == [False, True, False]
    assert [s.cached for s in with_cache(catalog.shards, 1, both)[0]] == [False, True, False]
    assert [s.cached for s in with_cache(catalog.shards, 0, 0)[0]] == [False, False, False]
    assert not with_cache([plain], 0, 1 << 40)[0][0].cached
