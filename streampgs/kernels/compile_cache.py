"""Compiled code on disk, safe for processes that compile at the same time and for edited sources.

Numba numbers the files of compiled code and keeps an index from keys to numbers. If two processes compile at the same
time, they can give one number to two functions, and later runs silently execute the wrong loop. The same can happen if
a process is killed between writing the index and the code. Numba also does not notice an edit in a file other than the
loop's own. Here, the name of a file is a digest of everything that its content depends on, so no index is needed.

Numba also uses only folders that it may write to, and stops if there is none. A container image is compiled for by one
user and run by another, often on a file system that is read-only. So all folders are read here, and code is written to
the first that allows it, or nowhere.

Numba's own keys contain the pickled functions that a loop closes over. Pickles of one function may differ between two
processes, and then the second one compiles again. Here, functions are described by their names and contents.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from streampgs.kernels import compiling


def folders() -> list[Path]:
    """Where compiled code may be: the folder that NUMBA_CACHE_DIR names, or else next to the sources or in the user's
    cache."""
    if vars(config)["CACHE_DIR"]:
        return [Path(vars(config)["CACHE_DIR"]) / "streampgs"]
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(__file__).parent / "__pycache__", Path(user) / "streampgs"]


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

    def __init__(self, filename_base: str) -> None:
        super().__init__("", filename_base, None)
        self._base, self._folders = filename_base, folders()

    def _name(self, key: object) -> str:
        parts = (self._version, _SOURCES, key)
        return f"{self._base}.{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.nbc"

    def save(self, key: object, data: object) -> None:
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._save_data(str(folder / self._name(key)), data)
                return
            except OSError:  # read-only, or full: the code is in memory anyway
                continue

    def load(self, key: object) -> Any:
        for folder in self._folders:
            try:
                return self._load_data(str(folder / self._name(key)))
            except Exception:  # absent, or damaged in any way: it is compiled again
                continue
        compiling.tell()
        return None

    def flush(self) -> None:
        """Nothing to do without an index."""


class _AnyFolder:
    """What Numba asks about the place of a function's code: here the file knows its folders."""

    def __init__(self, function: Any) -> None:
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, source: str) -> _AnyFolder:
        return cls(function)

    def get_cache_path(self) -> str:
        return ""

    def ensure_cache_path(self) -> None:
        pass

    def get_source_stamp(self) -> None:
        return None

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CodeImpl(CompileResultCacheImpl):
    _locator_classes = (_AnyFolder,)  # type: ignore[assignment]


class _CodeCache(FunctionCache):
    _impl_class = _CodeImpl

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _NamedCodeFile(self._impl.filename_base)

    def _index_key(self, sig: object, codegen: Any) -> object:
        return sig, codegen.magic_tuple(), _described(self._py_func)


def _described(piece: object) -> object:
    """A function as its name, its byte code, its constants and all that it closes over; other values as they are."""
    if not isinstance(piece, FunctionType):
        return piece
    code = piece.__code__
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    closed_over = [_described(cell.cell_contents) for cell in piece.__closure__ or ()]
    return piece.__module__, piece.__qualname__, code.co_code, constants, closed_over


def njit_with_safe_cache(**options: Any) -> Any:
    """njit(…) whose compiled code is kept as this module says."""

    def decorate(function: Any) -> Any:
        dispatcher = njit(**options)(function)
        if hasattr(dispatcher, "enable_caching"):  # else the compiler is disabled
            dispatcher._cache = _CodeCache(function)
        return dispatcher

    return decorate
