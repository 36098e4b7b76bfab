"""Which pairs of columns predict better together than alone: a test on the residuals of a model without crosses.

A model of one half of a sample scores the other half, so that residuals are those of rows it was not trained on. For each pair
of columns the combinations of their values get Newton steps from the residuals of one half, which are tested on the other. The
halves are in the order of the table: in a table that is sorted by time, what holds at one time only gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import expit

from streampgs.encoding import types
from streampgs.encoding.kinds.category import Category
from streampgs.encoding.kinds.kind import Arrays, Column
from streampgs.encoding.kinds.number import Number
from streampgs.kernels.cross_loop import pair_gains
from streampgs.losses import Vector

Pair = tuple[str, str]

FEWEST_ROWS = 1_000
MOST_CROSSES = 16
_MOST_COLUMNS = 40
_BINS, _OWN_CODES, _SHARED_CODES = 8, 192, 64
_PULL = 15.0
"""Rows of the mean curvature that want no step."""
_ERRORS = 3.0
"""A gain must be so many standard errors above 0: there are hundreds of pairs."""
_LEAST_SHARE = 0.02
"""Of the best gain."""


def crossable(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.kind in (Number.name, Category.name)]


def found_crosses(
    columns: Sequence[Column],
    batches: Sequence[Arrays],
    used: NDArray[np.int64],
    scores: Vector,
    labels: Vector,
    loss: str,
) -> list[Pair]:
    """The pairs with the largest gains, the best first. `used`: the rows of the batches that have scores and labels, which are a
    line for each target."""
    columns = crossable(columns)
    if loss not in _RESIDUALS:
        return []
    codes = np.stack([*(_codes(column, batches)[used] for column in columns), np.zeros(len(used), np.int64)])
    alone = [(place, len(columns)) for place in range(len(columns))]
    centred = labels - labels.mean(axis=1, keepdims=True)
    spread = _gains(codes, alone, centred, np.ones_like(labels))[:, 0]
    chosen = np.sort(np.argsort(-spread, kind="stable")[:_MOST_COLUMNS]).tolist()
    slopes, curvatures = _RESIDUALS[loss](scores, labels)
    own = np.maximum(0.0, _gains(codes, alone, slopes, curvatures)[:, 0])
    pairs = list(combinations(chosen, 2))
    together, errors = _gains(codes, pairs, slopes, curvatures).T
    gains = together - np.array([own[a] + own[b] for a, b in pairs])
    best = [k for k in np.argsort(-gains, kind="stable")[:MOST_CROSSES].tolist() if gains[k] > _ERRORS * errors[k]]
    best = [k for k in best if gains[k] >= _LEAST_SHARE * gains[best[0]]]
    return [(columns[pairs[k][0]].name, columns[pairs[k][1]].name) for k in best]


def _of_logistic(scores: Vector, labels: Vector) -> tuple[Vector, Vector]:
    """Minus the first and the second derivative of the loss by the score."""
    chances = expit(scores)
    return (labels > 0.0) - chances, chances * (1.0 - chances)


def _of_squared(scores: Vector, labels: Vector) -> tuple[Vector, Vector]:
    return labels - scores, np.ones_like(scores)


_RESIDUALS: dict[str, Callable[[Vector, Vector], tuple[Vector, Vector]]] = {
    "logistic": _of_logistic,
    "squared": _of_squared,
}


def _gains(codes: NDArray[np.int64], pairs: Sequence[tuple[int, int]], slopes: Vector, curvatures: Vector) -> Vector:
    """For each pair of lines of codes the gain of a row, and its standard error."""
    out = np.empty((len(pairs), 2))
    pair_gains(codes, codes.max(axis=1) + 1, np.array(pairs, np.int64), slopes, curvatures, _PULL, out)
    return out


def _codes(column: Column, batches: Sequence[Arrays]) -> NDArray[np.int64]:
    """A number for the value of each row: the bin of a number, the rank of a frequent category. Rare ones share numbers."""
    parts = [types.undictionaried(types.leaf(batch, column.name)) for batch in batches]
    if column.kind == Category.name:
        texts = pa.chunked_array([types.as_text(part).cast(pa.large_string()) for part in parts])
        coded = texts.combine_chunks().dictionary_encode().indices
        found = np.asarray(pc.fill_null(coded, -1).to_numpy(zero_copy_only=False), np.int64) + 1
        ranks = np.empty(int(found.max(initial=0)) + 1, np.int64)
        ranks[np.argsort(-np.bincount(found, minlength=len(ranks)), kind="stable")] = np.arange(len(ranks))
        found = ranks[found]
        return np.where(found < _OWN_CODES, found, _OWN_CODES + found % _SHARED_CODES)
    values = np.concatenate([types.floats_of(part) for part in parts])
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values), np.int64)
    edges = np.unique(np.quantile(values[known], np.linspace(0.0, 1.0, _BINS + 1)[1:-1], method="inverted_cdf"))
    return np.where(known, np.searchsorted(edges, values, side="left"), _BINS)
