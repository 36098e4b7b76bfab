"""The command line: parses options, calls the Python API, prints results."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in malloc.h
_LARGE_BLOCK, _KEPT_AT_THE_END = 1 << 20, 1 << 26


def main() -> None:
    sys.meta_path.insert(0, _WithoutPandas)
    # Arrow's default allocator returns memory between batches and requests it again: a third of the time of reading a
    # wide table.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _return_large_memory()
    try:
        from streampgs.cli.main import run_commands

        run_commands()
    except KeyboardInterrupt:  # while Python still imports modules
        sys.exit(130)


def _return_large_memory() -> None:
    """Let malloc return large blocks to the system when they are freed. Otherwise it keeps blocks of up to 32 MB for each
    thread: a gigabyte, while batches of long texts are decoded."""
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_AT_THE_END)


class _WithoutPandas:
    """pyarrow imports pandas, if it is installed, when it makes its first array: a quarter of the time of a start, and
    at least 30 MB. No command needs it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the command line does without pandas", name=name)
