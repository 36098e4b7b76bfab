"""From rows, labels and weights to a trained model, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.data.distinct import Floats, dense_keys, distinct, sparse_keys, visits
from streampgs.data.memory import MemoryRows
from streampgs.encoding.encoding import Encoding
from streampgs.estimators.features import (
    Features,
    MatrixFeatures,
    Rows,
    SparseFeatures,
    TableFeatures,
    is_arrow,
    is_sparse,
    joined,
)
from streampgs.options import EncodingOptions


@dataclass(frozen=True)
class Given:
    """What a user gave: a matrix of numbers, a sparse matrix in CSR form or a table, with a label and a weight for each row."""

    rows: Any
    labels: Floats
    """Numbers of classes, or the numbers to predict."""
    weights: Floats | None
    factors: Floats | None = None
    """By which the weights of the rows of each class are multiplied."""

    def weights_with_factors(self) -> Floats | None:
        if self.factors is None:
            return self.weights
        found = self.factors[self.labels.astype(np.intp)]
        return found if self.weights is None else found * self.weights


@dataclass(frozen=True)
class Ordered:
    """One row for each different content, in the order of their contents. Rows of a table are compared after they were
    encoded: until then all of them are here."""

    given: Given
    picks: NDArray[np.int64] | None
    """None: all rows."""
    labels: Floats
    weights: Floats | None

    @staticmethod
    def of(given: Given) -> Ordered:
        rows = given.rows
        if is_arrow(rows):
            return Ordered(given, None, given.labels, given.weights)
        sparse = is_sparse(rows)
        keys = sparse_keys(np.asarray(rows.indptr, np.int64), rows.indices, rows.data) if sparse else dense_keys(rows)
        found = distinct(keys, given.labels, given.weights)
        return Ordered(given, found.picks, given.labels[found.picks], found.weights)

    def learned_features(self, options: EncodingOptions) -> Features:
        rows = self.given.rows
        if is_sparse(rows):
            return SparseFeatures(rows.shape[1])
        if self.picks is None:
            counted = np.arange(len(rows)) if self.weights is None else np.flatnonzero(self.weights > 0.0)
            return TableFeatures.learned(rows, counted, options)
        return MatrixFeatures.learned(rows, self.picks, options)

    def rows(self, features: Features) -> Rows:
        return joined(features.rows(self.given.rows, self.picks), len(self.labels), features)

    def memory_rows(self, rows: Rows, classes: int) -> MemoryRows:
        """`classes`: 0 for numbers."""
        labels, weights, picks = self.labels, self.weights, np.arange(len(rows))
        if self.picks is None:
            found = distinct(_keys(rows), labels, weights)
            picks, labels, weights = found.picks, labels[found.picks], found.weights
        if weights is not None:
            times = visits(weights)
            picks, labels, weights = (
                np.repeat(picks, times),
                np.repeat(labels, times),
                np.repeat(weights / times, times),
            )
        if self.given.factors is not None:
            factors = self.given.factors[labels.astype(np.intp)]
            weights = factors if weights is None else weights * factors
        weights = None if weights is None else weights / weights.mean()
        targets = 2.0 * labels - 1.0 if classes == 2 else labels
        return MemoryRows(
            rows.bounds[picks], rows.bounds[picks + 1],
            np.empty(0, np.uint32) if rows.indices is None else rows.indices,
            rows.values, np.asarray(targets, np.float64),
            np.empty(0) if weights is None or (weights == 1.0).all() else weights, rows.features,
        )  # fmt: skip


def features_of(given: Given, encoding: Encoding | None, features: int) -> Features:
    """Of a model that was trained on such rows."""
    if is_sparse(given.rows):
        return SparseFeatures(given.rows.shape[1])
    if is_arrow(given.rows):
        assert encoding is not None
        return TableFeatures(encoding)
    return MatrixFeatures(encoding, features)


def _keys(rows: Rows) -> NDArray[np.uint64]:
    if rows.indices is None:
        return dense_keys(rows.values.reshape(len(rows), -1))
    return sparse_keys(rows.bounds, rows.indices, rows.values)
