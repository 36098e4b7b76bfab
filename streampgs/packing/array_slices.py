"""Arrays as record batches: dense rows, sparse rows in CSR form, columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError

SLICE_BYTES = 1 << 22
_LARGEST_INT32 = (1 << 31) - 1


def rows_a_slice(row_bytes: float) -> int:
    return max(1, int(SLICE_BYTES / max(row_bytes, 1.0)))


def numbers_array(numbers: NDArray[Any], what: str) -> pa.Array:
    """A copy in the byte order of this machine, of a type that training reads."""
    if numbers.dtype.kind == "b":
        return pa.array(numbers.astype(np.int8))
    if numbers.dtype.kind not in "iuf":
        raise DataError(f"{what} is of type {numbers.dtype}", "it must hold integers or floats")
    return pa.array(np.array(numbers, dtype=numbers.dtype.newbyteorder("="), order="C"))


def dense_column(rows: NDArray[Any], what: str) -> pa.Array:
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(f"{what} has the shape {rows.shape}", "it must have rows and columns")
    return pa.FixedSizeListArray.from_arrays(numbers_array(rows.reshape(-1), what), rows.shape[1])


def sparse_columns(indptr: NDArray[Any], indices: NDArray[Any], data: NDArray[Any], what: str) -> dict[str, pa.Array]:
    """Rows of a CSR matrix; `indptr` may begin anywhere."""
    offsets = pa.array((indptr - indptr[0]).astype(np.int32))
    large = indices.size and int(indices.max()) > _LARGEST_INT32
    numbers = pa.array(indices.astype(np.int64 if large else np.int32))
    return {
        "indices": pa.ListArray.from_arrays(offsets, numbers),
        "values": pa.ListArray.from_arrays(offsets, numbers_array(data, what)),
    }


def plain_column(values: NDArray[Any], what: str) -> pa.Array:
    """Numbers, texts or truth values, one for each row."""
    if values.dtype.kind in "US":
        return pa.array(values.astype(str).tolist(), pa.string())
    if values.dtype.kind == "O":
        try:
            return pa.array(values)
        except pa.ArrowException as error:
            raise DataError(f"{what} holds objects: {error}", "it must hold numbers or texts") from error
    if values.dtype.kind == "b":
        return pa.array(values)
    return numbers_array(values, what)


def check_index_pointers(indptr: NDArray[Any], entries: int, what: str) -> None:
    if indptr.size and (int(indptr.min()) < 0 or int(indptr.max()) > entries or (np.diff(indptr) < 0).any()):
        raise DataError(f"{what}: its row pointers lead outside its {entries:,} entries or go back", "write it again")
