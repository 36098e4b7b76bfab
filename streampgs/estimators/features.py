"""How the rows that a user gives become rows of features, in training and in prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.encoding.rows import RowBlock
from streampgs.errors import DataError
from streampgs.options import EncodingOptions

_SAMPLE_ROWS = 1 << 16
_BATCH_ROWS = 1 << 13
_BLOCK_ROWS = 1 << 7
_COLUMN = "features"


def is_table(rows: Any) -> bool:
    """Whether rows have columns with names and types of their own."""
    if isinstance(rows, pa.ChunkedArray) or len(getattr(rows, "shape", (0, 0))) != 2:  # a single column
        return False
    return hasattr(rows, "__arrow_c_stream__") or isinstance(rows, pa.RecordBatch)


def is_arrow(rows: Any) -> bool:
    return isinstance(rows, pa.Table)


def is_sparse(rows: Any) -> bool:
    return hasattr(rows, "indptr")


Order = NDArray[np.int64] | None


@dataclass(frozen=True)
class Rows:
    """Rows of features; row r has entries [bounds[r], bounds[r + 1])."""

    bounds: NDArray[np.int64]
    indices: NDArray[np.uint32] | None
    """None: each row has a number for each feature."""
    values: NDArray[np.float32]
    features: int
    clipped: int = 0
    """How many rows have a number that was clipped."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def scores(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """<w, x> for each row, a column for each row of weights."""
        if self.indices is None:
            return np.asarray(self.values.reshape(len(self), -1).astype(np.float64) @ weights.T)
        from scipy.sparse import csr_array

        known = self.values.astype(np.float64), self.indices.astype(np.int64), self.bounds
        return np.asarray(csr_array(known, shape=(len(self), self.features)) @ weights.T)


class Features(Protocol):
    """Learned from the rows of the first fit, and part of the estimator."""

    layout: Literal["dense", "sparse"]
    encoding: Encoding | None
    features: int

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        """The rows in batches, as the model takes them; all of them, or some in this order."""


class MatrixFeatures:
    """A feature for each column of numbers, standardized unless the user turned it off."""

    layout: Literal["dense", "sparse"] = "dense"

    def __init__(self, encoding: Encoding | None, features: int) -> None:
        self.encoding, self.features = encoding, features

    @staticmethod
    def learned(matrix: NDArray[Any], order: NDArray[np.int64], options: EncodingOptions) -> MatrixFeatures:
        """`order`: by the content of the rows, so that its beginning is a random sample."""
        encoding = None
        if options.standardize != "off":
            batch = _columns_of(matrix[order[:_SAMPLE_ROWS]])
            schema = pa.schema([pa.field(_COLUMN, batch[_COLUMN].type)])
            plan = plan_columns(schema, EncodingOptions(standardize="on"), {}, "the rows")
            encoding = learn(plan, EncodingOptions(standardize="on"), [batch])
        return MatrixFeatures(encoding, int(matrix.shape[1]))

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        encoder = None if self.encoding is None else Encoder(self.encoding)
        for first in range(0, given.shape[0] if order is None else len(order), _BATCH_ROWS):
            batch = slice(first, first + _BATCH_ROWS)
            part = given[batch if order is None else order[batch]]
            part = part.toarray() if is_sparse(part) else part
            if encoder is not None:
                yield _checked(encoder.encode(_columns_of(part), len(part), (), None), first, self.features)
            else:
                values = np.asarray(np.where(np.isnan(part), 0.0, part), np.float32)
                bounds = np.arange(len(part) + 1, dtype=np.int64) * self.features
                yield _finite(Rows(bounds, None, values.ravel(), self.features), first)


class SparseFeatures:
    """A feature for each column of a sparse matrix, as it is."""

    layout: Literal["dense", "sparse"] = "sparse"
    encoding: Encoding | None = None

    def __init__(self, features: int) -> None:
        self.features = features

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        if not is_sparse(given):
            from scipy.sparse import csr_array

            given = csr_array(given)
        given = given if order is None else given[order]
        bounds = np.asarray(given.indptr, np.int64)
        values = given.data.astype(np.float32)
        yield _finite(Rows(bounds, given.indices.astype(np.uint32), values, self.features), 0)


class TableFeatures:
    """Columns of numbers, strings, text, times and lists, encoded as in a run on a table."""

    def __init__(self, encoding: Encoding) -> None:
        if encoding.features is None:
            names = ", ".join(f"'{column.name}'" for column in encoding.all_columns if column.kind == "vector")
            raise DataError(
                f"column {names} holds sparse vectors, whose number of features is not known",
                "give the vectors as a scipy sparse matrix",
            )
        self.encoding: Encoding | None = encoding
        self.features = encoding.features
        self.layout: Literal["dense", "sparse"] = "dense" if encoding.dense else "sparse"

    @staticmethod
    def learned(table: pa.Table, counted: NDArray[np.int64], options: EncodingOptions) -> TableFeatures:
        """From the rows that are counted, or a random sample of them."""
        table = _rows_in(table, _sampled(counted, options.hash_seed))
        sample = [_arrays(batch) for batch in table.to_batches(_BATCH_ROWS)]
        return TableFeatures(learn(plan_columns(table.schema, options, {}, "the table"), options, sample))

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        assert self.encoding is not None
        if not is_arrow(given):
            names = ", ".join(column.name for column in self.encoding.all_columns)
            raise DataError(
                "an array, but the estimator was fitted to a table", f"give a table with the columns {names}"
            )
        encoder, first = Encoder(self.encoding), 0
        assert order is None, "Arrow cannot reorder columns of all types"
        for batch in given.to_batches(_BATCH_ROWS):
            yield _checked(encoder.encode(_arrays(batch), batch.num_rows, (), None), first, self.features)
            first += batch.num_rows


def joined(parts: Iterable[Rows], rows: int, features: Features) -> Rows:
    """The rows of all batches, `rows` in number. Dense ones are copied as they come: they may be large."""
    if features.layout == "dense":
        values, first, clipped = np.empty(rows * features.features, np.float32), 0, 0
        for part in parts:
            values[first : first + len(part.values)] = part.values
            first += len(part.values)
            clipped += part.clipped
        return Rows(np.arange(rows + 1, dtype=np.int64) * features.features, None, values, features.features, clipped)
    found = list(parts)
    lengths = np.concatenate([np.diff(part.bounds) for part in found])
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate([part.indices for part in found if part.indices is not None])
    values, clipped = np.concatenate([part.values for part in found]), sum(part.clipped for part in found)
    return Rows(bounds, indices, values, features.features, clipped)


# Tables.


def as_table(given: Any) -> pa.Table:
    """The columns of a table of pandas, polars, DuckDB, pyarrow or another library."""
    try:
        if hasattr(given, "iloc"):  # pandas, whose index would become a column
            return pa.Table.from_pandas(given, preserve_index=False)
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        return pa.RecordBatchReader.from_stream(given).read_all()
    except pa.ArrowException as fault:
        raise DataError(f"a column cannot be read: {fault}", "give each column values of one type") from fault


def numbers_of(table: pa.Table) -> NDArray[np.float64] | None:
    """The columns as a matrix, missing values as NaN; None if a column does not hold numbers."""
    if not table.num_columns or any(types.class_of(field.type) != types.NUMBER for field in table.schema):
        return None
    columns = [types.floats_of(types.plain(column)) for column in table.columns]
    return np.column_stack(columns)


def _sampled(counted: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Some random blocks of the rows, in ascending order."""
    blocks = len(counted) // _BLOCK_ROWS
    if len(counted) <= _SAMPLE_ROWS:
        return counted
    drawn = np.sort(np.random.default_rng(seed).permutation(blocks)[: _SAMPLE_ROWS // _BLOCK_ROWS])
    places = (drawn[:, np.newaxis] * _BLOCK_ROWS + np.arange(_BLOCK_ROWS)).ravel()
    return np.asarray(counted[places])


def _rows_in(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """These rows, in ascending order. By slices, because Arrow cannot take or filter columns of all types."""
    if len(rows) == table.num_rows:
        return table
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return pa.concat_tables([table.slice(int(run[0]), len(run)) for run in runs])


# Batches.


def _arrays(batch: pa.RecordBatch) -> Arrays:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _columns_of(matrix: NDArray[Any]) -> Arrays:
    """A list of numbers for each row. NaN is a missing value: it was accepted before."""
    flat = np.ascontiguousarray(matrix).reshape(-1)
    missing = np.isnan(flat)
    values = pa.array(flat, mask=missing if missing.any() else None)
    return {_COLUMN: pa.FixedSizeListArray.from_arrays(values, matrix.shape[1])}


def _checked(block: RowBlock, first: int, features: int) -> Rows:
    faulty = np.flatnonzero(block.faults)
    if faulty.size:
        raise _bad_row(first + int(faulty[0]))
    assert block.values is not None
    indices = None if block.indices is None else block.indices.view(np.uint32)
    clipped = int(np.count_nonzero(block.clipped))
    return _finite(Rows(block.bounds, indices, np.asarray(block.values, np.float32), features, clipped), first)


def _finite(rows: Rows, first: int) -> Rows:
    bad = np.flatnonzero(~np.isfinite(rows.values))
    if bad.size:
        raise _bad_row(first + int(np.searchsorted(rows.bounds, bad[0], side="right")) - 1)
    return rows


def _bad_row(row: int) -> DataError:
    return DataError(
        f"row {row:,}: a feature is NaN, infinite or too large for 32 bits, or a list has another length", "fix the row"
    )
