"""Open files and memory, which are used again from block to block and from window to window."""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import cast

import numpy as np

from streampgs.base.files import Closable, Opened
from streampgs.formats.format import Bytes

# A window may mix hundreds of files: opening each again for its lengths and its rows would cost more than reading it.
# At most this many stay open, and half of what the process may open.
_OPEN_FILES = 1024


class OpenFiles:
    """The files used last; for one thread."""

    def __init__(self) -> None:
        self._files: OrderedDict[Hashable, Closable] = OrderedDict()
        self._most = max(1, min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))

    def get(self, key: Hashable, open_file: Callable[[], Opened]) -> Opened:
        if key not in self._files:
            while len(self._files) >= self._most:
                self._files.popitem(last=False)[1].close()
            self._files[key] = open_file()
        self._files.move_to_end(key)
        return cast(Opened, self._files[key])

    def drop(self, key: Hashable) -> None:
        """Close a file if it is open: a deleted file takes space on the disk until it is closed."""
        if key in self._files:
            self._files.pop(key).close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


_ALIGNMENT = 64


class Scratch:
    def __init__(self, size: int = 1 << 20) -> None:
        self._arena = _aligned(size)
        self._used = 0

    def reset(self) -> None:
        """Memory taken so far may be overwritten."""
        self._used = 0

    def take(self, size: int) -> Bytes:
        if self._used + size > self._arena.size:
            # Arrays in the old arena stay valid: they keep it alive.
            self._arena = _aligned(2 * (self._used + size))
            self._used = 0
        taken = self._arena[self._used : self._used + size]
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return taken


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + size]
