"""How the rows that a user gives become rows of features, in training and in prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.data.feature_maps import FeatureMap, found_map
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays
from streampgs.encoding.learning import learn
from streampgs.encoding.plan import plan_columns
from streampgs.encoding.rows import RowBlock
from streampgs.expressions.expression import columns_by_name
from streampgs.kernels.rows import Rows
from streampgs.model.scoring import TABLE
from streampgs.options.commands import EncodingOptions, ModelOptions
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


@dataclass(eq=False)
class FeatureRows(Rows):
    clipped: int = 0
    """How many rows have a number that was clipped."""


def feature_rows(
    bounds: NDArray[np.int64],
    indices: NDArray[np.uint32] | None,
    values: NDArray[np.float32],
    features: int,
    clipped: int = 0,
) -> FeatureRows:
    """Row r has entries [bounds[r], bounds[r + 1]); without indices each row has a number for each feature."""
    indices = np.empty(0, np.uint32) if indices is None else indices
    return FeatureRows(bounds[:-1], bounds[1:], indices, values, features=features, clipped=clipped)


@dataclass(frozen=True)
class Features:
    """Learned from the rows of the first fit, and part of the estimator. A matrix has a feature for each column, which is
    standardized if it is dense and the user did not turn that off; a table is encoded as in a run; kernel features replace
    those of both."""

    inner_layout: Literal["dense", "sparse"]
    inputs: int
    """How many features rows have before the kernel."""
    encoding: Encoding | None = None
    takes_tables: bool = False
    """Whether columns are found by their names."""
    kernel: FeatureMap | None = None

    @property
    def layout(self) -> Literal["dense", "sparse"]:
        return self.inner_layout if self.kernel is None else "dense"

    @property
    def features(self) -> int:
        return self.inputs if self.kernel is None else self.kernel.width

    def rows(self, given: Any, order: Order = None) -> Iterator[FeatureRows]:
        """The rows in batches, as the model takes them; all of them, or some in this order."""
        found = self._of_table(given, order) if self.takes_tables else self._of_matrix(matrix_of(given), order)
        return found if self.kernel is None else self._mapped(self.kernel, found)

    def matrix(self, rows: Rows) -> Any:
        """The rows as an array, or as a sparse matrix in CSR form."""
        if self.layout == "dense":
            return rows.values.reshape(len(rows), -1)
        from scipy.sparse import csr_array

        return csr_array((rows.values, rows.indices.astype(np.int64), rows.bounds), shape=(len(rows), rows.features))

    def scores(self, given: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """<w, x> for each row, a column for each row of weights."""
        return np.concatenate([self.matrix(part).astype(np.float64) @ weights.T for part in self.rows(given)])

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        """The name of a feature. `columns`: those of a matrix."""
        if self.kernel is not None:
            return self.kernel.name_of(feature, lambda inner: replace(self, kernel=None).name_of(inner, columns))
        if self.takes_tables and self.encoding is not None:
            return self.encoding.name_of(feature)
        return columns[feature]

    def with_kernel(self, given: Any, order: Order, options: ModelOptions) -> Features:
        """With the kernel of the options, found from the first of these rows: a random sample if they are in the order of
        content."""
        if options.kernel is None:
            return self
        first = next(iter(self.rows(given, order)))
        return replace(self, kernel=found_map(options, self.layout, self.features, first))

    def _mapped(self, kernel: FeatureMap, batches: Iterable[FeatureRows]) -> Iterator[FeatureRows]:
        for rows in batches:
            clipped = rows.clipped
            for piece in kernel.pieces(rows):
                values = piece.values.copy()  # the next piece takes its memory
                yield feature_rows(piece.bounds, None, values, self.features, clipped)
                clipped = 0

    def _of_matrix(self, given: Any, order: Order) -> Iterator[FeatureRows]:
        encoder = None if self.encoding is None else Encoder(self.encoding)
        is_dense = self.inner_layout == "dense"
        if not is_dense and not is_sparse(given):
            from scipy.sparse import csr_array

            given = csr_array(given)
        for numbers, part in _parts(given, order, min(_BATCH_ROWS, rows_a_slice(8 * self.inputs * is_dense))):
            if not is_dense:
                bounds, indices = np.asarray(part.indptr, np.int64), part.indices.astype(np.uint32)
                yield _finite(feature_rows(bounds, indices, _float32(part.data), self.inputs), numbers)
                continue
            part = part.toarray() if is_sparse(part) else part
            if encoder is not None:
                yield _checked(encoder.encode(_columns_of(part), len(part), (), None), numbers, self.inputs)
                continue
            values = _float32(np.where(np.isnan(part), 0.0, part))
            bounds = np.arange(len(part) + 1, dtype=np.int64) * self.inputs
            yield _finite(feature_rows(bounds, None, values.ravel(), self.inputs), numbers)

    def _of_table(self, given: Any, order: Order) -> Iterator[FeatureRows]:
        assert self.encoding is not None
        assert order is None, "Arrow cannot reorder columns of all types"
        if not is_arrow(given):
            names = ", ".join(column.name for column in self.encoding.own_columns)
            raise DataError(
                "an array, but the estimator was fitted to a table", f"give a table with the columns {names}"
            )
        find_layout(given.schema, Columns(None, encoding=self.encoding), TABLE)  # refuses columns of other types
        refuse_missing({TABLE: given.schema}, Columns(None, encoding=self.encoding))
        encoder, first = Encoder(self.encoding), 0
        for batch in given.to_batches(_BATCH_ROWS):
            numbers = np.arange(first, first + batch.num_rows)
            yield _checked(encoder.encode(columns_by_name(batch), batch.num_rows, (), None), numbers, self.inputs)
            first += batch.num_rows


def features_of_matrix(matrix: Any, order: NDArray[np.int64], options: EncodingOptions) -> Features:
    """`order`: by the content of the rows, so that its beginning is a random sample."""
    encoding, width = None, int(matrix.shape[1])
    if is_sparse(matrix):
        return Features("sparse", width)
    if options.standardize != "off":
        batch, on = _columns_of(matrix[order[:_SAMPLE_ROWS]]), EncodingOptions(standardize="on")
        schema = pa.schema([pa.field(_COLUMN, batch[_COLUMN].type)])
        encoding = learn(plan_columns(schema, on, {}, "the rows"), on, [batch])
    return Features("dense", width, encoding)


def features_of_table(table: pa.Table, counted: NDArray[np.int64], options: EncodingOptions) -> Features:
    """From the rows that are counted, or a random sample of them."""
    return of_encoding(
        learn(plan_columns(table.schema, options, {}, TABLE), options, sample_of(table, counted, options))
    )


def of_encoding(encoding: Encoding) -> Features:
    """Of the columns of tables."""
    if encoding.features is None:
        names = ", ".join(f"'{column.name}'" for column in encoding.all_columns if column.kind == "vector")
        raise DataError(
            f"column {names} holds sparse vectors, whose number of features is not known",
            "give the vectors as a scipy sparse matrix",
        )
    return Features("dense" if encoding.dense else "sparse", encoding.features, encoding, takes_tables=True)


def joined(parts: Iterable[FeatureRows], rows: int, features: Features) -> FeatureRows:
    """The rows of all batches, `rows` in number. Dense ones are copied as they come: they may be large."""
    if features.layout == "dense":
        values, first, clipped = np.empty(rows * features.features, np.float32), 0, 0
        for part in parts:
            values[first : first + len(part.values)] = part.values
            first += len(part.values)
            clipped += part.clipped
        return feature_rows(
            np.arange(rows + 1, dtype=np.int64) * features.features, None, values, features.features, clipped
        )
    found = list(parts)
    lengths = np.concatenate([part.stops - part.starts for part in found])
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = np.concatenate([part.indices for part in found])
    values, clipped = np.concatenate([part.values for part in found]), sum(part.clipped for part in found)
    return feature_rows(bounds, indices, values, features.features, clipped)


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
    return [columns_by_name(batch) for batch in some.to_batches(_BATCH_ROWS)]


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


def _checked(block: RowBlock, numbers: NDArray[np.int64], features: int) -> FeatureRows:
    faulty = np.flatnonzero(block.faults)
    if faulty.size:
        raise _bad_row(int(numbers[faulty].min()))
    assert block.values is not None
    indices = None if block.indices is None else block.indices.view(np.uint32)
    clipped = int(np.count_nonzero(block.clipped))
    return _finite(feature_rows(block.bounds, indices, _float32(block.values), features, clipped), numbers)


def _finite(rows: FeatureRows, numbers: NDArray[np.int64]) -> FeatureRows:
    bad = np.flatnonzero(~np.isfinite(rows.values))
    if bad.size:
        raise _bad_row(int(numbers[np.searchsorted(rows.stops, bad, side="right")].min()))
    return rows


def _bad_row(row: int) -> DataError:
    return DataError(
        f"row {row:,}: a feature is NaN, infinite or too large for 32 bits, or a list has another length", "fix the row"
    )
