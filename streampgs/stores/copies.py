"""Copies of remote shards on this disk: downloaded before they are needed, within a limit.

One thread does all bookkeeping; the others download. The name of a copy depends on address, size and version, so that no
index is needed and another version has another name. An object is fetched in ranges at the same time, and its copy gets the
final name only for the right content.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from io import FileIO
from pathlib import Path

from streampgs.base.errors import DataError, RunError, counted
from streampgs.base.files import new_file, remove_leftovers
from streampgs.stores.access import RemoteFile, RemoteObject, changed, looked_up, opened
from streampgs.stores.patience import GivenUp

PART_BYTES = 4 << 20
_ATTEMPTS = 4
COPY_TIME_NS = 946_684_800 * 10**9
"""The time stamp of a copy that was not modified since its download."""
NO_MD5 = "STREAMPGS_ETAG_IS_NO_MD5"
_MD5 = re.compile("[0-9a-f]{32}")

_OBJECTS, _PARTS = 8, 8
_POLL_SECONDS = 0.1
DOWNLOAD_BYTES = _PARTS * PART_BYTES
"""The most that downloads have in memory at a time."""
_MORE_SPACE = "free some space there, then resume; a new run can have its cache on another disk with `--cache DIR`"


def _unwritable(what: str, error: OSError) -> RunError:
    return RunError(f"{what} cannot be written: {error.strerror or error}", _MORE_SPACE)


class Copies:
    def __init__(self, folder: Path, limit_bytes: int | None, expected: Iterable[RemoteObject] = ()) -> None:
        """Copies below `folder` of at most `limit_bytes`; None: only those that are needed at present. Copies of the
        `expected` objects may exist already."""
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.limited_by_disk = False
        self.evicted: Callable[[RemoteObject], None] = lambda remote: None
        """Called before a copy is deleted."""
        self._wanted: OrderedDict[Hashable, set[RemoteObject]] = OrderedDict()
        self._coming: dict[RemoteObject, Future[None]] = {}
        self._stopping = threading.Event()
        self._objects = ThreadPoolExecutor(_OBJECTS, "streampgs-copies")
        self._parts = ThreadPoolExecutor(_PARTS, "streampgs-download")
        found = [(used, remote) for remote in expected if (used := self._used_at(remote)) is not None]
        self._here = OrderedDict.fromkeys(remote for _, remote in sorted(found, key=lambda pair: pair[0]))
        """Least recently used first."""
        self._taken = sum(remote.size for remote in self._here)
        """Bytes of all copies, including those that are being downloaded."""
        remove_leftovers(folder, f".{'[0-9a-f]' * 32}.shard-*-*")

    @staticmethod
    def on_half_the_disk(folder: Path, expected: Iterable[RemoteObject]) -> Copies:
        """The limit is half of the space that is free or holds copies already."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(f"the folder '{folder}' for copies of remote shards", error) from error
        copies = Copies(folder, None, expected)
        copies.limit_bytes = (shutil.disk_usage(folder).free + copies._taken) // 2
        copies.limited_by_disk = True
        return copies

    def begin(self, key: Hashable, objects: Sequence[RemoteObject]) -> None:
        """`key` needs the objects now, and earlier keys need theirs no longer. Starts the downloads."""
        while self._wanted and next(iter(self._wanted)) != key:
            self._wanted.popitem(last=False)
        self._wanted.setdefault(key, set()).update(objects)
        if self.limit_bytes is None:
            wanted = set().union(*self._wanted.values())
            for remote in [remote for remote in self._here if remote not in wanted]:
                self._evict(remote)
        self.also(objects)

    def also(self, objects: Sequence[RemoteObject]) -> None:
        """Further objects that are needed now."""
        wanted = next(iter(self._wanted.values()), set())
        wanted.update(objects)
        if not self._bring(objects, wanted, may_wait=True):
            raise self._too_large(wanted)

    def _too_large(self, wanted: set[RemoteObject]) -> RunError:
        needed = f"{counted(len(wanted), 'remote shard')} of {sum(r.size for r in wanted) / 1e6:,.1f} MB"
        room = f"the cache in '{self.folder}' has {(self.limit_bytes or 0) / 1e6:,.1f} MB"
        remedy = "give a larger --cache-limit to a new run, or write smaller shards"
        if self.limited_by_disk:
            room, remedy = f"{room}, half of the disk's free space", _MORE_SPACE
        return RunError(f"a window needs {needed}, and {room}", remedy)

    def announce(self, key: Hashable, objects: Sequence[RemoteObject]) -> None:
        """`key` will need the objects next: download them as far as the limit allows."""
        while len(self._wanted) > 1 and key not in self._wanted:
            self._wanted.popitem(last=False)
        self._wanted.setdefault(key, set()).update(objects)
        self._bring(objects, set().union(*self._wanted.values()), may_wait=False)

    def wait_for(self, objects: Sequence[RemoteObject], check_stop: Callable[[], None]) -> None:
        """Wait for the copies of all; `check_stop` is called in between."""
        for remote in objects:
            while (future := self._coming.get(remote)) is not None:
                check_stop()
                wait([future], _POLL_SECONDS)
                if future.done():
                    self._settle_one(remote, future)

    def is_here(self, remote: RemoteObject) -> bool:
        self._settle()
        return remote in self._here

    def close(self, waiting: bool = True) -> None:
        """Start no more downloads. Requests under way end with their answer or their timeout."""
        self._stopping.set()
        self._objects.shutdown(waiting, cancel_futures=True)
        self._parts.shutdown(waiting)  # not cancelled: a download would wait for its parts forever; they give up

    def _bring(self, objects: Sequence[RemoteObject], protected: set[RemoteObject], may_wait: bool) -> bool:
        """Start the downloads that are missing, until there is no room for one."""
        self._settle()
        for remote in objects:
            if self._touch(remote) or remote in self._coming:
                continue
            if not self._make_room(remote.size, protected, may_wait):
                return False
            self._taken += remote.size
            self._coming[remote] = self._objects.submit(download, remote, self._parts, self._stopping)
        return True

    def _settle(self) -> None:
        """Record the downloads that have succeeded. A failure is raised by `wait_for`."""
        for remote, future in list(self._coming.items()):
            if future.done() and future.exception() is None:
                self._settle_one(remote, future)

    def _settle_one(self, remote: RemoteObject, future: Future[None]) -> None:
        del self._coming[remote]  # a failure is raised once; the next request tries again
        self._taken -= remote.size
        try:
            future.result()
        except OSError as error:
            raise _unwritable(f"the copy of '{remote.address}' in '{self.folder}'", error) from error
        self._here[remote] = None
        self._taken += remote.size

    def _make_room(self, size: int, protected: set[RemoteObject], may_wait: bool) -> bool:
        while self.limit_bytes is not None and self._taken + size > self.limit_bytes:
            oldest = next((remote for remote in self._here if remote not in protected), None)
            if oldest is not None:
                self._evict(oldest)
                continue
            unneeded = [future for remote, future in self._coming.items() if remote not in protected]
            if not (may_wait and unneeded):
                return False
            wait(unneeded, return_when=FIRST_COMPLETED)
            for remote in [r for r, future in self._coming.items() if future in unneeded and future.done()]:
                with suppress(Exception):  # the next request tries again
                    self._settle_one(remote, self._coming[remote])
        return True

    def _evict(self, remote: RemoteObject) -> None:
        self._forget(remote)
        self.evicted(remote)
        remote.copy.unlink(missing_ok=True)

    def _forget(self, remote: RemoteObject) -> None:
        del self._here[remote]
        self._taken -= remote.size

    def _touch(self, remote: RemoteObject) -> bool:
        """Whether there is an unmodified copy; if so, it becomes the most recently used."""
        if remote not in self._here:
            return False
        if self._used_at(remote) is None:  # deleted or modified
            self._forget(remote)
            return False
        with suppress(OSError):
            os.utime(remote.copy, ns=(time.time_ns(), COPY_TIME_NS))
        self._here.move_to_end(remote)
        return True

    def _used_at(self, remote: RemoteObject) -> int | None:
        """When the copy was used last; None without an unmodified copy."""
        try:
            status = remote.copy.stat()
        except FileNotFoundError:
            return None
        untouched = status.st_size == remote.size and status.st_mtime_ns == COPY_TIME_NS
        return status.st_atime_ns if untouched else None


def download(remote: RemoteObject, parts: Executor, stopping: threading.Event) -> None:
    """Write the copy of the object."""
    copy = remote.copy
    temporary = copy.with_name(f".{copy.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with FileIO(new_file(temporary), "r+") as file:
            _fetch_right(remote, file, parts, stopping)
            os.fsync(file.fileno())
            os.utime(file.fileno(), ns=(COPY_TIME_NS, COPY_TIME_NS))
            temporary.rename(copy)
    finally:
        with suppress(OSError):  # after success it has another name
            temporary.unlink()


def _fetch_right(remote: RemoteObject, file: FileIO, parts: Executor, stopping: threading.Event) -> None:
    """Fetch until the content has the MD5 that an ETag is, unless the object was uploaded in parts or encrypted by a key
    service. In any case the object must still be the same version afterwards."""
    is_md5 = _MD5.fullmatch(remote.version) is not None and not os.environ.get(NO_MD5)
    for _ in range(_ATTEMPTS):
        with opened(remote, stopping) as source:
            _fetch(source, file, parts, stopping)
        file.seek(0)
        if is_md5 and _md5_of(file) == remote.version:
            return
        now = looked_up(remote.address, remote)
        if (now.size, now.version) != (remote.size, remote.version):
            raise changed(remote, now.size)
        if not is_md5:
            return
    raise DataError(
        f"'{remote.address}' was downloaded {_ATTEMPTS} times with bytes that do not match its ETag {remote.version}",
        "something between here and the store damages it: fix that, or upload the object again; only if the bucket "
        f"is encrypted with keys of a key service (SSE-KMS), whose ETags are not checksums, set {NO_MD5}=1",
    )


def _md5_of(file: FileIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while data := file.read(1 << 20):
        digest.update(data)
    return digest.hexdigest()


def _fetch(source: RemoteFile, file: FileIO, parts: Executor, stopping: threading.Event) -> None:
    fd, size = file.fileno(), source.size
    os.ftruncate(fd, 0)
    os.ftruncate(fd, size)

    def part(first: int) -> None:
        if stopping.is_set() or failed.is_set():
            raise GivenUp
        data = memoryview(source.read_part(min(PART_BYTES, size - first), first))
        while data:
            written = os.pwrite(fd, data, first)
            data, first = data[written:], first + written

    failed = threading.Event()
    running: list[Future[None]] = []
    try:
        running += (parts.submit(part, first) for first in range(0, size, PART_BYTES))
        done, _ = wait(running, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    finally:
        failed.set()  # the file is closed next: no part may be written to it any more
        for future in running:
            future.cancel()
        wait(running)
