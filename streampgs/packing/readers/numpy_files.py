""".npy, and .npz with a CSR matrix, `X` and `y`, or columns. Streamed, never loaded whole."""

from __future__ import annotations

import errno
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.base.faults import is_fault, naming_faults, unreadable
from streampgs.base.files import reading
from streampgs.packing.source import Shape, Source
from streampgs.reading.array_slices import csr_slices, dense_column, plain_column, rows_a_slice

_MATRIX_NAMES = ("X", "x", "features")
_LABEL_NAMES = ("y", "label", "labels")
_SMALL_BYTES = 1 << 12
_AGAIN = "fetch or write it again"


# What zipfile and the parser of headers raise for damage. RuntimeError: the archive needs a password.
_OF_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, SyntaxError, EOFError, KeyError, OverflowError,
    NotImplementedError, RuntimeError, UnicodeDecodeError,
)  # fmt: skip


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (*_OF_DAMAGE, OSError) as error:
        if isinstance(error.__context__, OSError) and is_fault(error.__context__):
            raise unreadable(f"'{path}'", error.__context__) from error
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # a negative offset in the file
            raise
        words = error.args[0] if error.args else type(error).__name__
        raise DataError(f"'{path}' is damaged: {words}", _AGAIN) from error


class ArrayStream:
    """An array in the .npy format, read in slices of its first axis."""

    def __init__(self, file: Any, what: str, memory: int) -> None:
        self._file = file
        self.what = what
        try:
            version = np.lib.format.read_magic(file)
            read_header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            )
            self.shape, in_columns, self.dtype = read_header(file)
        except ValueError as error:
            raise DataError(f"{what} is not an array: {error}", "write it with numpy.save or numpy.savez") from error
        if self.dtype.hasobject or self.dtype.names is not None:
            raise DataError(f"{what} is of type {self.dtype}", "save it as an array of plain numbers or strings")
        if not self.shape:
            raise DataError(f"{what} is a single number", "save an array whose first axis is the rows")
        self._row_items = math.prod(self.shape[1:])
        self.row_bytes = self._row_items * self.dtype.itemsize
        if self.row_bytes > memory // 8:
            raise DataError(f"{what} has rows of {self.row_bytes:,} bytes", "raise --memory")
        self._whole: NDArray[Any] | None = None
        if in_columns and len(self.shape) > 1:
            total = self.shape[0] * self.row_bytes
            if total > memory // 4:
                raise DataError(
                    f"{what} is stored column by column, so that all its {total:,} bytes must be in memory",
                    "save it with numpy.ascontiguousarray, or raise --memory to four times as much",
                )
            self._whole = self._read(self.shape[0] * self._row_items).reshape(self.shape, order="F")
        self._next = 0

    def take(self, rows: int) -> NDArray[Any]:
        """The next rows."""
        rows = min(rows, self.shape[0] - self._next)
        self._next += rows
        if self._whole is not None:
            return self._whole[self._next - rows : self._next]
        return self._read(rows * self._row_items).reshape(rows, *self.shape[1:])

    def check_end(self) -> None:
        """A file with more numbers than its shape says was damaged, or its shape is wrong."""
        if self._file.read(1):
            raise DataError(f"{self.what} has more bytes than an array of the shape {self.shape}", _AGAIN)

    def _read(self, items: int) -> NDArray[Any]:
        size = items * self.dtype.itemsize
        try:
            with naming_faults(self.what):
                data = self._file.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise DataError(f"{self.what} is damaged: {error}", _AGAIN) from error
        if len(data) < size:
            raise DataError(f"{self.what} is cut off", _AGAIN)
        return np.frombuffer(data, self.dtype)


def read_npy(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    """A matrix: dense rows."""
    with damage_named(source.path), naming_faults(source.path), reading(source.path) as file:
        array = ArrayStream(file, f"'{source.path}'", source.options.memory)
        for batch in _dense_slices({"features": array}):
            yield batch
            source.place = file.tell()
        array.check_end()


def read_npz(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    with (
        damage_named(source.path),
        naming_faults(source.path),
        reading(source.path) as file,
        zipfile.ZipFile(file) as archive,
        ExitStack() as stack,
    ):
        names = _array_names(source, archive)
        is_sparse = "indptr" in names
        if is_sparse:
            names = _sparse_names(source, archive, names)
        streams = {}
        for name in names:
            member = stack.enter_context(archive.open(name + ".npy"))
            streams[name] = ArrayStream(member, f"'{source.path}', array '{name}'", source.options.memory)
        sparse_shape = _shape_of(source, archive) if is_sparse else None
        for batch in (
            _sparse_slices(source, streams, sparse_shape) if is_sparse else _dense_slices(_columns(source, streams))
        ):
            yield batch
            source.place = file.tell()
        for stream in streams.values():
            stream.check_end()


def _array_names(source: Source, archive: zipfile.ZipFile) -> list[str]:
    members = archive.namelist()
    seen: set[str] = set()
    for member in members:
        if not member.endswith(".npy") or member == ".npy":
            raise DataError(f"'{source.path}' holds '{member}', which is not an array", "save it with numpy.savez")
        if member in seen:
            raise DataError(f"'{source.path}' holds two arrays '{member}'", "save it with numpy.savez")
        seen.add(member)
    return [member.removesuffix(".npy") for member in members]


def _sparse_names(source: Source, archive: zipfile.ZipFile, names: list[str]) -> list[str]:
    if "format" in names:
        kind = _small_array(source, archive, "format").item()
        if kind not in (b"csr", "csr"):
            raise DataError(f"'{source.path}' holds a sparse matrix of format {kind!r}", "save it with .tocsr()")
    missing = [name for name in ("indices", "data") if name not in names]
    if missing:
        raise DataError(
            f"'{source.path}' has an array 'indptr' but no '{missing[0]}'", "save it with scipy.sparse.save_npz"
        )
    return ["indptr", "indices", "data", *[name for name in _LABEL_NAMES if name in names][:1]]


def _small_array(source: Source, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """A member that describes the others."""
    what = f"'{source.path}', array '{name}'"
    if archive.getinfo(name + ".npy").file_size > _SMALL_BYTES:
        raise DataError(f"{what} is not small", "save it with scipy.sparse.save_npz")
    try:
        with archive.open(name + ".npy") as member:
            found: NDArray[Any] = np.lib.format.read_array(member)
    except (ValueError, EOFError) as error:
        raise DataError(f"{what} cannot be read: {error}", "save it with scipy.sparse.save_npz") from error
    if name == "format" and found.size != 1:
        raise DataError(f"{what} holds {found.size} values", "save it with scipy.sparse.save_npz")
    return found


def _shape_of(source: Source, archive: zipfile.ZipFile) -> tuple[int, int] | None:
    """The shape of a sparse matrix, if it is stored."""
    if "shape.npy" not in archive.namelist():
        return None
    shape = _small_array(source, archive, "shape")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise DataError(f"'{source.path}': its shape is {shape.tolist()!r:.100}", "save it with scipy.sparse.save_npz")
    return int(shape[0]), int(shape[1])


def _check_sparse(source: Source, streams: dict[str, ArrayStream], shape: tuple[int, int] | None) -> None:
    for name in ("indptr", "indices"):
        if streams[name].dtype.kind not in "iu":
            raise DataError(f"{streams[name].what} is of type {streams[name].dtype}", "it must hold integers")
    indptr, indices, data = (streams[name].shape[0] for name in ("indptr", "indices", "data"))
    if any(len(stream.shape) > 1 for stream in streams.values()) or not indptr or indices != data:
        raise DataError(
            f"'{source.path}': {indptr:,} row pointers, {indices:,} column numbers and {data:,} values are not a matrix",
            _AGAIN,
        )
    if shape is not None and shape[0] != indptr - 1:
        raise DataError(f"'{source.path}' has {indptr - 1:,} rows, and its shape says {shape[0]:,}", _AGAIN)


def _sparse_slices(
    source: Source, streams: dict[str, ArrayStream], shape: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    _check_sparse(source, streams, shape)
    label = next((stream for name, stream in streams.items() if name in _LABEL_NAMES), None)
    indptr, indices, data = (streams[name] for name in ("indptr", "indices", "data"))
    rows, entries, width = indptr.shape[0] - 1, data.shape[0], None if shape is None else shape[1]
    if label is not None:
        _check_lengths(source, {"indptr": rows, "label": label.shape[0]})

    def taken(first: int, stop: int) -> tuple[NDArray[Any], NDArray[Any]]:
        numbers = indices.take(stop - first)
        wrong = np.flatnonzero((numbers < 0) | (numbers >= (width if width is not None else np.inf)))
        if wrong.size:
            columns = "columns are counted from 0" if width is None else f"the matrix has {width:,} columns"
            entry = first + int(wrong[0])
            raise DataError(f"'{source.path}', entry {entry:,}: column {numbers[wrong[0]]}, but {columns}", _AGAIN)
        return numbers, data.take(stop - first)

    pointers = indptr.take(1)
    if pointers.any():
        raise DataError(f"'{source.path}': its row pointers begin at {pointers[0]}", "write it again: they begin at 0")
    for start in range(0, rows, at_once := rows_a_slice(16)):
        pointers = np.append(pointers[-1:], indptr.take(min(at_once, rows - start)))
        for batch in csr_slices(pointers, taken, entries, indices.row_bytes + data.row_bytes, f"'{source.path}'"):
            if label is not None:
                batch = batch.add_column(0, "label", plain_column(label.take(batch.num_rows), label.what))
            yield batch
    if int(pointers[-1]) != entries:
        raise DataError(
            f"'{source.path}': its row pointers end at {pointers[-1]:,}, and it has {entries:,} entries", _AGAIN
        )


def _columns(source: Source, streams: dict[str, ArrayStream]) -> dict[str, ArrayStream]:
    """The arrays under the names of their columns, the label first."""
    several = sum(len(stream.shape) == 2 for stream in streams.values()) > 1
    columns = {}
    for name, stream in streams.items():
        if len(stream.shape) == 2:
            if several and name not in _MATRIX_NAMES:
                raise DataError(
                    f"'{source.path}' holds several matrices: {', '.join(streams)}", "call the matrix of features 'X'"
                )
            columns["features"] = stream
        else:
            columns["label" if name in _LABEL_NAMES else name] = stream
    _check_lengths(source, {name: stream.shape[0] for name, stream in streams.items()})
    return dict(sorted(columns.items(), key=lambda pair: pair[0] != "label"))


def _check_lengths(source: Source, lengths: dict[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(
            f"'{source.path}': its arrays are of different lengths: {found}", "save arrays with an entry for each row"
        )


def _dense_slices(streams: dict[str, ArrayStream]) -> Iterator[pa.RecordBatch]:
    for name, stream in streams.items():
        if len(stream.shape) > 2 or (len(stream.shape) == 1 and name == "features"):
            raise DataError(f"{stream.what} has {len(stream.shape)} axes", "features are a matrix: rows and columns")
    rows = next(iter(streams.values())).shape[0] if streams else 0
    at_once = rows_a_slice(sum(stream.row_bytes for stream in streams.values()))
    for _ in range(0, rows, at_once):
        columns = {}
        for name, stream in streams.items():
            part = stream.take(at_once)
            columns[name] = (dense_column if part.ndim == 2 else plain_column)(part, stream.what)
        yield pa.record_batch(columns)
