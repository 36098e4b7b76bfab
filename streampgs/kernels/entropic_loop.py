"""The loop of PGS with the entropy as its regularizer (EG±). A step costs O(features), because the sum of all weights
changes: batches of rows share it.

λ is the negated sum of all sub-gradients. In the step after t others, with θ = λ / ((t + t0)σ),

    w_i = B·(e^{θ_i} - e^{-θ_i}) / (2 + Σ_j (e^{θ_j} + e^{-θ_j}))

over the features that rows have shown: those whose λ is not zero. The 2 is for a part of B that no feature takes. Powers are
those of θ - max |θ|, so nothing overflows. The intercept (coordinate 0) is not limited: w_0 = θ_0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of
from streampgs.kernels.vector_math import exp_of_negative

SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
RADIUS = TARGET_ROWS + 2
PARAMETERS = TARGET_ROWS + 3
LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = 2, 3, 4


@inlinable
def _fill(dual, weights, lane, clock, radius):  # type: ignore[no-untyped-def]
    """The weights of one lane."""
    largest = 0.0
    for i in range(1, dual.shape[0]):
        largest = max(largest, abs(dual[i, lane]))
    largest /= clock
    total = 2.0 * exp_of_negative(-largest)
    for i in range(1, dual.shape[0]):
        weight = 0.0
        if dual[i, lane] != 0.0:
            theta = dual[i, lane] / clock
            up, down = exp_of_negative(theta - largest), exp_of_negative(-theta - largest)
            total += up + down
            weight = up - down
        weights[i, lane] = weight
    for i in range(1, dual.shape[0]):
        weights[i, lane] *= radius / total
    weights[0, lane] = dual[0, lane] / clock


@compiled
def fill(dual, weights, t, parameters):  # type: ignore[no-untyped-def]
    """The weights of all lanes after t steps."""
    for lane in range(dual.shape[1]):
        _fill(dual, weights, lane, (t + parameters[T0, lane]) * parameters[SIGMA, lane], parameters[RADIUS, lane])


@cache
def advance_for(loss: LossFormulas, layout: str) -> Callable[..., int]:
    """advance(…): steps over rows [first, stop), `batch` rows a step; returns the step count after them. Each gradient and
    each step is counted `copies` times."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        dual, iterate_sum, tallies, parameters, starts, stops, indices, values, labels, row_weights, offsets, first, stop,
        batch, t, copies, intercept,
    ):  # fmt: skip
        lanes = dual.shape[1]
        weights, scores, slopes = np.empty(dual.shape), np.empty(lanes), np.empty((batch, lanes))
        weighted, shifted, one = row_weights.size > 0, offsets.size > 0, np.uint64(1)
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = copies / (batch_stop - batch_first)
            for lane in range(lanes):
                clock = (t + parameters[T0, lane]) * parameters[SIGMA, lane]
                _fill(dual, weights, lane, clock, parameters[RADIUS, lane])
            for i in range(dual.shape[0]):
                for lane in range(lanes):
                    iterate_sum[i, lane] += copies * weights[i, lane]
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    scores[lane] = weights[0, lane] * intercept
                for k in range(stops[r] - starts[r]):
                    j = starts[r] + k
                    feature = np.uint64(indices[j] if sparse else k) + one
                    for lane in range(lanes):
                        scores[lane] += weights[feature, lane] * values[j]
                weight = row_weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    score = scores[lane] + parameters[BASE, lane] + offset * parameters[UNIT, lane]
                    label = label_of(labels, r, lane, parameters)
                    slopes[r - batch_first, lane] = -share * weight * slope_of(score, label, parameters[SHAPE, lane])
                    tallies[LOSS_TALLY, lane] += weight * value_of(score, label, parameters[SHAPE, lane])
                    tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                    tallies[WEIGHT_TALLY, lane] += weight
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    dual[0, lane] += slopes[r - batch_first, lane] * intercept
                for k in range(stops[r] - starts[r]):
                    j = starts[r] + k
                    feature = np.uint64(indices[j] if sparse else k) + one
                    for lane in range(lanes):
                        dual[feature, lane] += slopes[r - batch_first, lane] * values[j]
            t += copies
        return t

    made: Callable[..., int] = advance
    return made
