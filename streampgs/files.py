"""Create files under temporary names, and open files that others may have replaced by links or pipes."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from streampgs.errors import OptionError


def new_file(path: Path) -> int:
    """The descriptor of a new empty file, to be renamed when it is complete. It is locked while it is open, so that
    `remove_leftovers` keeps it. A file that had its name is removed first: it might be a link to another place."""
    while True:
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a file system without locks has no leftovers to remove
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # removed as a leftover before it was locked


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove incomplete files whose writers were killed: those without a lock."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


def open_regular(path: Path | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file. A pipe could block forever, and a device may have no end."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return fd


def append_line(path: Path, line: str, durable: bool = False) -> None:
    """Append a line; a torn last line, whose writer was killed, is terminated first."""
    with open(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW), "a+b") as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write(b"\n" * torn + line.encode() + b"\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())


def refuse_unless_empty(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"'{folder}' is a file", "name a new or empty folder")
    if folder.exists() and any(folder.iterdir()):
        raise OptionError(f"the folder '{folder}' is not empty", "name a new or empty folder")


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
