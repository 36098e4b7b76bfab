"""Arrays as record batches of a few megabytes: dense rows, sparse rows in CSR form, columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError

SLICE_BYTES = 1 << 22


def rows_a_slice(row_bytes: float) -> int:
    return max(1, int(SLICE_BYTES / max(row_bytes, 1.0)))


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = rows_a_slice(batch.nbytes / max(1, batch.num_rows))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def numbers_array(numbers: NDArray[Any], what: str) -> pa.Array:
    """A copy in the byte order of this machine, of a type that training reads."""
    if numbers.dtype.kind == "b":
        return pa.array(numbers.astype(np.int8))
    if numbers.dtype.kind not in "iuf":
        raise DataError(f"{what} is of type {numbers.dtype}", "it must hold integers or floats")
    return pa.array(np.array(native(numbers), order="C"))


def native(numbers: NDArray[Any]) -> NDArray[Any]:
    """In the byte order of this machine, of at most 8 bytes."""
    return numbers.astype(np.float64 if numbers.itemsize > 8 else numbers.dtype.newbyteorder("="), copy=False)


def index_array(indices: NDArray[Any]) -> pa.Array:
    """As int32 where all fit."""
    small = indices.size == 0 or int(indices.max()) < 1 << 31
    return pa.array(indices.astype(np.int32 if small else np.int64))


def list_array(counts: NDArray[np.integer[Any]], child: pa.Array) -> pa.Array:
    """Lists of so many values of the child each."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)), pa.int32()), child)


def dense_column(rows: NDArray[Any], what: str) -> pa.Array:
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(f"{what} has the shape {rows.shape}", "it must have rows and columns")
    return pa.FixedSizeListArray.from_arrays(numbers_array(rows.reshape(-1), what), rows.shape[1])


def plain_column(values: NDArray[Any], what: str) -> pa.Array:
    """Numbers, strings or truth values, one for each row."""
    if values.dtype.kind in "US":
        try:
            return pa.array(values.astype(str).tolist(), pa.string())
        except UnicodeError as error:
            raise DataError(f"{what} holds bytes that are not ASCII: {error}", "save strings") from error
    if values.dtype.kind == "O":
        try:
            return pa.array(values)
        except pa.ArrowException as error:
            raise DataError(f"{what} holds objects: {error}", "it must hold numbers or strings") from error
    if values.dtype.kind == "b":
        return pa.array(values)
    return numbers_array(values, what)


def csr_slices(
    pointers: NDArray[Any],
    take: Callable[[int, int], tuple[NDArray[Any], NDArray[Any]]],
    entries: int,
    entry_bytes: int,
    what: str,
) -> Iterator[pa.RecordBatch]:
    """Rows of a CSR matrix. `take(first, stop)` gives the column numbers and the values of the entries [first, stop)."""
    if pointers.size and (int(pointers.min()) < 0 or int(pointers.max()) > entries or (np.diff(pointers) < 0).any()):
        raise DataError(f"{what}: its row pointers lead outside its {entries:,} entries or go back", "write it again")
    most = max(1, SLICE_BYTES // entry_bytes)
    start = 0
    while start < len(pointers) - 1:
        stop = int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), start + rows_a_slice(8), len(pointers) - 1)
        indices, values = take(int(pointers[start]), int(pointers[stop]))
        offsets = pa.array((pointers[start : stop + 1] - pointers[start]).astype(np.int32))
        children = index_array(indices), numbers_array(values, what)
        lists = (pa.ListArray.from_arrays(offsets, child) for child in children)
        yield pa.record_batch(dict(zip(("indices", "values"), lists, strict=True)))
        start = stop
