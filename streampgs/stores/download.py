"""One object whole onto this disk: ranges fetched side by side, and nothing under its name before it has proved right."""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import suppress
from io import FileIO

from streampgs.errors import DataError
from streampgs.files import new_file
from streampgs.stores.access import RemoteFile, RemoteObject, changed, looked_up, opened
from streampgs.stores.content import NO_MD5, Match, digest_of, matches
from streampgs.stores.patience import GivenUp

PART_BYTES = 4 << 20
_ATTEMPTS = 4
COPY_TIME_NS = 946_684_800 * 10**9
"""The time stamp of a copy that nobody wrote to since it came."""


def download(remote: RemoteObject, parts: Executor, stopping: threading.Event) -> None:
    """Put the object where its copy belongs."""
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
        with suppress(OSError):  # mostly because it has its final name by now
            temporary.unlink()


def _fetch_right(remote: RemoteObject, file: FileIO, parts: Executor, stopping: threading.Event) -> None:
    """Fetch until the content proves to be what was uploaded. Where nothing can prove it, the object must at least not
    have been replaced meanwhile, and for an ETag of parts of unknown size, have come twice with the same content."""
    came: set[bytes] = set()
    for _ in range(_ATTEMPTS):
        with opened(remote, stopping) as source:
            _fetch(source, file, parts, stopping)
        found = matches(file, remote.size, remote.version)
        if found is Match.YES:
            return
        now = looked_up(remote.address)
        if (now.size, now.version) != (remote.size, remote.version):
            raise changed(remote, now.size)
        if found is Match.UNKNOWN:
            if "-" not in remote.version or os.environ.get(NO_MD5):
                return
            digest = digest_of(file, remote.size)
            if digest in came:
                return
            came.add(digest)
    raise DataError(
        f"'{remote.address}' came {_ATTEMPTS} times with bytes that do not match its ETag {remote.version}",
        "something between here and the store damages it: mend that, or upload the object again; only if the bucket "
        f"is encrypted with keys of a key service (SSE-KMS), whose ETags are no checksums, set {NO_MD5}=1",
    )


def _fetch(source: RemoteFile, file: FileIO, parts: Executor, stopping: threading.Event) -> None:
    fd, size = file.fileno(), source.size
    os.ftruncate(fd, 0)
    os.ftruncate(fd, size)

    def part(first: int) -> None:
        if stopping.is_set() or failed.is_set():
            raise GivenUp
        data = memoryview(source.read(min(PART_BYTES, size - first), first))
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
        failed.set()  # the file is closed next: nothing may write to it any more
        for future in running:
            future.cancel()
        wait(running)
