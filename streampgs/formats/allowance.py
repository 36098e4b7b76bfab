"""How much memory a single row may take while it is decoded and encoded. The limit is known to the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from streampgs.options.commands import DEFAULT_MEMORY

_WITHOUT_BUDGET = DEFAULT_MEMORY
"""The allowance of commands without --memory."""
_LEAST, _SHARE, _SPARE = 48 << 20, 4, 1.25

_given: list[int] = []
_lock = threading.Lock()


@contextmanager
def decoding_within(size: int) -> Iterator[None]:
    """While it lasts, a row may take so much."""
    with _lock:
        _given.append(size)
    try:
        yield
    finally:
        with _lock:
            _given.remove(size)


def allowance() -> int:
    """The largest that is given: there may be several runs in a process."""
    with _lock:
        return max(_given, default=_WITHOUT_BUDGET)


def in_opening(memory: int) -> int:
    """The allowance while a table is opened: with more, windows would have none left."""
    return max(_LEAST, memory // 2)


def in_training(memory: int, decoder_bytes: int) -> int:
    """The allowance of a run. `decoder_bytes`: what the forecast includes for a decoder."""
    return max(_LEAST, memory // _SHARE, int(_SPARE * decoder_bytes))


def memory_for_row(needed: float) -> int:
    """The memory budget with which a run can encode a row that needs so much."""
    return int(_SHARE * needed) + 1
