"""Shards read where they lie, in an object store: their footers, and single ranges. Their rows are read from copies."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from streampgs.formats.shard_files import (
    ArrowGroups,
    Fingerprint,
    ReadAt,
    ShardFacts,
    arrow_facts,
    fingerprint,
    parquet_facts,
    read_whole_footer,
    schema_in,
)
from streampgs.stores.access import ASKERS, RemoteFile, RemoteObject, looked_up, opened
from streampgs.stores.patience import Absent
from streampgs.table.layout import Columns, TableSays
from streampgs.table.locate import ARROW, ShardPath

# Most footers lie in a tail of this size, and small files altogether: one request instead of several.
_TAIL_BYTES = 1 << 16
_SMALL_BATCH_BYTES, _SPAN_BYTES = 1 << 16, 1 << 20


def read_remote_facts(
    objects: Sequence[RemoteObject], columns: Columns, says: Mapping[ShardPath, TableSays]
) -> list[tuple[RemoteObject, ShardFacts]]:
    """The objects as they are now, and what their footers tell."""
    # Two pools: who waits for batches must not keep a place that those need.
    with ThreadPoolExecutor(ASKERS, "streampgs-footers") as pool, ThreadPoolExecutor(ASKERS) as batches:
        return list(pool.map(lambda remote: _facts(remote.address, columns, batches, says.get(remote)), objects))


def _facts(
    address: str, columns: Columns, batches: Executor, says: TableSays | None
) -> tuple[RemoteObject, ShardFacts]:
    remote = looked_up(address)
    with opened(remote) as source:
        read = _with_tail(source)
        kind, footer = read_whole_footer(read, remote.size, remote)
        found = fingerprint(remote, remote.size, 0, footer)
        if kind != ARROW:
            return remote, parquet_facts(remote, found, footer, columns, says)
        file = _RemoteGroups(remote, remote.size, footer, columns, read)
        if _are_small(file):
            file.read = _ahead(file, read)
            return remote, arrow_facts(found, file, [file.metadata(group) for group in range(file.groups)])
        return remote, arrow_facts(found, file, list(batches.map(file.metadata, range(file.groups))))


def _with_tail(source: RemoteFile) -> ReadAt:
    """Reads of the object, its tail fetched once."""
    first = max(0, source.size - _TAIL_BYTES)
    tail = source.read(source.size - first, first) if source.size else b""

    def read(size: int, offset: int) -> bytes:
        return tail[offset - first : offset - first + size] if offset >= first else source.read(size, offset)

    return read


def _are_small(file: ArrowGroups) -> bool:
    return file.size <= _SMALL_BATCH_BYTES * file.groups


def _ahead(file: ArrowGroups, read: ReadAt) -> ReadAt:
    """Reads that fetch many small record batches at a time, for the sake of their metadata."""
    held, start = b"", 0

    def read_ahead(size: int, offset: int) -> bytes:
        nonlocal held, start
        if not start <= offset <= offset + size <= start + len(held):
            start = offset
            held = read(min(max(size, _SPAN_BYTES), file.size - offset), offset)
        return held[offset - start : offset - start + size]

    return read_ahead


@contextmanager
def opened_groups(remote: RemoteObject, expected: Fingerprint, columns: Columns) -> Iterator[ArrowGroups]:
    """An Arrow file's footer and single ranges, where it lies."""
    with opened(remote) as source:
        read = _with_tail(source)
        _, footer = read_whole_footer(read, expected.size, remote)
        yield _RemoteGroups(remote, expected.size, footer, columns, read)


class _RemoteGroups(ArrowGroups):
    @contextmanager
    def _native(self) -> Iterator[Any]:
        assert isinstance(self.path, RemoteObject)
        with remote_source(self.path) as file, pa.PythonFile(file, mode="r") as native:
            yield native


def what_changed(remote: RemoteObject) -> str | None:
    """In words, if the store does not have this version any more."""
    try:
        now = looked_up(remote.address)
    except Absent:
        return f"'{remote.address}' is missing"
    if now.size != remote.size:
        return f"'{remote.address}' has {now.size:,} bytes; it had {remote.size:,}"
    if now.version != remote.version:
        return f"'{remote.address}' was replaced: its version is {now.version} and was {remote.version}"
    return None


class _Seekable(io.RawIOBase):
    """An object for decoders that want a file; each read is asked again by itself where the store fails."""

    def __init__(self, source: RemoteFile) -> None:
        self._source = source
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._source.size}[whence]
        return self._place

    def readinto(self, target: Any) -> int:
        data = self._source.read(min(len(target), self._source.size - self._place), self._place)
        target[: len(data)] = data
        self._place += len(data)
        return len(data)


def remote_schema(remote: RemoteObject) -> pa.Schema:
    """The columns of a shard, which need not have been catalogued."""
    remote = looked_up(remote.address)
    with opened(remote) as source:
        return schema_in(remote, *read_whole_footer(_with_tail(source), remote.size, remote))


@contextmanager
def remote_source(remote: RemoteObject) -> Iterator[Any]:
    """An object as a file, for decoders that want one."""
    with opened(remote) as source, _Seekable(source) as file:
        yield file
