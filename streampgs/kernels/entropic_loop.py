"""The loop of PGS with the entropy as its regularizer (EG±). A step costs O(features), because the sum of all weights
changes: batches of rows share it.

λ is the negated sum of all sub-gradients. In the step after t others, with θ = λ / ((t + t0)σ),

    w_i = B·(e^{θ_i} - e^{-θ_i}) / (2 + Σ_j (e^{θ_j} + e^{-θ_j}))

over the features that rows have shown: those whose λ is not zero. The 2 is for a part of B that no feature takes. Powers are
those of θ - max |θ|, so nothing overflows. The intercept (coordinate 0) is not limited: w_0 = θ_0.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.row_steps import TARGET_ROWS, Steps, dot_and_add
from streampgs.kernels.vector_math import exp_of_negative

SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
RADIUS = TARGET_ROWS + 2
PARAMETERS = TARGET_ROWS + 3


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
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are λ and the sum of iterates."""
    dot_of, add = dot_and_add(layout)

    @inlinable
    def begin(dual, iterate_sum, none, weights, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        for lane in range(multipliers.size):
            multipliers[lane] = 1.0
            _fill(dual, weights, lane, (t + parameters[T0, lane]) * parameters[SIGMA, lane], parameters[RADIUS, lane])
        for i in range(dual.shape[0]):
            for lane in range(multipliers.size):
                iterate_sum[i, lane] += copies * weights[i, lane]

    @inlinable
    def dot(dual, iterate_sum, none, weights, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        dot_of(weights, indices, values, start, stop, intercept, sums)

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        dual, iterate_sum, none, weights, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        add(dual, indices, values, start, stop, intercept, changes, k)

    @inlinable
    def room(dual, rows, first, stop):  # type: ignore[no-untyped-def]
        return np.empty(dual.shape)

    return Steps(begin, dot, move, room=room)
