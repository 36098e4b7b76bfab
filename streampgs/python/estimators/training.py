"""From rows, labels and weights to a trained model, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.data.distinct import Floats, dense_keys, distinct, sparse_keys, visits, with_numbers
from streampgs.kernels.rows import Rows as RowsToVisit
from streampgs.options.commands import EncodingOptions
from streampgs.options.fields import options_of
from streampgs.python.estimators.features import (
    Features,
    MatrixFeatures,
    Rows,
    SparseFeatures,
    TableFeatures,
    is_arrow,
    is_sparse,
    joined,
    matrix_of,
    numbers_of,
)


@dataclass(frozen=True)
class Given:
    """What a user gave: a matrix of numbers, a sparse matrix in CSR form or a table, with a label and a weight for each row."""

    rows: Any
    labels: Floats
    """Numbers of classes, or the numbers to predict."""
    weights: Floats | None
    offsets: Floats | None
    factors: Floats | None = None
    """By which the weights of the rows of each class are multiplied."""
    table: pa.Table | None = None
    """The rows as columns with names, if they were given so."""

    @property
    def counted(self) -> NDArray[np.int64]:
        """The rows whose weight is not 0."""
        return np.arange(len(self.labels)) if self.weights is None else np.flatnonzero(self.weights > 0.0)

    @property
    def all_weights(self) -> Floats | None:
        """Of rows and their classes."""
        if self.factors is None:
            return self.weights
        found = self.factors[self.labels.astype(np.intp)]
        return found if self.weights is None else found * self.weights

    def as_features(self, options: EncodingOptions, known: Features | None) -> Given:
        """A table of numbers becomes a matrix, unless options choose columns. `known`: the features of the fit before."""
        usual = EncodingOptions()
        chosen = [name for name in options_of(EncodingOptions) if getattr(options, name) != getattr(usual, name)]
        chosen = [name for name in chosen if name != "standardize"]
        if not is_arrow(self.rows):
            if chosen:
                raise DataError(f"{chosen[0]}=… with rows that have no named columns", "leave it out, or give a table")
            return self
        as_table = bool(chosen) if known is None else known.takes_tables
        numbers = None if as_table else numbers_of(self.rows)
        return replace(self, rows=self.rows if numbers is None else numbers, table=self.rows)

    def and_then(self, more: Given) -> Given:
        """The rows of both, as they were given."""
        weights = None
        if self.weights is not None or more.weights is not None:
            weights = np.concatenate(
                [np.ones(len(each.labels)) if each.weights is None else each.weights for each in (self, more)]
            )
        shifted = self.offsets is not None and more.offsets is not None
        offsets = np.concatenate([self.offsets, more.offsets]) if shifted else None
        labels = np.concatenate([self.labels, more.labels])
        return Given(_stacked(self.rows, more.rows), labels, weights, offsets)


def _stacked(first: Any, second: Any) -> Any:
    if is_arrow(first) and is_arrow(second):
        try:
            return pa.concat_tables([first, second], promote_options="permissive")
        except pa.ArrowException as fault:
            raise DataError(
                f"columns of other types than in the call before: {fault}",
                "give the columns of all calls the same types",
            ) from fault
    first, second = matrix_of(first), matrix_of(second)
    if is_sparse(first):
        from scipy.sparse import csr_array, vstack

        return vstack([first, csr_array(second)], format="csr")
    return np.concatenate([first, second.toarray() if is_sparse(second) else second])


@dataclass(frozen=True)
class Ordered:
    """One row for each different content, in the order of their contents. Rows of a table are compared after they were
    encoded: until then all of them are here."""

    given: Given
    picks: NDArray[np.int64] | None
    """None: all rows."""
    labels: Floats
    weights: Floats | None
    offsets: Floats | None

    @staticmethod
    def of(given: Given) -> Ordered:
        rows = given.rows
        if is_arrow(rows):
            return Ordered(given, None, given.labels, given.weights, given.offsets)
        sparse = is_sparse(rows)
        keys = sparse_keys(np.asarray(rows.indptr, np.int64), rows.indices, rows.data) if sparse else dense_keys(rows)
        return Ordered(given, None, given.labels, given.weights, given.offsets).distinct(keys)

    def distinct(self, keys: NDArray[np.uint64]) -> Ordered:
        """`keys`: of the contents of the rows."""
        keys = keys if self.offsets is None else with_numbers(keys, self.offsets)
        found = distinct(keys, self.labels, self.weights)
        offsets = None if self.offsets is None else self.offsets[found.picks]
        return Ordered(self.given, found.picks, self.labels[found.picks], found.weights, offsets)

    def learned_features(self, options: EncodingOptions) -> Features:
        rows = self.given.rows
        if is_sparse(rows):
            return SparseFeatures(rows.shape[1])
        if self.picks is None:
            return TableFeatures.learned(rows, self.given.counted, options)
        return MatrixFeatures.learned(rows, self.picks, options)

    def rows(self, features: Features) -> Rows:
        return joined(features.rows(self.given.rows, self.picks), len(self.labels), features)

    def memory_rows(self, rows: Rows, classes: int) -> RowsToVisit:
        """`classes`: 0 for numbers."""
        ordered = self if self.picks is not None else self.distinct(_keys(rows))
        assert ordered.picks is not None
        assert ordered.weights is not None
        times = visits(ordered.weights)
        order = np.repeat(np.arange(len(times)), times)
        picks = order if ordered is self else ordered.picks[order]
        labels, weights = ordered.labels[order], (ordered.weights / times)[order]
        offsets = np.empty(0) if ordered.offsets is None else ordered.offsets[order]
        if self.given.factors is not None:
            weights = weights * self.given.factors[labels.astype(np.intp)]
        weights = weights / weights.mean()
        targets = 2.0 * labels - 1.0 if classes == 2 else labels
        return RowsToVisit(
            rows.bounds[picks], rows.bounds[picks + 1],
            np.empty(0, np.uint32) if rows.indices is None else rows.indices,
            rows.values, np.asarray(targets, np.float64),
            np.empty(0) if (weights == 1.0).all() else weights, offsets, features=rows.features,
        )  # fmt: skip


def _keys(rows: Rows) -> NDArray[np.uint64]:
    if rows.indices is None:
        return dense_keys(rows.values.reshape(len(rows), -1))
    return sparse_keys(rows.bounds, rows.indices, rows.values)
