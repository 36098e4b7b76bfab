"""Files of NumPy and SciPy: .npy, and .npz with a CSR matrix, `X` and `y`, or columns. Streamed, never loaded whole."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError
from streampgs.packing.array_slices import (
    SLICE_BYTES,
    check_index_pointers,
    dense_column,
    plain_column,
    rows_a_slice,
    sparse_columns,
)
from streampgs.packing.byte_streams import Advance
from streampgs.packing.pieces import Piece, Shape

_MATRIX_NAMES = ("X", "x", "features")
_LABEL_NAMES = ("y", "label", "labels")


class ArrayStream:
    """An array in the .npy format, read a slice of its first axis after the other."""

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
            raise DataError(f"{what} is no array: {error}", "write it with numpy.save or numpy.savez") from error
        if self.dtype.hasobject or self.dtype.names is not None:
            raise DataError(f"{what} is of type {self.dtype}", "save it as an array of plain numbers or texts")
        if not self.shape:
            raise DataError(f"{what} is a single number", "save an array that has a first axis: rows")
        self.row_items = math.prod(self.shape[1:])
        self.row_bytes = self.row_items * self.dtype.itemsize
        if self.row_bytes > memory // 8:
            raise DataError(f"{what} has rows of {self.row_bytes:,} bytes", "raise --memory")
        self._whole: NDArray[Any] | None = None
        if in_columns and len(self.shape) > 1:
            total = self.shape[0] * self.row_bytes
            if total > memory // 4:
                raise DataError(
                    f"{what} lies column by column: its rows are together only when all {total:,} bytes are read",
                    "save it with numpy.ascontiguousarray, or raise --memory to four times as much",
                )
            self._whole = self._read(self.shape[0] * self.row_items).reshape(self.shape, order="F")
        self._next = 0

    def take(self, rows: int) -> NDArray[Any]:
        """The next rows."""
        rows = min(rows, self.shape[0] - self._next)
        self._next += rows
        if self._whole is not None:
            return self._whole[self._next - rows : self._next]
        return self._read(rows * self.row_items).reshape(rows, *self.shape[1:])

    def _read(self, items: int) -> NDArray[Any]:
        size = items * self.dtype.itemsize
        try:
            data = self._file.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise DataError(f"{self.what} is damaged: {error}", "fetch or write it again") from error
        if len(data) < size:
            raise DataError(f"{self.what} is cut off", "fetch or write it again")
        return np.frombuffer(data, self.dtype)


class NpyReader:
    """A matrix: dense rows."""

    as_text = False

    def __init__(self, path: Path, memory: int) -> None:
        self.path, self._memory = path, memory

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        with open(self.path, "rb") as file:
            array = ArrayStream(file, f"'{self.path}'", self._memory)
            yield from _dense_pieces({"features": array}, _Progress(file, advance))


class NpzReader:
    as_text = False

    def __init__(self, path: Path, memory: int) -> None:
        self.path, self._memory = path, memory

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        try:
            with open(self.path, "rb") as file, zipfile.ZipFile(file) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                progress = _Progress(file, advance)
                if "indptr" in names:
                    yield from self._sparse(archive, names, progress)
                else:
                    yield from self._dense(archive, names, progress)
        except zipfile.BadZipFile as error:
            raise DataError(f"'{self.path}' is damaged: {error}", "fetch or write it again") from error

    @contextmanager
    def _stream(self, archive: zipfile.ZipFile, name: str) -> Iterator[ArrayStream]:
        with archive.open(name + ".npy") as member:
            yield ArrayStream(member, f"'{self.path}', array '{name}'", self._memory)

    def _sparse(self, archive: zipfile.ZipFile, names: list[str], progress: _Progress) -> Iterator[Piece]:
        if "format" in names:
            with archive.open("format.npy") as member:
                kind = np.lib.format.read_array(member).item()
            if kind not in (b"csr", "csr"):
                raise DataError(
                    f"'{self.path}' holds a sparse matrix of format {kind!r}", "save it with .tocsr(): row by row"
                )
        missing = [name for name in ("indices", "data") if name not in names]
        if missing:
            raise DataError(
                f"'{self.path}' has an array 'indptr' but no '{missing[0]}'", "save it with scipy.sparse.save_npz"
            )
        label = next((name for name in _LABEL_NAMES if name in names), None)
        with ExitStack() as stack:
            used = ["indptr", "indices", "data", *([label] if label else [])]
            streams = {name: stack.enter_context(self._stream(archive, name)) for name in used}
            rows = streams["indptr"].shape[0] - 1
            entries = streams["data"].shape[0]
            if label:
                _check_lengths(f"'{self.path}'", {"indptr": rows, label: streams[label].shape[0]})
            entry_bytes = streams["indices"].dtype.itemsize + streams["data"].dtype.itemsize
            at_once = rows_a_slice(16 + entries / max(rows, 1) * entry_bytes)
            pointers = streams["indptr"].take(1)
            if pointers.any():
                raise DataError(
                    f"'{self.path}': its row pointers begin at {pointers[0]}", "write it again: they begin at 0"
                )
            done = 0
            while done < rows:
                more = streams["indptr"].take(at_once)
                pointers = np.append(pointers[-1:], more)
                check_index_pointers(pointers, entries, f"'{self.path}'")
                yield from self._sparse_pieces(streams, label, pointers, done)
                done += len(more)
                progress.tell()

    def _sparse_pieces(
        self, streams: dict[str, ArrayStream], label: str | None, pointers: NDArray[Any], done: int
    ) -> Iterator[Piece]:
        """Cut once more where rows are far longer than most."""
        start = 0
        most = max(1, 4 * SLICE_BYTES // 8)
        while start < len(pointers) - 1:
            stop = int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1
            stop = min(max(stop, start + 1), len(pointers) - 1)
            count = int(pointers[stop] - pointers[start])
            columns = {}
            if label:
                columns["label"] = plain_column(streams[label].take(stop - start), streams[label].what)
            indices, data = streams["indices"].take(count), streams["data"].take(count)
            columns |= sparse_columns(pointers[start : stop + 1], indices, data, streams["data"].what)
            yield Piece(pa.record_batch(columns), (), done + start)
            start = stop

    def _dense(self, archive: zipfile.ZipFile, names: list[str], progress: _Progress) -> Iterator[Piece]:
        with ExitStack() as stack:
            streams = {name: stack.enter_context(self._stream(archive, name)) for name in names}
            called = {}
            for name, stream in streams.items():
                if len(stream.shape) == 2:
                    if name not in _MATRIX_NAMES and sum(len(s.shape) == 2 for s in streams.values()) > 1:
                        raise DataError(
                            f"'{self.path}' holds several matrices: {', '.join(streams)}",
                            "name the one of features 'X'",
                        )
                    called["features"] = stream
                else:
                    called["label" if name in _LABEL_NAMES else name] = stream
            _check_lengths(f"'{self.path}'", {name: stream.shape[0] for name, stream in streams.items()})
            yield from _dense_pieces(called, progress)


class _Progress:
    """By the place in the file."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file, self._advance = file, advance
        self._told = 0

    def tell(self) -> None:
        place = max(self._file.tell(), self._told)
        self._advance(place - self._told)
        self._told = place


def _check_lengths(what: str, lengths: dict[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(
            f"{what}: its arrays are of different lengths: {told}", "save arrays with an entry for each row"
        )


def _dense_pieces(streams: dict[str, ArrayStream], progress: _Progress) -> Iterator[Piece]:
    for stream in streams.values():
        if len(stream.shape) > 2 or (
            len(stream.shape) == 1 and "features" in streams and stream is streams["features"]
        ):
            raise DataError(f"{stream.what} has {len(stream.shape)} axes", "features are a matrix: rows and columns")
    rows = next(iter(streams.values())).shape[0] if streams else 0
    at_once = rows_a_slice(sum(stream.row_bytes for stream in streams.values()))
    order = sorted(streams, key=lambda name: name != "label")
    for start in range(0, rows, at_once):
        columns = {}
        for name in order:
            part = streams[name].take(at_once)
            make = dense_column if part.ndim == 2 else plain_column
            columns[name] = make(part, streams[name].what)
        yield Piece(pa.record_batch(columns), (), start)
        progress.tell()
