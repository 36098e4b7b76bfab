"""Rows in an order that depends on their content alone: a weight of 2 and a row that comes twice are the same.

Rows of equal content become one row whose weight is the sum of theirs, rows of weight 0 disappear, and the others are
sorted by a 64-bit key of their content. So the model depends neither on the order in which rows are given nor on
how a weight is split into repeated rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels import randomness
from streampgs.kernels.randomness import STRIDE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

_ENTRIES_AT_ONCE = 1 << 20
# An epoch has at most so many visits, or so many for each different row, and one in addition for each.
_FEW_VISITS, _MOST_REPEATS = 1 << 16, 4
_HUGE = 4.0
"""Times the mean weight."""
_mix: Callable[[Keys], Keys] = randomness.mix


@dataclass(frozen=True)
class Distinct:
    picks: Ints
    """For each different row the number of the first row with its content."""
    weights: Floats
    """The sum over all rows of its content."""


def distinct(keys: Keys, labels: Floats, weights: Floats | None) -> Distinct:
    """The different pairs of a row and a label, in the order of their keys."""
    keys = with_numbers(keys, labels)
    weights = np.ones(len(keys)) if weights is None else weights
    counted = np.flatnonzero(weights > 0.0)
    _, first, group = np.unique(keys[counted], return_index=True, return_inverse=True)
    return Distinct(counted[first], np.asarray(np.bincount(group, weights[counted], len(first)), np.float64))


def dense_keys(matrix: NDArray[Any]) -> Keys:
    """A key of each row."""
    rows, width = matrix.shape
    keys, columns = np.zeros(rows, np.uint64), _column_words(np.arange(width))
    step = max(1, _ENTRIES_AT_ONCE // max(1, width))
    for first in range(0, rows, step):
        keys[first : first + step] = _entry_words(matrix[first : first + step], columns).sum(axis=1, dtype=np.uint64)
    return keys


def sparse_keys(bounds: Ints, indices: NDArray[Any], values: NDArray[Any]) -> Keys:
    """A key of each row; row r has entries [bounds[r], bounds[r + 1]). That of a dense row with the same numbers is the same."""
    sums, total = np.zeros(len(values) + 1, np.uint64), np.uint64(0)
    with np.errstate(over="ignore"):
        for first in range(0, len(values), _ENTRIES_AT_ONCE):
            part = slice(first, first + _ENTRIES_AT_ONCE)
            found = np.cumsum(_entry_words(values[part], _column_words(indices[part])), dtype=np.uint64) + total
            sums[first + 1 : first + 1 + len(found)], total = found, found[-1]
        return np.asarray(sums[bounds[1:]] - sums[bounds[:-1]])


def _column_words(columns: NDArray[Any]) -> Keys:
    with np.errstate(over="ignore"):
        return _mix(STRIDE * (columns.astype(np.uint64) + np.uint64(1)))


def _entry_words(values: NDArray[Any], columns: Keys) -> Keys:
    """0 for a zero, so that it makes no difference whether zeros are stored."""
    numbers = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        words = _mix(np.ascontiguousarray(numbers).view(np.uint64) + columns)
    words[numbers == 0.0] = 0
    return words


def with_numbers(keys: Keys, numbers: Floats) -> Keys:
    """Keys of rows that have another number."""
    words = np.ascontiguousarray(numbers + 0.0).view(np.uint64)  # -0.0 is 0.0
    with np.errstate(over="ignore"):
        return _mix(_mix(keys) + _mix(words + STRIDE))


def visits(weights: Floats) -> Ints:
    """How often each row is visited in an epoch, with an equal part of its weight each time.

    Whole numbers are repetitions, as far as that does not make an epoch much longer. Other weights are split only where they
    are huge, because one huge step would throw the model off: copies of a row in several folds of a cross-validation would
    make a candidate look better than it is.
    """
    if not weights.size:
        return np.empty(0, np.int64)
    if (weights == np.rint(weights)).all():
        most = max(_MOST_REPEATS * len(weights), _FEW_VISITS)
        unit = max(1.0, float(weights.sum()) / most)
    else:
        unit = _HUGE * float(weights.mean())
    return np.asarray(np.maximum(1, np.rint(weights / unit)), np.int64)
