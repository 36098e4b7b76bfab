"""Shards in an object store, read by ranges: footers and samples. The rows of an epoch are read from local copies."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext

import numpy as np

from streampgs.formats.format import Bytes, Fingerprint, ShardFile
from streampgs.stores.access import ASKERS, RemoteFile, RemoteObject, looked_up, opened
from streampgs.stores.patience import Absent

# Most footers are in a tail of this size, and so are small files: one request instead of several.
_TAIL_BYTES = 1 << 16
# Ranges as near as this are fetched together, up to so many bytes.
_NEAR_BYTES, _SPAN_BYTES = 1 << 16, 1 << 20


class RemoteShardFile(ShardFile):
    """One version of an object."""

    def __init__(self, remote: RemoteObject) -> None:
        self.path: RemoteObject = remote
        self.size = remote.size
        with ExitStack() as stack:
            self._source: RemoteFile = stack.enter_context(opened(remote))
            self._tail_start = max(0, self.size - _TAIL_BYTES)
            self._tail = self._fetch(self.size - self._tail_start, self._tail_start)
            self._closing = stack.pop_all()

    @property
    def stamp(self) -> tuple[object, ...]:
        return self.size, self.path.version

    def fingerprint(self, footer_digest: str) -> Fingerprint:
        return Fingerprint(self.size, 0, footer_digest, self.path.version)

    def _fetch(self, size: int, offset: int) -> bytes:
        return self._source.read(size, offset) if size else b""

    def read(self, size: int, offset: int) -> bytes:
        if offset >= self._tail_start:
            return self._tail[offset - self._tail_start : offset - self._tail_start + size]
        return self._fetch(size, offset)

    def read_all(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Neighbours in one request, and several requests at a time."""
        spans: list[tuple[int, int]] = []
        for size, offset in sorted(ranges, key=lambda one: one[1]):
            first, stop = spans[-1] if spans else (0, -_NEAR_BYTES - 1)
            if offset - stop <= _NEAR_BYTES and offset + size - first <= _SPAN_BYTES:
                spans[-1] = first, max(stop, offset + size)
            else:
                spans.append((offset, offset + size))
        with (
            ThreadPoolExecutor(min(ASKERS, len(spans)), "streampgs-ranges") if len(spans) > 1 else nullcontext() as pool
        ):
            fetched = (pool.map if pool else map)(lambda span: self.read(span[1] - span[0], span[0]), spans)
            found = list(fetched)
        starts = [first for first, _ in spans]

        def part(size: int, offset: int) -> bytes:
            number = int(np.searchsorted(starts, offset, side="right")) - 1
            return found[number][offset - starts[number] : offset - starts[number] + size]

        return [part(*one) for one in ranges]

    def read_into(self, target: Bytes, offset: int) -> None:
        target[:] = np.frombuffer(self.read(len(target), offset), np.uint8)

    def announce(self, offset: int, size: int) -> None:
        """Stores do not read ahead."""

    def close(self) -> None:
        self._closing.close()


def what_changed(remote: RemoteObject) -> str | None:
    """In words, if the store no longer has this version."""
    try:
        now = looked_up(remote.address, remote)
    except Absent:
        return f"'{remote.address}' is missing"
    if now.size != remote.size:
        return f"'{remote.address}' has {now.size:,} bytes; it had {remote.size:,}"
    if now.version != remote.version:
        return f"'{remote.address}' was replaced: its version is {now.version} and was {remote.version}"
    return None
