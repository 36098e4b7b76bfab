"""Tables, matrices and iterables of record batches in memory, as record batches of a few megabytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, counted
from streampgs.reading.array_slices import csr_slices, dense_column, plain_column, rows_a_slice, sliced

_ROWS_AT_ONCE = 1000
_REMEDY = (
    "give a table (pandas, polars, DuckDB, pyarrow), an iterable of record batches, a NumPy matrix, a SciPy sparse "
    "matrix, or a list of rows"
)


def batches_of(source: Any, labels: Any = None) -> Iterator[pa.RecordBatch]:
    """The rows of anything that exports an Arrow stream, of record batches, or of a dense or sparse matrix.

    `labels`, a number or a string for each row, become the column 'label'.
    """
    source = plain_source(source)
    if isinstance(source, np.ndarray):
        batches = _dense(source)
    elif hasattr(source, "tocsr"):
        batches = _sparse(source)
    else:
        batches = chain.from_iterable(map(sliced, _record_batches(source)))
    return batches if labels is None else with_columns(batches, {"label": labels})


def is_matrix(source: Any) -> bool:
    """Whether the rows have numbers instead of named columns."""
    return isinstance(source, np.ndarray) or hasattr(source, "tocsr")


def plain_source(source: Any) -> Any:
    """Lists of rows as a matrix or as a table, columns by name as a table, a data frame of pandas without its index."""
    if isinstance(source, dict):
        return _table(pa.table, source, "the columns")
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        # The index of a shuffled data frame would become a feature.
        return _table(lambda frame: pa.Table.from_pandas(frame, preserve_index=False), source, "the data frame")
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):
        raise DataError(
            f"a {type(source).__name__} has no rows yet", "collect it, or write it to Parquet and name the file"
        )
    if isinstance(source, list | tuple) and source:
        if isinstance(source[0], dict):
            return _table(pa.Table.from_pylist, source, "the list")
        if isinstance(source[0], list | tuple) or getattr(source[0], "ndim", 0) == 1:
            return _matrix(source)
    return source


def _table(made: Callable[[Any], pa.Table], source: Any, what: str) -> pa.Table:
    try:
        return made(source)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"{what} cannot become a table: {error}", "give each column values of one type") from error


def _matrix(rows: Sequence[Any]) -> NDArray[Any]:
    try:
        matrix = np.asarray(rows)
    except ValueError as error:
        raise DataError("the rows of the list have different lengths", "give each row the same columns") from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError("the list does not hold rows of numbers", "give rows of numbers, or a table with named columns")
    return matrix


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
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes):
        for part in source:
            if not (isinstance(part, pa.RecordBatch) or hasattr(part, "__arrow_c_stream__")):
                raise DataError(f"one of the batches is a {type(part).__name__}", _REMEDY)
            yield from _record_batches(part)
    else:
        raise DataError(f"cannot read rows from a {type(source).__name__}", _REMEDY)


def with_columns(batches: Iterable[pa.RecordBatch], added: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The batches with more columns: a value for each row."""
    known = {name: _one_axis(name, values) for name, values in added.items()}
    done = 0
    for batch in batches:
        stop = done + batch.num_rows
        for name, values in known.items():
            if name in batch.schema.names:
                raise DataError(
                    f"the table has a column '{name}', and an array for it is given as well", "give one of the two"
                )
            if stop > len(values):
                raise DataError(f"there are {_given(name, values)} and more rows", "give one for each row")
            batch = batch.append_column(name, plain_column(values[done:stop], f"the array for column '{name}'"))
        done = stop
        yield batch
    for name, values in known.items():
        if done != len(values):
            raise DataError(f"there are {_given(name, values)} and {counted(done, 'row')}", "give one for each row")


def _one_axis(name: str, values: Any) -> NDArray[Any]:
    known = np.asarray(values)
    if known.ndim == 2 and known.shape[1] == 1:
        known = known[:, 0]
    if known.ndim != 1:
        raise DataError(f"the array for column '{name}' has the shape {known.shape}", "give one value for each row")
    return known


def _given(name: str, values: NDArray[Any]) -> str:
    return f"{counted(len(values), 'value')} for column '{name}'"
