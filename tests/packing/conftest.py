"""Helpers for the tests of packing: read shards back, and make readers return small chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.packing import source
from streampgs.reading import array_slices


def shards_of(out: Path) -> list[Path]:
    return sorted(file for file in out.iterdir() if file.name.startswith("part-"))


def table_of(out: Path) -> pa.Table:
    """All rows of a folder, in the order of its shards."""
    tables = []
    for shard in shards_of(out):
        if shard.suffix == ".parquet":
            tables.append(pq.read_table(shard))
        else:
            with pa.OSFile(str(shard)) as file:
                tables.append(pa.ipc.open_file(file).read_all())
    return pa.concat_tables(tables)


def contents_of(out: Path) -> dict[str, bytes]:
    return {shard.name: shard.read_bytes() for shard in shards_of(out)}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """small_chunks(n): readers return chunks of about n bytes."""

    def choose(count: int) -> None:
        monkeypatch.setattr(source, "CHUNK_BYTES", count)
        monkeypatch.setattr(array_slices, "SLICE_BYTES", count)

    return choose
