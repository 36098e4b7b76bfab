"""Faults of the system while a file is looked for, opened or read: no more descriptors, a network file system that fails,
missing permissions. They say nothing about the content of the file. So it is not called damaged, nothing older is used in
its place, and it is neither deleted nor written again.

An OSError without a number comes from a decoder of pyarrow: it is about the content.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from streampgs.base.errors import Unreadable

# The file is missing, or something else has its name: that does not pass.
_FACTS = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV,
})  # fmt: skip
# Faults that may be over in a moment, mostly of network file systems. Python itself repeats what a signal has interrupted.
_PASSING = frozenset({
    errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.EBUSY, errno.EREMOTEIO, errno.ENOLINK,
    errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN, errno.ECONNRESET,
    errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS,
})  # fmt: skip

_PERMISSIONS = "check the permissions of the file and of the folders above it"
_REMEDIES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs, because the machine has too many open files",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EROFS: "make the disk writable",
    errno.ENOMEM: "free some memory",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f)",
}
_OTHER_REMEDY = "check the disk or the network drive"

PAUSES = (0.05, 0.2, 0.8, 2.0)
"""Seconds to wait before each further try: a stop must not wait longer for a reader."""

T = TypeVar("T")


def is_fault(error: BaseException) -> bool:
    """Whether the system failed; else the error is about the file."""
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _FACTS


def has_no_space(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def remedy(error: OSError) -> str:
    """What to do, also if a file cannot be written."""
    return _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)


def unreadable(what: str, error: OSError) -> Unreadable:
    words = os.strerror(error.errno) if error.errno else str(error)
    return Unreadable(f"{what} cannot be read: {words}", f"{remedy(error)}, then try again")


@contextmanager
def naming_faults(what: object) -> Iterator[None]:
    """Turn faults of the system into errors that name the file. A missing file is still an OSError.

    `what`: the path of the file, or words that name it.
    """
    try:
        yield
    except OSError as error:
        if not is_fault(error):
            raise
        raise unreadable(what if isinstance(what, str) else f"'{what}'", error) from error


def repeated(ask: Callable[[], T], again: Callable[[], None] = lambda: None) -> T:
    """The result of `ask`, called again a few times if the system fails in a way that may pass; `again` is called before
    each further try."""
    for pause in PAUSES:
        try:
            return ask()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
        time.sleep(pause)
        again()
    return ask()


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file or folder of that name. Path.exists() also says no if the system cannot tell."""
    with naming_faults(Path(path)):
        try:
            os.stat(path)
        except OSError as error:
            if is_fault(error):
                raise
            return False
    return True


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted; none if there is no such folder. Path.glob() also finds none if the system fails."""
    with naming_faults(f"the folder '{folder}'"):
        try:
            return sorted(repeated(lambda: os.listdir(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []
