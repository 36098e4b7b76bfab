"""How the rows that a user gives become rows of features, in training and in prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.encoding.rows import RowBlock
from streampgs.model.scoring import TABLE
from streampgs.options.commands import EncodingOptions
from streampgs.reading.array_slices import rows_a_slice
from streampgs.table.layout import Columns, find_layout, refuse_missing

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

    @property
    def takes_tables(self) -> bool:
        """Whether columns are found by their names."""

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        """The rows in batches, as the model takes them; all of them, or some in this order."""

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        """The name of a feature. `columns`: those of a matrix."""


class MatrixFeatures:
    """A feature for each column of numbers, standardized unless the user turned it off."""

    layout: Literal["dense", "sparse"] = "dense"
    takes_tables = False

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
        given, encoder = matrix_of(given), None if self.encoding is None else Encoder(self.encoding)
        step = min(_BATCH_ROWS, rows_a_slice(8 * self.features))
        for numbers, part in _parts(given, order, step):
            part = part.toarray() if is_sparse(part) else part
            if encoder is not None:
                yield _checked(encoder.encode(_columns_of(part), len(part), (), None), numbers, self.features)
            else:
                values = _float32(np.where(np.isnan(part), 0.0, part))
                bounds = np.arange(len(part) + 1, dtype=np.int64) * self.features
                yield _finite(Rows(bounds, None, values.ravel(), self.features), numbers)

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        return columns[feature]


class SparseFeatures:
    """A feature for each column of a sparse matrix, as it is."""

    layout: Literal["dense", "sparse"] = "sparse"
    takes_tables = False
    encoding: Encoding | None = None

    def __init__(self, features: int) -> None:
        self.features = features

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        given = matrix_of(given)
        if not is_sparse(given):
            from scipy.sparse import csr_array

            given = csr_array(given)
        for numbers, part in _parts(given, order, _BATCH_ROWS):
            bounds, values = np.asarray(part.indptr, np.int64), _float32(part.data)
            yield _finite(Rows(bounds, part.indices.astype(np.uint32), values, self.features), numbers)

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        return columns[feature]


class TableFeatures:
    """Columns of numbers, strings, text, times and lists, encoded as in a run on a table."""

    takes_tables = True

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
        plan = plan_columns(table.schema, options, {}, TABLE)
        return TableFeatures(learn(plan, options, sample_of(table, counted, options)))

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        assert self.encoding is not None
        if not is_arrow(given):
            names = ", ".join(column.name for column in self.encoding.all_columns)
            raise DataError(
                "an array, but the estimator was fitted to a table", f"give a table with the columns {names}"
            )
        find_layout(given.schema, Columns(None, encoding=self.encoding), TABLE)  # refuses columns of other types
        refuse_missing({TABLE: given.schema}, Columns(None, encoding=self.encoding))
        encoder, first = Encoder(self.encoding), 0
        assert order is None, "Arrow cannot reorder columns of all types"
        for batch in given.to_batches(_BATCH_ROWS):
            numbers = np.arange(first, first + batch.num_rows)
            yield _checked(encoder.encode(_arrays(batch), batch.num_rows, (), None), numbers, self.features)
            first += batch.num_rows

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        assert self.encoding is not None
        return self.encoding.name_of(feature)


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


def matrix_of(given: Any) -> Any:
    """A table of numbers as a matrix; a matrix as it is."""
    if not is_arrow(given):
        return given
    numbers = numbers_of(given)
    if numbers is None:
        raise DataError("a column that does not hold numbers", "give columns of numbers, as the first fit had them")
    return numbers


def sample_of(table: pa.Table, counted: NDArray[np.int64], options: EncodingOptions) -> list[Arrays]:
    """A random sample of the rows that are counted."""
    some = _rows_in(table, _sampled(counted, options.hash_seed))
    return [_arrays(batch) for batch in some.to_batches(_BATCH_ROWS)]


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


def _parts(matrix: Any, order: Order, step: int) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """The rows in batches, and their numbers."""
    numbers = np.arange(matrix.shape[0]) if order is None else order
    for first in range(0, len(numbers), step):
        batch = slice(first, first + step)
        yield numbers[batch], matrix[batch if order is None else order[batch]]


def _float32(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers that are too large become infinite, which is refused."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers, np.float32)


def _checked(block: RowBlock, numbers: NDArray[np.int64], features: int) -> Rows:
    faulty = np.flatnonzero(block.faults)
    if faulty.size:
        raise _bad_row(int(numbers[faulty].min()))
    assert block.values is not None
    indices = None if block.indices is None else block.indices.view(np.uint32)
    clipped = int(np.count_nonzero(block.clipped))
    return _finite(Rows(block.bounds, indices, _float32(block.values), features, clipped), numbers)


def _finite(rows: Rows, numbers: NDArray[np.int64]) -> Rows:
    bad = np.flatnonzero(~np.isfinite(rows.values))
    if bad.size:
        raise _bad_row(int(numbers[np.searchsorted(rows.bounds, bad, side="right") - 1].min()))
    return rows


def _bad_row(row: int) -> DataError:
    return DataError(
        f"row {row:,}: a feature is NaN, infinite or too large for 32 bits, or a list has another length", "fix the row"
    )
