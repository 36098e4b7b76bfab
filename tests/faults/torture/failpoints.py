"""Kill a process at the n-th call of a function that accesses the disk.

A child process wraps Python's functions that access the disk. Each call passes a named point ("before sync checkpoint"), and
the process dies at one passage of one point. streampgs itself contains no code for this.
"""

from __future__ import annotations

import builtins
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KINDS = ("checkpoint", "catalog", "run", "encoding", "metrics", "history")


@dataclass(frozen=True)
class Strike:
    """A kill at the n-th passage of the named point."""

    point: str
    number: int


class Failpoints:
    """Watches files below the folder `inside` only."""

    def __init__(self, inside: Path, strike: Strike | None = None) -> None:
        self.inside = os.fspath(inside.resolve())
        self.strike = strike
        self.passages: Counter[str] = Counter()
        """Passages by point."""

    def passed(self, action: str, path: str) -> None:
        """Count the passage, and die if it is the one to strike at."""
        if path.startswith(self.inside):
            point = f"{action} {_kind(path)}"
            self.passages[point] += 1
            if self.strike == Strike(point, self.passages[point]):
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "unlink", "pwrite")}
        before_open = builtins.open
        os.fsync = self._around_fd("sync", os.fsync)
        os.replace = self._around_rename(os.replace)
        os.rename = self._around_rename(os.rename)
        os.unlink = self._around_unlink(os.unlink)
        os.pwrite = self._writing(os.pwrite)
        builtins.open = self._around_open(builtins.open)
        try:
            yield
        finally:
            builtins.open = before_open
            for name, function in before.items():
                setattr(os, name, function)

    def _around_fd(self, action: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(fd: int) -> Any:
            path = os.readlink(f"/proc/self/fd/{fd}")
            self.passed(f"before {action}", path)
            result = call(fd)
            self.passed(f"after {action}", path)
            return result

        return wrapped

    def _around_rename(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(old: Any, new: Any, **more: Any) -> Any:
            self.passed("before rename", os.fspath(new))
            result = call(old, new, **more)
            self.passed("after rename", os.fspath(new))
            return result

        return wrapped

    def _around_unlink(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, **more: Any) -> Any:
            self.passed("before unlink", os.fspath(path))
            return call(path, **more)

        return wrapped

    def _writing(self, call: Callable[..., int]) -> Callable[..., int]:
        """Parts of a copy of a remote shard: the caller writes the rest of a short write."""

        def wrapped(fd: int, data: Any, place: int) -> int:
            path = os.readlink(f"/proc/self/fd/{fd}")
            self.passed("before write", path)
            written = call(fd, memoryview(data)[: max(1, len(data) // 2)], place)
            self.passed("amid write", path)
            return written

        return wrapped

    def _around_open(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else os.fspath(file)
            if isinstance(path, bytes) or not path.startswith(self.inside):
                return call(file, mode, *rest, **more)
            if not set(mode) & set("wax"):
                self.passed("before reading", path)
                return call(file, mode, *rest, **more)
            self.passed("before open", path)
            if "b" not in mode:
                opened = call(file, mode, *rest, **more)
                self.passed("after open", path)
                return opened
            opened = call(file, mode, 0)
            self.passed("after open", path)
            return _Watched(opened, path, self)

        return wrapped


class _Watched:
    """A file without a write buffer, so that a kill leaves the bytes written before it."""

    def __init__(self, file: Any, path: str, points: Failpoints) -> None:
        self._file, self._path, self._points = file, path, points

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        middle = len(view) // 2
        self._points.passed("before write", self._path)
        self._put(view[:middle])
        self._points.passed("amid write", self._path)
        self._put(view[middle:])
        return len(view)

    def _put(self, view: memoryview) -> None:
        while view:
            view = view[self._file.write(view) :]

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _kind(path: str) -> str:
    """The role of the file in a run."""
    name = os.path.basename(path).lstrip(".")
    if name == "lock" or "." not in name:
        return name if name == "lock" else "folder"
    if re.match(r"[0-9a-f]{32}-\d", name):
        return "cache"
    if re.match(r"[0-9a-f]{32}\.shard", name):
        return "copy"
    known = next((kind for kind in _KINDS if name.startswith(kind)), None)
    return known or ("shard" if name.endswith((".arrow", ".parquet")) else "other")
