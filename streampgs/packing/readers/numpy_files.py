""".npy, read in slices, and .npz with a CSR matrix, `X` and `y`, or columns, which must fit into memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError
from streampgs.base.files import reading
from streampgs.packing.source import Source, naming_damage
from streampgs.reading.array_slices import csr_slices, plain_column, rows_a_slice
from streampgs.reading.in_memory import batches_of, with_columns

_LABEL_NAMES = ("y", "label", "labels")
_AGAIN = "fetch or write it again"


def read_npy(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A matrix: dense rows."""
    path = source.path
    with naming_damage(path), reading(path) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, in_columns, kind = read_header(file)
        if len(shape) != 2 or kind.kind not in "biuf":
            raise DataError(f"'{path}' holds an array of type {kind} and shape {shape}", "save a matrix of numbers")
        size, row_bytes = shape[0] * shape[1] * kind.itemsize, shape[1] * kind.itemsize
        if path.stat().st_size != file.tell() + size:
            raise DataError(f"'{path}' has not the size of an array of the shape {shape}: it was cut off", _AGAIN)
        if in_columns:
            _refuse_larger(source, size)
            yield from batches_of(np.fromfile(file, kind).reshape(shape, order="F"))
            return
        at_once = min(rows_a_slice(row_bytes), shape[0])
        for _ in range(0, shape[0], max(1, at_once)):
            part = np.fromfile(file, kind, at_once * shape[1])
            source.place = file.tell()
            yield from batches_of(part.reshape(-1, shape[1]))


def _refuse_larger(source: Source, size: int) -> None:
    if size > source.options.memory // 4:
        raise DataError(
            f"'{source.path}' has {size:,} bytes, which must be in memory at once",
            f"raise --memory to {4 * size:,}, or save a .npy file in the order of rows, which is read in parts",
        )


def read_npz(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with naming_damage(source.path), reading(source.path) as file:
        with zipfile.ZipFile(file) as archive:
            _refuse_larger(source, sum(member.file_size for member in archive.infolist()))
            names = archive.namelist()
            if len(set(names)) < len(names) or not all(name.endswith(".npy") and len(name) > 4 for name in names):
                raise DataError(
                    f"'{source.path}' does not hold arrays of different names alone", "save it with numpy.savez"
                )
            arrays = {}
            for name in names:
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member)
                    if member.read(1):
                        raise DataError(f"'{source.path}', array '{name}' has more bytes than its shape says", _AGAIN)
        label = next((arrays.pop(name) for name in _LABEL_NAMES if name in arrays), None)
        columns = {} if label is None else {"label": label}
        if "indptr" in arrays:
            batches = _sparse_rows(f"'{source.path}'", arrays)
        else:
            batches = _dense_rows(f"'{source.path}'", arrays, columns)
        yield from with_columns(batches, columns) if columns else batches


def _dense_rows(what: str, arrays: dict[str, Any], columns: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a matrix, or of the first array; the other arrays are left in `columns`."""
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise DataError(f"{what}, array '{name}' has {array.ndim} axes", "save columns, and features as a matrix")
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if len(matrices) > 1:
        raise DataError(f"{what} holds several matrices: {', '.join(matrices)}", "save one matrix, and columns")
    columns |= {name: array for name, array in arrays.items() if array.ndim == 1}
    if matrices:
        return batches_of(arrays[matrices[0]])
    if not columns:
        raise DataError(f"{what} holds no arrays", "save some")
    first = next(iter(columns))
    return batches_of(pa.table({first: plain_column(columns.pop(first), what)}))


def _sparse_rows(what: str, arrays: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a CSR matrix as scipy.sparse.save_npz writes it."""
    again = "save it with scipy.sparse.save_npz, in the format CSR"
    if np.atleast_1d(arrays.get("format", b"csr"))[0] not in (b"csr", "csr"):
        raise DataError(f"{what} holds a sparse matrix of format {arrays['format']!r}", again)
    if not {"indices", "data"} <= arrays.keys():
        raise DataError(f"{what} has an array 'indptr', but not both of 'indices' and 'data'", again)
    indptr, indices, data = (arrays[name] for name in ("indptr", "indices", "data"))
    rows, width = len(indptr) - 1, 1 << 62
    if "shape" in arrays:
        rows, width = arrays["shape"].tolist()
    whole = all(array.ndim == 1 and array.dtype.kind in "iu" for array in (indptr, indices))
    if not (whole and len(indptr) == rows + 1 and indices.shape == data.shape and not indptr[0]):
        raise DataError(f"{what}: its row pointers, columns and values are not a matrix of {rows:,} rows", again)
    if indptr[-1] != len(indices):
        raise DataError(f"{what}: its row pointers end at {indptr[-1]:,}, and it has {len(indices):,} entries", again)
    if len(indices) and not 0 <= indices.min() <= indices.max() < width:
        raise DataError(f"{what}: a column number is not within the matrix of {width:,} columns", again)
    entry_bytes = indices.itemsize + data.itemsize
    return csr_slices(indptr, lambda first, stop: (indices[first:stop], data[first:stop]), len(data), entry_bytes, what)
