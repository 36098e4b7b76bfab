"""Copy one object to this disk: ranges fetched in parallel, and the final name only for the right content."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import suppress
from io import FileIO

from streampgs.base.errors import DataError
from streampgs.base.files import new_file
from streampgs.stores.access import RemoteFile, RemoteObject, changed, looked_up, opened
from streampgs.stores.patience import GivenUp

PART_BYTES = 4 << 20
_ATTEMPTS = 4
COPY_TIME_NS = 946_684_800 * 10**9
"""The time stamp of a copy that was not modified since its download."""
NO_MD5 = "STREAMPGS_ETAG_IS_NO_MD5"
_MD5 = re.compile("[0-9a-f]{32}")


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
