"""Look for files. glob.glob, os.walk and os.path.exists pass over what the system cannot tell; here that is an error,
because a folder that is left out would lose rows."""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable
from glob import has_magic
from typing import NoReturn, Protocol, TypeVar

from streampgs.base.faults import is_fault, repeated, unreadable

T = TypeVar("T")


class Tree(Protocol):
    """Folders that are searched: those of a disk, or of an object store."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if there is no such folder."""

    def exists(self, path: str) -> bool:
        """Whether something has this name, also a link to nothing."""

    def is_folder(self, path: str) -> bool: ...


class Disk(Tree):
    def names(self, folder: str) -> list[str]:
        return _unless_absent(os.listdir, folder or os.curdir) or []

    def exists(self, path: str) -> bool:
        return _unless_absent(os.lstat, path) is not None

    def is_folder(self, path: str) -> bool:
        return is_folder(path)


_DISK = Disk()


def matches(pattern: str, tree: Tree = _DISK) -> list[str]:
    """What glob.glob(pattern, recursive=True) finds, sorted. A folder that cannot be listed is an error."""
    return sorted({name for name in _found(pattern, tree) if name})


def _found(pattern: str, tree: Tree) -> list[str]:
    folder, name = os.path.split(pattern)
    if not has_magic(pattern):
        return [pattern] if (tree.exists(pattern) if name else tree.is_folder(folder)) else []
    folders = [there for there in _found(folder, tree) if tree.is_folder(there)] if has_magic(folder) else [folder]
    found: list[str] = []
    for there in folders:
        if name == "**":
            found += [os.path.join(there, ""), *_below(there, tree)] if tree.is_folder(there) else []
        elif has_magic(name):
            names = [each for each in tree.names(there) if name[0] == "." or each[0] != "."]
            found += [os.path.join(there, match) for match in fnmatch.filter(names, name)]
        elif tree.exists(os.path.join(there, name)) if name else tree.is_folder(there):
            found.append(os.path.join(there, name))
    return found


def _below(folder: str, tree: Tree) -> list[str]:
    found: list[str] = []
    for name in tree.names(folder):
        if name[0] != ".":
            path = os.path.join(folder, name)
            found += [path, *(_below(path, tree) if tree.is_folder(path) else ())]
    return found


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
