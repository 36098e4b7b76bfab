"""Tables, matrices and streams of record batches that a program holds, as record batches of a few megabytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.errors import DataError
from streampgs.packing.array_slices import (
    SLICE_BYTES,
    check_index_pointers,
    dense_column,
    plain_column,
    rows_a_slice,
    sparse_columns,
)

_ROWS_AT_ONCE = 1000
_REMEDY = (
    "give a table (pandas, polars, DuckDB, pyarrow), an iterable of record batches, a NumPy matrix, or a SciPy sparse "
    "matrix"
)


def batches_of(source: Any, labels: Any = None) -> Iterator[pa.RecordBatch]:
    """The rows of `source`, in slices: whatever exports Arrow streams, record batches, matrices dense or sparse.

    `labels`, numbers or texts, one for each row, become the column 'label'.
    """
    if isinstance(source, np.ndarray):
        batches = _dense(source)
    elif hasattr(source, "tocsr"):
        batches = _sparse(source)
    else:
        batches = _tabular(source)
    return batches if labels is None else _labelled(batches, labels)


def _dense(matrix: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
    what = "the matrix"
    if matrix.ndim != 2:
        raise DataError(f"{what} has {matrix.ndim} axes", "give rows and columns")
    rows = rows_a_slice(matrix.itemsize * matrix.shape[1])
    for start in range(0, matrix.shape[0], rows):
        yield pa.record_batch({"features": dense_column(matrix[start : start + rows], what)})


def _sparse(matrix: Any) -> Iterator[pa.RecordBatch]:
    matrix = matrix.tocsr()  # itself, if it is one
    what = "the sparse matrix"
    check_index_pointers(matrix.indptr, matrix.data.size, what)
    most = max(1, SLICE_BYTES // (matrix.data.itemsize + matrix.indices.itemsize))
    pointers = matrix.indptr
    start = 0
    while start < len(pointers) - 1:
        stop = int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), start + rows_a_slice(8), len(pointers) - 1)
        part = slice(int(pointers[start]), int(pointers[stop]))
        columns = sparse_columns(pointers[start : stop + 1], matrix.indices[part], matrix.data[part], what)
        yield pa.record_batch(columns)
        start = stop


def _tabular(source: Any) -> Iterator[pa.RecordBatch]:
    for batch in _record_batches(source):
        rows = rows_a_slice(batch.nbytes / max(1, batch.num_rows))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _record_batches(source: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(source, pa.RecordBatch):
        yield source
    elif hasattr(source, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(source)
    elif hasattr(source, "with_format") and hasattr(source, "iter"):  # a dataset of Hugging Face
        for table in source.with_format("arrow").iter(_ROWS_AT_ONCE):
            yield from _record_batches(table)
    elif hasattr(source, "to_batches"):  # a dataset of pyarrow
        yield from source.to_batches()
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        for part in source:
            if not (isinstance(part, pa.RecordBatch) or hasattr(part, "__arrow_c_stream__")):
                raise DataError(f"among the batches is a {type(part).__name__}", _REMEDY)
            yield from _record_batches(part)
    else:
        raise DataError(f"rows cannot be had of a {type(source).__name__}", _REMEDY)


def _labelled(batches: Iterator[pa.RecordBatch], labels: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(labels, pa.Array | pa.ChunkedArray):
        labels = labels.to_numpy(zero_copy_only=False) if isinstance(labels, pa.Array) else labels.to_numpy()
    known = np.asarray(labels)
    if known.ndim != 1:
        raise DataError(f"the labels have {known.ndim} axes", "give one for each row")
    done = 0
    for batch in batches:
        if "label" in batch.schema.names:
            raise DataError("the table has a column 'label' and labels are given as well", "give one of the two")
        stop = done + batch.num_rows
        if stop > len(known):
            raise DataError(f"there are {len(known):,} labels and more rows", "give one for each row")
        yield batch.append_column("label", plain_column(known[done:stop], "the array of labels"))
        done = stop
    if done != len(known):
        raise DataError(f"there are {len(known):,} labels and {done:,} rows", "give one for each row")
