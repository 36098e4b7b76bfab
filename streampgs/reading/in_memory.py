"""Tables, matrices and iterables of record batches in memory, as record batches of a few megabytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.errors import DataError
from streampgs.reading.array_slices import csr_slices, dense_column, plain_column, rows_a_slice, sliced

_ROWS_AT_ONCE = 1000
_REMEDY = (
    "give a table (pandas, polars, DuckDB, pyarrow), an iterable of record batches, a NumPy matrix, or a SciPy sparse "
    "matrix"
)


def batches_of(source: Any, labels: Any = None) -> Iterator[pa.RecordBatch]:
    """The rows of anything that exports an Arrow stream, of record batches, or of a dense or sparse matrix.

    `labels`, a number or a string for each row, become the column 'label'.
    """
    if isinstance(source, np.ndarray):
        batches = _dense(source)
    elif hasattr(source, "tocsr"):
        batches = _sparse(source)
    else:
        batches = _tabular(source)
    return batches if labels is None else _labelled(batches, labels)


def _dense(matrix: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
    if matrix.ndim != 2:
        raise DataError(f"the matrix has {matrix.ndim} axes", "give rows and columns")
    rows = rows_a_slice(matrix.itemsize * matrix.shape[1])
    for start in range(0, matrix.shape[0], rows):
        yield pa.record_batch({"features": dense_column(matrix[start : start + rows], "the matrix")})


def _sparse(matrix: Any) -> Iterator[pa.RecordBatch]:
    matrix = matrix.tocsr()  # itself, if it is one
    return csr_slices(
        matrix.indptr,
        lambda first, stop: (matrix.indices[first:stop], matrix.data[first:stop]),
        matrix.data.size,
        matrix.data.itemsize + matrix.indices.itemsize,
        "the sparse matrix",
    )


def _tabular(source: Any) -> Iterator[pa.RecordBatch]:
    for batch in _record_batches(source):
        yield from sliced(batch)


def _record_batches(source: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(source, pa.RecordBatch):
        yield source
    elif hasattr(source, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(source)
    elif hasattr(source, "with_format") and hasattr(source, "iter"):  # a Hugging Face dataset
        for table in source.with_format("arrow").iter(_ROWS_AT_ONCE):
            yield from _record_batches(table)
    elif hasattr(source, "to_batches"):  # a pyarrow dataset
        yield from source.to_batches()
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        for part in source:
            if not (isinstance(part, pa.RecordBatch) or hasattr(part, "__arrow_c_stream__")):
                raise DataError(f"one of the batches is a {type(part).__name__}", _REMEDY)
            yield from _record_batches(part)
    else:
        raise DataError(f"cannot read rows from a {type(source).__name__}", _REMEDY)


def _labelled(batches: Iterator[pa.RecordBatch], labels: Any) -> Iterator[pa.RecordBatch]:
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
