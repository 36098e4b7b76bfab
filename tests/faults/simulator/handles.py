"""Open files and listed folders of the simulated disk, as Python gives them to programs."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

from tests.faults.simulator.nodes import File, Folder, Node, status_of

if TYPE_CHECKING:
    from tests.faults.simulator.disk import Disk


class RawFile(io.RawIOBase):
    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk, self._descriptor = disk, descriptor

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        return self._disk.lseek(self._descriptor, position, whence)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        got = self._disk.read(self._descriptor, len(view))
        view[: len(got)] = got
        return len(got)

    def write(self, content: Any) -> int:
        return self._disk.write(self._descriptor, content)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self._disk.ftruncate(self._descriptor, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._disk.close(self._descriptor)


class _Entry:
    def __init__(self, folder: str, name: str, node: Node) -> None:
        self.name, self.path, self._node = name, f"{folder.rstrip('/')}/{name}", node

    def is_dir(self, **_: Any) -> bool:
        return isinstance(self._node, Folder)

    def is_file(self, **_: Any) -> bool:
        return isinstance(self._node, File)

    def is_symlink(self) -> bool:
        return False

    def stat(self, **_: Any) -> os.stat_result:
        return status_of(self._node)

    def __fspath__(self) -> str:
        return self.path


class Entries:
    def __init__(self, path: str, folder: Folder) -> None:
        self._entries = iter([_Entry(path, name, node) for name, node in folder.names.items()])

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass
