"""Shards on this disk: positional reads that leave no trace in memory, and digests that recognise a moved file."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np

from streampgs.base import faults
from streampgs.base.errors import DataChanged, DataError, StreampgsError
from streampgs.base.files import open_regular
from streampgs.formats.format import Bytes, Fingerprint, ShardFile, ShardPath
from streampgs.stores.access import RemoteObject

_SETTLED_NS = 1_000_000_000
"""A file that was written less than this ago may be written again without a change of its time stamp."""


def unreadable(path: ShardPath | os.PathLike[str], error: OSError) -> StreampgsError:
    if faults.is_fault(error):
        return faults.unreadable(f"shard '{path}'", error)
    return DataError(
        f"shard '{path}' cannot be read: {error.strerror or error}",
        "check that it exists and that you may read it",
    )


class LocalFile(ShardFile):
    """`path` may be a remote shard: then its local copy is read.

    Faults that may pass, as of network file systems, cost a few seconds at most: then the file is opened again, and it is
    read on if its content is the same.
    """

    def __init__(self, path: ShardPath, what: str = "shard") -> None:
        self.path = path
        self._what = f"{what} '{path}'"
        self._is_same: Callable[[ShardFile], bool] = lambda file: True
        with faults.naming_faults(self._what):
            self.fd, status = faults.repeated(lambda: _opened(path))
        self.size, self.modified_ns = status.st_size, status.st_mtime_ns
        self._stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def stamp(self) -> tuple[object, ...] | None:
        return self._stamp if time.time_ns() - self.modified_ns > _SETTLED_NS else None

    def fingerprint(self, footer_digest: str) -> Fingerprint:
        if isinstance(self.path, RemoteObject):
            return Fingerprint(self.size, 0, footer_digest, self.path.version)
        return Fingerprint(self.size, self.modified_ns, footer_digest)

    def known_as(self, is_same: Callable[[ShardFile], bool]) -> None:
        self._is_same = is_same

    def read(self, size: int, offset: int) -> bytes:
        target = np.empty(size, np.uint8)
        self.read_into(target, offset)
        return target.tobytes()

    def read_into(self, target: Bytes, offset: int) -> None:
        view = target.data
        done = 0
        while done < len(view):
            got = self._read_some(view[done:], offset + done)
            if got == 0:
                raise DataError(
                    f"{self._what} ends at byte {offset + done}, before the end of its rows or footer",
                    "it was shortened while in use; restore it",
                )
            done += got

    def _read_some(self, view: memoryview, offset: int) -> int:
        with faults.naming_faults(self._what):
            return faults.repeated(lambda: os.preadv(self.fd, [view], offset), self._open_again)

    def _open_again(self) -> None:
        """A file that was removed and written again has the same name, but the old descriptor is stale for ever."""
        try:
            fresh = LocalFile(self.path, self._what.partition(" '")[0])
        except OSError as error:
            raise unreadable(self.path, error) from error
        with closing(fresh):
            if (fresh.size, fresh.modified_ns) != (self.size, self.modified_ns) or not self._is_same(fresh):
                raise DataChanged(f"{self._what} was replaced while in use", "restore it, or start a new run")
            os.dup2(fresh.fd, self.fd, inheritable=False)  # other threads may be reading

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

    def close(self) -> None:
        with suppress(OSError):  # it has been read all the same
            os.close(self.fd)


def _opened(path: ShardPath) -> tuple[int, os.stat_result]:
    fd = open_regular(path)
    try:
        with suppress(OSError):  # only a hint
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd, os.fstat(fd)
    except OSError:
        os.close(fd)
        raise


_PARTS, _PART_BYTES = 4, 4096
_COMPARED_BYTES = 1 << 20


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unreadable(path, error) from error


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Size, time of the last change and inode of a file; None if there is none."""
    with _named(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def content_digest(path: Path) -> str:
    """A digest of the whole file if it is small, else of a few parts of it. Together with the footer it distinguishes
    shards unless they differ in a few bytes only."""
    digest = hashlib.sha256()
    with _named(path), closing(LocalFile(path)) as file:
        whole = file.size <= _PARTS * _PART_BYTES
        places = [0] if whole else [(file.size - _PART_BYTES) * place // (_PARTS - 1) for place in range(_PARTS)]
        for place in places:
            digest.update(file.read(file.size if whole else _PART_BYTES, place))
    return digest.hexdigest()[:32]


def same_content(one: Path, other: Path) -> bool:
    """Whether two files hold the same bytes."""
    with _named(one), open(open_regular(one), "rb") as a, open(open_regular(other), "rb") as b:
        if os.fstat(a.fileno()).st_size != os.fstat(b.fileno()).st_size:
            return False
        while True:
            left, right = a.read(_COMPARED_BYTES), b.read(_COMPARED_BYTES)
            if left != right:
                return False
            if not left:
                return True
