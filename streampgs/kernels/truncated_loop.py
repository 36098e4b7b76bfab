"""The loop of the truncated gradient: a gradient step, then all weights shrink towards zero by step·l1, in O(nonzeros).

A weight that no row touches only shrinks, and shrinking by a and then by b equals shrinking by a + b. So the missed
shrinking of a weight is applied when a row touches it: `caught` holds the step count up to which each coordinate has
shrunk. The intercept (coordinate 0) does not shrink.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.row_steps import STEP, Steps, dot_and_add

SHRINK = STEP + 1
"""η·l1."""
PARAMETERS = STEP + 2


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
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are the weights and up to which step they have shrunk."""
    sparse = layout == "sparse"
    plain_dot, add = dot_and_add(layout)

    @inlinable
    def begin(weights, caught, none, room, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        multipliers[:] = 1.0

    @inlinable
    def dot(weights, caught, none, room, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        for j in range(start, stop):
            _catch_up(weights, caught, (np.int64(indices[j]) if sparse else j - start) + 1, t, parameters)
        plain_dot(weights, indices, values, start, stop, intercept, sums)

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        weights, caught, none, room, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        add(weights, indices, values, start, stop, intercept, changes, k)

    return Steps(begin, dot, move, fixed=True)
