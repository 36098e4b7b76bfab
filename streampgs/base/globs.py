"""Look for files. glob.glob, os.walk and os.path.exists pass over what the system cannot tell; here that is an error,
because a folder that is left out would lose rows."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable
from glob import has_magic
from typing import NoReturn, TypeVar

from streampgs.base.faults import is_fault, repeated, unreadable

T = TypeVar("T")


def matches(pattern: str) -> list[str]:
    """What glob.glob(pattern, recursive=True) finds, sorted. A folder that cannot be listed is an error."""
    return sorted({name for name in _found(pattern) if name})


def _found(pattern: str) -> list[str]:
    folder, name = os.path.split(pattern)
    if not has_magic(pattern):
        return [pattern] if (_is_there(pattern) if name else is_folder(folder)) else []
    folders = [there for there in _found(folder) if is_folder(there)] if has_magic(folder) else [folder]
    found: list[str] = []
    for there in folders:
        if name == "**":
            found += [os.path.join(there, ""), *_below(there)] if is_folder(there) else []
        elif has_magic(name):
            found += [os.path.join(there, match) for match in fnmatch.filter(_names(there, name[0] == "."), name)]
        elif _is_there(os.path.join(there, name)) if name else is_folder(there):
            found.append(os.path.join(there, name))
    return found


def _below(folder: str) -> list[str]:
    found: list[str] = []
    for name in _names(folder, hidden=False):
        path = os.path.join(folder, name)
        found += [path, *(_below(path) if is_folder(path) else ())]
    return found


def _names(folder: str, hidden: bool) -> list[str]:
    names = _unless_absent(os.listdir, folder or os.curdir) or []
    return [name for name in names if hidden or not name.startswith(".")]


def _is_there(path: str) -> bool:
    """Whether something has this name, also a link to nothing."""
    return _unless_absent(os.lstat, path) is not None


def is_folder(path: str | os.PathLike[str]) -> bool:
    """os.path.isdir() also says no if the system cannot tell."""
    status = _unless_absent(os.stat, path or os.curdir)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _unless_absent(look: Callable[[str | os.PathLike[str]], T], path: str | os.PathLike[str]) -> T | None:
    try:
        return repeated(lambda: look(path))
    except OSError as error:
        if is_fault(error):
            raise unreadable(f"'{path}'", error) from error
        return None


def refuse_unreadable(error: OSError) -> NoReturn:
    """For os.walk: a folder that is left out would train a model on a part of the data."""
    raise unreadable(f"folder '{error.filename}'", error) from error
