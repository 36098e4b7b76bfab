"""Create files under temporary names, and open files that others may have replaced by links or pipes."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from streampgs.base.errors import OptionError, StreampgsError
from streampgs.base.faults import remedy, repeated


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
    """Remove incomplete files whose writers were killed: those without a lock. The next call removes those that cannot be
    removed now."""
    leftovers: list[Path] = []
    with suppress(OSError):
        leftovers += folder.glob(pattern)
    for path in leftovers:
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


_NOT_REGULAR = "it is not a regular file"


def open_regular(path: Path | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a regular file. A pipe could block forever, and a device may have no end."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise OSError(errno.ELOOP, "it is a link to another place", os.fspath(path)) from None
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, _NOT_REGULAR, os.fspath(path)) from None  # a socket
        raise
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        os.close(fd)
        raise
    if not regular:
        os.close(fd)
        raise OSError(errno.EINVAL, _NOT_REGULAR, os.fspath(path))
    return fd


OWN = os.O_RDONLY | os.O_NOFOLLOW
"""To read a file that this program wrote: a link in its place is from somebody else."""


class Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


@contextmanager
def reading(path: Path, flags: int = os.O_RDONLY) -> Iterator[BinaryIO]:
    """A regular file, open for reading."""
    with closed_after_reading(open(open_regular(path, flags), "rb")) as file:
        yield file


@contextmanager
def closed_after_reading(file: Opened) -> Iterator[Opened]:
    """A file that cannot be closed has been read all the same."""
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def read_at(fd: int, size: int, offset: int) -> bytes:
    """So many bytes from there; OSError if the file ends before."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise ends_early()
        data += more
    return data


def ends_early() -> OSError:
    """A file that ends before its size was shortened in this moment, or the system failed."""
    return OSError(errno.EIO, "it ends before its size")


@contextmanager
def native_path(path: Path | os.PathLike[str]) -> Iterator[str]:
    """A path for libraries that open a file themselves: it leads to the regular file that is open here, even if the name is
    not UTF-8, which Arrow refuses, or has been given to another file."""
    fd = open_regular(path)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        with suppress(OSError):  # it has been read all the same
            os.close(fd)


def append_line(path: Path, line: str, durable: bool = False) -> None:
    """Append a line; a torn last line, whose writer was killed, is terminated first."""
    with open(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW), "a+b") as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write(b"\n" * torn + line.encode() + b"\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())
            if size == 0:
                sync_folder(path.parent)


def lock_if_possible(folder: int) -> None:
    """Lock an open folder, unless its file system cannot; BlockingIOError: another process holds the lock."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # over a network folders may not be lockable


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Refuse a second process that writes into the folder at the same time."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            lock_if_possible(fd)
        except BlockingIOError as error:
            raise OptionError(
                f"another process writes into '{folder}'", "wait for it, stop it, or name another folder"
            ) from error
        yield
    finally:
        with suppress(OSError):  # the system releases the lock all the same
            os.close(fd)


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable."""
    fd = repeated(lambda: os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(folder)) from error
    finally:
        with suppress(OSError):
            os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, so that a power failure cannot take it back."""
    folder = folder.absolute()
    missing = list(takewhile(lambda one: not one.exists(), (folder, *folder.parents)))
    if missing:  # the process that created the one above may have been killed before it was synced
        _sync_if_possible(missing[-1].parent.parent)
    for one in reversed(missing or [folder]):
        one.mkdir(exist_ok=True)
        _sync_if_possible(one.parent)


def _sync_if_possible(folder: Path) -> None:
    try:
        sync_folder(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


_CANNOT_SYNC = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS}
"""Not every folder may be read, and not every file system can sync one."""
_TEMPORARY = ".streampgs-writing-"
_OF_THE_NAME = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}


@contextmanager
def writing(path: Path, replace: bool) -> Iterator[BinaryIO]:
    """A new file, which gets its name when it is complete and on disk. An existing file is kept unless `replace` is set.
    Files of that kind that killed processes left in the folder are removed."""
    temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
    with explaining(path):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not replace:
                raise _exists(path)
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise OptionError(f"'{path}' is not a file", "name another one")
        remove_leftovers(path.parent, f"{_TEMPORARY}*")
        file = open(new_file(temporary), "wb")  # noqa: SIM115 -- closed below
    try:
        yield _Explained(file, path)  # type: ignore[misc]
        with explaining(path):
            file.flush()
            os.fsync(file.fileno())
            _publish(temporary, path, replace)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # its bytes are on disk by now, or an earlier error matters more
            file.close()
        with suppress(OSError):  # the next command that writes into the folder removes it
            temporary.unlink(missing_ok=True)


def _publish(temporary: Path, path: Path, replace: bool) -> None:
    """Give a complete file its name. The temporary name may remain."""
    if not replace:
        try:
            os.link(temporary, path)
            return
        except OSError as error:  # a file system without links, if no other file has the name
            if isinstance(error, FileExistsError) or os.path.lexists(path):
                raise _exists(path) from None
    os.replace(temporary, path)


def _exists(path: Path) -> OptionError:
    return OptionError(f"'{path}' exists already", "name another file, or give --force to overwrite it")


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Errors of the name are errors of the option; others are faults of the machine."""
    try:
        yield
    except OSError as error:
        found = f"'{path}' cannot be written: {error.strerror or error}"
        if error.errno in _OF_THE_NAME:
            raise OptionError(found, "name a file in a folder that exists and may be written to") from error
        raise StreampgsError(found, f"{remedy(error)}, then run the command again") from error


class _Explained(io.RawIOBase):
    """A file whose errors of writing name it."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with explaining(self._path):
            return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()
