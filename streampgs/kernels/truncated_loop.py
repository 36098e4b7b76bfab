"""The loop of the truncated gradient: a gradient step, then all weights shrink towards zero by step·l1, in O(nonzeros).

A weight that no row touches only shrinks, and shrinking by a and then by b equals shrinking by a + b. So the missed
shrinking of a weight is applied when a row touches it: `caught` holds the step count up to which each coordinate has
shrunk. The intercept (coordinate 0) does not shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.divergence import is_beyond
from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of

STEP = TARGET_ROWS
"""η."""
SHRINK = TARGET_ROWS + 1
"""η·l1."""
PARAMETERS = TARGET_ROWS + 2
LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = 2, 3, 4


@inlinable
def _catch_up(weights, caught, i, t, parameters):  # type: ignore[no-untyped-def]
    missed = t - caught[i]
    if missed > 0:
        for lane in range(weights.shape[1]):
            weight = weights[i, lane]
            weights[i, lane] = math.copysign(max(0.0, abs(weight) - missed * parameters[SHRINK, lane]), weight)
        caught[i] = t


@compiled
def settle(weights, caught, t, parameters):  # type: ignore[no-untyped-def]
    """Make up the missed shrinking of all weights."""
    for i in range(1, weights.shape[0]):
        _catch_up(weights, caught, i, t, parameters)


@cache
def advance_for(loss: LossFormulas, layout: str) -> Callable[..., int]:
    """advance(…): steps over rows [first, stop), `batch` rows a step; returns the step count after them. Each gradient,
    each shrinking and each step is counted `copies` times."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        weights, caught, stopped, tallies, parameters, starts, stops, indices, values, labels, row_weights, offsets, first,
        stop, batch, t, copies, intercept,
    ):  # fmt: skip
        lanes = weights.shape[1]
        scores = np.empty(lanes)
        changes = np.empty((batch, lanes))
        weighted, shifted = row_weights.size > 0, offsets.size > 0
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = copies / (batch_stop - batch_first)
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    scores[lane] = weights[0, lane] * intercept
                for j in range(starts[r], stops[r]):
                    i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                    _catch_up(weights, caught, i, t, parameters)
                    value = np.float64(values[j])
                    for lane in range(lanes):
                        scores[lane] += weights[i, lane] * value
                weight = row_weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    score = scores[lane] + parameters[BASE, lane] + offset * parameters[UNIT, lane]
                    label = label_of(labels, r, lane, parameters)
                    slope = weight * slope_of(score, label, parameters[SHAPE, lane])
                    change = -share * parameters[STEP, lane] * slope
                    if stopped[lane] > 0.0 or is_beyond(score, change):
                        stopped[lane] += 1.0
                        changes[r - batch_first, lane] = 0.0
                        continue
                    changes[r - batch_first, lane] = change
                    tallies[LOSS_TALLY, lane] += weight * value_of(score, label, parameters[SHAPE, lane])
                    tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                    tallies[WEIGHT_TALLY, lane] += weight
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    weights[0, lane] += changes[r - batch_first, lane] * intercept
                for j in range(starts[r], stops[r]):
                    i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                    value = np.float64(values[j])
                    for lane in range(lanes):
                        weights[i, lane] += changes[r - batch_first, lane] * value
            t += copies
        return t

    made: Callable[..., int] = advance
    return made
