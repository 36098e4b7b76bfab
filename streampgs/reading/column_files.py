"""The columns of a window of rows on disk: a file that is named after its content.

Four arrays (features, bounds, row numbers, values), a checksum for each chunk of each array, and a tail. A file that is
missing or damaged is made again from the shards: it costs time but never changes bits.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.errors import DataError, RunError
from streampgs.base.faults import remedy
from streampgs.base.files import new_file, remove_leftovers
from streampgs.formats.format import Damaged
from streampgs.formats.local import LocalFile
from streampgs.kernels.randomness import checksum
from streampgs.reading.columns import Columns, Indices, Ints, Values

_CHUNK = 1 << 16
_MAGIC = b"spgcols1"
_TAIL = np.dtype([
    ("rows", "<i8"), ("lines", "<i8"), ("entries", "<i8"), ("dense", "<i8"), ("checksum", "<u8"), ("magic", "S8"),
])  # fmt: skip
_TYPES = ("<u4", "<i8", "<u4", "<f4")
_FEATURES, _BOUNDS, _INDICES, _VALUES = range(4)
_DIGITS = 32


class LayerDamaged(Exception):
    """The file of a layer is missing or damaged."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


@dataclass(frozen=True)
class _Places:
    """Where the arrays of a file are."""

    sizes: tuple[int, ...]
    """Bytes of each array."""

    @staticmethod
    def of(lines: int, entries: int, dense: bool) -> _Places:
        return _Places((4 * lines, 8 * (lines + 1), 0 if dense else 4 * entries, 4 * entries))

    def offset(self, section: int) -> int:
        return sum(-(-size // 8) * 8 for size in self.sizes[:section])

    def first_chunk(self, section: int) -> int:
        return sum(-(-size // _CHUNK) for size in self.sizes[:section])

    @property
    def end(self) -> int:
        return self.offset(len(self.sizes))

    @property
    def chunks(self) -> int:
        return self.first_chunk(len(self.sizes))


class FileLayer:
    """A layer that is read from its file, slice by slice. Every chunk that is read is compared with its checksum."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        try:
            self._file = LocalFile(path, "file of columns")
        except FileNotFoundError as error:
            raise LayerDamaged(name, "missing") from error
        try:
            self._open()
        except (DataError, Damaged, ValueError) as error:
            self._file.close()
            raise LayerDamaged(name, str(error)) from error
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        file = self._file
        tail = np.frombuffer(file.read(_TAIL.itemsize, max(0, file.size - _TAIL.itemsize)), _TAIL)[0]
        if tail["magic"] != _MAGIC:
            raise Damaged("no tail")
        self.rows, self._lines, self._entries = int(tail["rows"]), int(tail["lines"]), int(tail["entries"])
        self.dense = bool(tail["dense"])
        self._places = _Places.of(self._lines, self._entries, self.dense)
        if file.size != self._places.end + 8 * self._places.chunks + _TAIL.itemsize or min(tail.item()[:3]) < 0:
            raise Damaged("another size")
        self._checksums = np.frombuffer(file.read(8 * self._places.chunks, self._places.end), "<u8")
        if int(checksum(self._checksums.view(np.uint8))) != int(tail["checksum"]):
            raise Damaged("checksums that do not match")
        if _name(self._checksums, self.rows, self._lines, self._entries, self.dense) != self.name:
            raise Damaged("another content")

    def __len__(self) -> int:
        return self._lines

    def lines(self, first: int, stop: int) -> tuple[Ints, Ints]:
        features = self._read(_FEATURES, first, stop).astype(np.int64)
        return features, np.asarray(self._read(_BOUNDS, first, stop + 1), np.int64)

    def entries(self, first: int, stop: int) -> tuple[Indices, Values]:
        indices = np.empty(0, np.uint32) if self.dense else self._read(_INDICES, first, stop)
        return indices, self._read(_VALUES, first, stop)

    def _read(self, section: int, first: int, stop: int) -> NDArray[Any]:
        kind, size = np.dtype(_TYPES[section]), self._places.sizes[section]
        low, high = first * kind.itemsize, stop * kind.itemsize
        begin, end = low // _CHUNK * _CHUNK, min(size, -(-high // _CHUNK) * _CHUNK)
        data = np.empty(max(0, end - begin), np.uint8)
        try:
            self._file.read_into(data, self._places.offset(section) + begin)
        except DataError as error:
            raise LayerDamaged(self.name, str(error)) from error
        expected = self._places.first_chunk(section) + begin // _CHUNK
        for chunk, start in enumerate(range(0, len(data), _CHUNK)):
            if checksum(data[start : start + _CHUNK]) != self._checksums[expected + chunk]:
                raise LayerDamaged(self.name, "a checksum that does not match")
        return data[low - begin : high - begin].view(kind)

    def close(self) -> None:
        self._file.close()


class ColumnFiles:
    """The files of columns in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, FileLayer] = {}
        remove_leftovers(folder, ".*.columns-*-*")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.columns"

    def layer(self, name: str) -> FileLayer:
        """Raises LayerDamaged."""
        if name not in self._open:
            self._open[name] = FileLayer(self.path(name), name)
        return self._open[name]

    def keep(self, columns: Columns) -> str:
        """Write the columns, unless their file is there. The name of the file."""
        arrays = _arrays(columns)
        checksums = np.array([_checksum for array in arrays for _checksum in _checksums(array)], "<u8")
        name = _name(checksums, columns.rows, len(columns), len(columns.values), columns.dense)
        try:
            self.layer(name)
        except LayerDamaged:
            self._write(name, columns, arrays, checksums)
        return name

    def forget(self, name: str) -> None:
        """The file is damaged: it is opened again, or made again, when it is next needed."""
        layer = self._open.pop(name, None)
        if layer is not None:
            layer.close()
        with suppress(FileNotFoundError):
            self.path(name).unlink()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _write(self, name: str, columns: Columns, arrays: list[NDArray[Any]], checksums: NDArray[np.uint64]) -> None:
        path = self.path(name)
        temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
        tail = (columns.rows, len(columns), len(columns.values), columns.dense, checksum(checksums.view(np.uint8)))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(new_file(temporary), "wb") as file:
                for array in arrays:
                    file.write(array.data)
                    file.write(bytes(-array.nbytes % 8))
                file.write(checksums.tobytes())
                file.write(np.array([(*tail, _MAGIC)], _TAIL).tobytes())
                file.flush()
                temporary.rename(path)
        except OSError as error:
            raise RunError(
                f"the columns in '{self.folder}' cannot be written: {error.strerror or error}",
                f"{remedy(error)}, or start a new run with another place for them: `--cache DIR`; else resume",
            ) from error
        finally:
            with suppress(OSError):  # it usually has its final name by now
                temporary.unlink()


def _arrays(columns: Columns) -> list[NDArray[Any]]:
    found = columns.columns, columns.bounds, columns.indices, columns.values
    return [np.ascontiguousarray(array, kind) for array, kind in zip(found, _TYPES, strict=True)]


def _checksums(array: NDArray[Any]) -> list[int]:
    data = array.view(np.uint8)
    return [int(checksum(data[start : start + _CHUNK])) for start in range(0, len(data), _CHUNK)]


def _name(checksums: NDArray[np.uint64], rows: int, lines: int, entries: int, dense: bool) -> str:
    facts = f"{rows} {lines} {entries} {int(dense)} ".encode()
    return hashlib.sha256(facts + checksums.tobytes()).hexdigest()[:_DIGITS]
