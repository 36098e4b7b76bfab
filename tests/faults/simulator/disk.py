"""A disk in memory that keeps apart what programs see and what survives a power failure.

The content of a file is durable after fsync of the file, a name after fsync of its folder. A power failure loses, keeps or
tears each write and each change of a name that is not durable, independently of the others. A kill loses nothing.
"""

from __future__ import annotations

import errno
import fcntl
import io
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from tests.faults.simulator.handles import Entries, RawFile
from tests.faults.simulator.nodes import File, Folder, Node, status_of

FIRST_DESCRIPTOR = 1 << 24


class Killed(BaseException):
    """The process ends here; nothing that it would still do has an effect."""


@dataclass(eq=False)
class _Open:
    node: Node
    flags: int
    position: int = 0


class Tree:
    """Files and folders, and what may happen to them. Every call that changes something is an operation; `before` is called
    with its number and name, and may kill the process or raise an OSError."""

    def __init__(self) -> None:
        self.root = Folder()
        self.operations = 0
        self.dead = False
        self.clock_ns = 10**18
        self.before: Callable[[int, str], None] = lambda number, what: None
        self.looks = 0
        self.before_look: Callable[[int, str, str], None] | None = None
        """Called with the number, the name and the path of each call that changes nothing; may raise an OSError."""
        self.torn_write: Callable[[int], int] | None = None
        """How many of so many bytes are written by a process that is killed at this write."""
        self.log: Callable[[str], None] | None = None
        self._open: dict[int, _Open] = {}
        self._locked: dict[int, int] = {}
        """The descriptor that holds the lock of a file, by the file's number."""
        self._descriptors = itertools.count(FIRST_DESCRIPTOR)

    # What a machine does.

    def kill(self) -> None:
        """The process is gone, with its descriptors and locks; the next one finds what it left."""
        self._open.clear()
        self._locked.clear()
        self.dead = False
        self.before = lambda number, what: None
        self.before_look = None
        self.torn_write = None

    def fail_power(self, random: Random) -> None:
        self.kill()
        self.root.lose_power(random)

    def has(self, path: Any) -> bool:
        return self._find(path) is not None

    def folder(self, path: str) -> Folder:
        node = self._node(path)
        assert isinstance(node, Folder)
        return node

    # Paths.

    @staticmethod
    def _parts(path: Any) -> tuple[str, ...]:
        return _split(os.fspath(path))

    def _find(self, path: Any) -> Node | None:
        node: Node = self.root
        for part in self._parts(path):
            found = node.names.get(part) if isinstance(node, Folder) else None
            if found is None:
                return None
            node = found
        return node

    def _node(self, path: Any) -> Node:
        self._alive()
        found = self._find(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def _place(self, path: Any) -> tuple[Folder, str]:
        *above, name = self._parts(path)
        folder = self._find("/".join(above))
        if not isinstance(folder, Folder):
            raise _error(errno.ENOENT, path)
        return folder, name

    def _alive(self) -> None:
        if self.dead:
            raise Killed

    def operation(self, what: str, path: Any = "") -> None:
        self._alive()
        self.operations += 1
        if self.log is not None:
            self.log(f"{self.operations} {what} {path}")
        try:
            self.before(self.operations, what)
        except Killed:
            self.dead = True
            raise

    def _look(self, what: str, path: Any) -> None:
        if self.before_look is not None:
            self.looks += 1
            self.before_look(self.looks, what, str(path))

    def now(self) -> int:
        self.clock_ns += 1
        return self.clock_ns


class Disk(Tree):
    """The calls of `os` that a run makes."""

    def open(self, path: Any, flags: int, mode: int = 0o777, **_: Any) -> int:
        self._alive()
        self._look("open", path)
        node = self._find(path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            folder, name = self._place(path)
            self.operation("create", path)
            node = File(modified_ns=self.now(), links=1)
            folder.change((name, node))
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        elif isinstance(node, Folder) and flags & (os.O_RDWR | os.O_WRONLY):
            raise _error(errno.EISDIR, path)
        elif flags & os.O_DIRECTORY and isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        elif flags & os.O_TRUNC and isinstance(node, File) and node.data:
            self.operation("cut", path)
            node.cut(0)
        descriptor = next(self._descriptors)
        self._open[descriptor] = _Open(node, flags)
        return descriptor

    def _opened(self, descriptor: int) -> _Open:
        self._alive()
        try:
            return self._open[descriptor]
        except KeyError:
            raise _error(errno.EBADF) from None

    def node_of(self, descriptor: int) -> Node:
        return self._opened(descriptor).node

    def _file(self, descriptor: int) -> File:
        node = self._opened(descriptor).node
        if isinstance(node, Folder):
            raise _error(errno.EISDIR)
        return node

    def close(self, descriptor: int) -> None:
        opened = self._open.pop(descriptor, None)
        if opened is None:
            if self.dead or descriptor >= FIRST_DESCRIPTOR:
                return
            raise _error(errno.EBADF)
        if self._locked.get(opened.node.number) == descriptor:
            del self._locked[opened.node.number]

    def fsync(self, descriptor: int) -> None:
        opened = self._opened(descriptor)
        self.operation("fsync folder" if isinstance(opened.node, Folder) else "fsync")
        opened.node.sync()

    def write(self, descriptor: int, content: Any, position: int | None = None) -> int:
        opened, file = self._opened(descriptor), self._file(descriptor)
        content = bytes(content)
        at = len(file.data) if opened.flags & os.O_APPEND else opened.position if position is None else position
        try:
            self.operation(f"write {len(content)} bytes")
        except Killed:
            if self.torn_write is not None:
                file.write(at, content[: self.torn_write(len(content))])
            raise
        file.write(at, content)
        file.modified_ns = self.now()
        if position is None:
            opened.position = at + len(content)
        return len(content)

    def pwrite(self, descriptor: int, content: Any, position: int) -> int:
        return self.write(descriptor, content, position)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        self._look("read", descriptor)
        return bytes(self._file(descriptor).data[position : position + size])

    def preadv(self, descriptor: int, buffers: Any, position: int) -> int:
        done = 0
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            got = self.pread(descriptor, len(view), position + done)
            view[: len(got)] = got
            done += len(got)
        return done

    def read(self, descriptor: int, size: int) -> bytes:
        opened = self._opened(descriptor)
        found = self.pread(descriptor, size, opened.position)
        opened.position += len(found)
        return found

    def lseek(self, descriptor: int, position: int, whence: int = os.SEEK_SET) -> int:
        opened = self._opened(descriptor)
        base = {os.SEEK_SET: 0, os.SEEK_CUR: opened.position, os.SEEK_END: len(self._file(descriptor).data)}[whence]
        opened.position = base + position
        return opened.position

    def ftruncate(self, descriptor: int, size: int) -> None:
        file = self._file(descriptor)
        self.operation("cut")
        file.cut(size)

    def posix_fadvise(self, *_: Any) -> None:
        pass

    def replace(self, source: Any, target: Any, **_: Any) -> None:
        node = self._node(source)
        (here, name), (there, new) = self._place(source), self._place(target)
        self.operation("rename", f"{source} {target}")
        before = there.names.get(new)
        if before is not None and before is not node:
            before.links -= 1
        if here is there:
            here.change((name, None), (new, node))
        else:
            there.change((new, node))
            here.change((name, None))

    rename = replace

    def link(self, source: Any, target: Any, **_: Any) -> None:
        node = self._node(source)
        folder, name = self._place(target)
        if name in folder.names:
            raise _error(errno.EEXIST, target)
        self.operation("link", target)
        node.links += 1
        folder.change((name, node))

    def unlink(self, path: Any, **_: Any) -> None:
        node = self._node(path)
        folder, name = self._place(path)
        self.operation("unlink", path)
        node.links -= 1
        folder.change((name, None))

    remove = unlink

    def mkdir(self, path: Any, mode: int = 0o777, **_: Any) -> None:
        self._alive()
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        folder, name = self._place(path)
        self.operation("mkdir", path)
        folder.change((name, Folder(modified_ns=self.now())))

    def stat(self, path: Any, **_: Any) -> os.stat_result:
        self._look("stat", path)
        return status_of(self._node(path))

    lstat = stat

    def fstat(self, descriptor: int) -> os.stat_result:
        return status_of(self._opened(descriptor).node)

    def listdir(self, path: Any) -> list[str]:
        self._look("list", path)
        node = self._node(path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return list(node.names)

    def scandir(self, path: Any) -> Entries:
        self._look("list", path)
        return Entries(os.fspath(path), self.folder(path))

    def access(self, path: Any, mode: int, **_: Any) -> bool:
        return self._find(path) is not None

    def statvfs(self, path: Any) -> Any:
        return os.statvfs_result((4096, 4096, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 1 << 40, 0, 255))

    def flock(self, descriptor: int, operation: int) -> None:
        number = self._opened(descriptor).node.number
        holder = self._locked.get(number)
        if operation & fcntl.LOCK_UN:
            self._locked.pop(number, None)
        elif holder is not None and holder != descriptor:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        else:
            self._locked[number] = descriptor

    def file(self, descriptor: int, mode: str, buffering: int = -1) -> Any:
        """As `open(descriptor, mode)`."""
        raw = RawFile(self, descriptor)
        if buffering == 0:
            return raw
        if "+" in mode:
            return io.BufferedRandom(raw)
        binary = io.BufferedReader(raw) if mode.startswith("r") else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, "utf-8", line_buffering=False)


@lru_cache(maxsize=1 << 12)
def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _error(number: int, path: Any = None) -> OSError:
    return OSError(number, os.strerror(number), *([] if path is None else [os.fspath(path)]))
