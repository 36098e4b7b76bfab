"""Shards on this disk: positional reads that leave no trace in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.errors import DataError
from streampgs.files import open_regular, path_of
from streampgs.formats.format import Bytes, Fingerprint, ShardFile, ShardPath
from streampgs.stores.access import RemoteObject

_SETTLED_NS = 1_000_000_000
"""A file that was written less than this ago may be written again without a change of its time stamp."""


def unreadable(path: ShardPath | os.PathLike[str], error: OSError) -> DataError:
    return DataError(
        f"shard '{path}' cannot be read: {error.strerror or error}",
        "check that it exists and that you may read it",
    )


class LocalFile(ShardFile):
    """`path` may be a remote shard: then its local copy is read."""

    def __init__(self, path: ShardPath) -> None:
        self.path = path
        self.fd = open_regular(path)
        status = os.fstat(self.fd)
        self.size, self.modified_ns = status.st_size, status.st_mtime_ns
        self._stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def stamp(self) -> tuple[object, ...] | None:
        return self._stamp if time.time_ns() - self.modified_ns > _SETTLED_NS else None

    def fingerprint(self, footer_digest: str) -> Fingerprint:
        if isinstance(self.path, RemoteObject):
            return Fingerprint(self.size, 0, footer_digest, self.path.version)
        return Fingerprint(self.size, self.modified_ns, footer_digest)

    def read(self, size: int, offset: int) -> bytes:
        target = np.empty(size, np.uint8)
        self.read_into(target, offset)
        return target.tobytes()

    def read_into(self, target: Bytes, offset: int) -> None:
        view = target.data
        done = 0
        while done < len(view):
            got = os.preadv(self.fd, [view[done:]], offset + done)
            if got == 0:
                raise DataError(
                    f"shard '{self.path}' ends at byte {offset + done}, before the end of its rows or footer",
                    "it was shortened while in use; restore it",
                )
            done += got

    def announce(self, offset: int, size: int) -> None:
        """Bytes that are in memory already are not asked for: that would cost as much as copying them. Two bytes inside
        are probed without waiting. (The ends say nothing: their pages may have been read along with the neighbours.)
        """
        probe, places = bytearray(1), (offset + size // 3, offset + size * 2 // 3)
        try:
            if all(os.preadv(self.fd, [probe], place, os.RWF_NOWAIT) for place in places):
                return
        except OSError:
            pass  # not in memory, or a file system that cannot tell
        os.posix_fadvise(self.fd, offset, size, os.POSIX_FADV_WILLNEED)

    @contextmanager
    def native(self) -> Iterator[Any]:
        with pa.OSFile(path_of(self.fd)) as file:
            yield file

    def close(self) -> None:
        os.close(self.fd)
