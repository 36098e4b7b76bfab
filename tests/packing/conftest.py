"""What the tests of packing share: to read shards back, and to cut text into small pieces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.packing import byte_streams, csv_text


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
    """small_chunks(n): text is read in chunks of n bytes, CSV in blocks of as many."""

    def choose(count: int) -> None:
        monkeypatch.setattr(byte_streams, "_CHUNK_BYTES", count)
        monkeypatch.setattr(csv_text, "_BLOCK_BYTES", count)

    return choose
