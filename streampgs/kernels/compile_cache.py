"""Compiled code on disk, safe for processes that compile at the same time and for edited sources.

Numba numbers the files of compiled code and keeps an index from keys to numbers. If two processes compile at the same
time, they can give one number to two functions, and later runs silently execute the wrong loop. The same can happen if
a process is killed between writing the index and the code. Numba also does not notice an edit in a file other than the
loop's own. Here, the name of a file is a digest of everything that its content depends on, so no index is needed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import IndexDataCacheFile


def _digest_of_sources() -> str:
    """Of the loops and of the losses whose formulas they call."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for source in sorted([*package.glob("kernels/*.py"), *package.glob("losses/*.py")]):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


_SOURCES = _digest_of_sources()


class _NamedCodeFile(IndexDataCacheFile):
    """Code kept under the digest of its key: types, processor, byte code, closed-over pieces, all sources."""

    def __init__(self, cache_path: str, filename_base: str, source_stamp: object) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        self._base = filename_base

    def _name(self, key: object) -> str:
        parts = (self._version, _SOURCES, key)
        return f"{self._base}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.nbc"

    def save(self, key: object, data: object) -> None:
        self._save_data(self._name(key), data)

    def load(self, key: object) -> Any:
        try:
            return self._load_data(self._name(key))
        except OSError:
            return None

    def flush(self) -> None:
        """Nothing to do without an index."""


def njit_with_safe_cache(**options: Any) -> Any:
    """njit(cache=True, …) whose compiled code is kept as this module says."""

    def decorate(function: Any) -> Any:
        dispatcher = njit(cache=True, **options)(function)
        cache = getattr(dispatcher, "_cache", None)  # absent if the compiler is disabled
        if cache is not None:
            plain = cache._cache_file
            cache._cache_file = _NamedCodeFile(cache._cache_path, cache._impl.filename_base, plain._source_stamp)
        return dispatcher

    return decorate
