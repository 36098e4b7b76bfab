"""Reusable memory for one block at a time: new pages for each read would cost as much as the read."""

from __future__ import annotations

import numpy as np

from streampgs.formats.format import Bytes

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
