"""The steps of SGD and of the truncated gradient, in O(nonzeros).

SGD multiplies all weights by 1 - η·σ in each step. So w = a·v is kept as a number a and a vector v, and the sum of all iterates
as S·v + u, where S is the sum of a: only the coordinates of the row change in v, and they are corrected in u. When a has become
small, it is multiplied into v, and S·v is added to u.

In the truncated gradient all weights shrink towards zero by step·l1 after each step. A weight that no row touches only shrinks,
and shrinking by a and then by b equals shrinking by a + b. So the missed shrinking of a weight is applied when a row touches it:
`caught` holds the step count up to which each coordinate has shrunk. The intercept (coordinate 0) does not shrink.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.row_steps import STEP, Steps, dot_and_add

DECAY = SHRINK = STEP + 1
"""1 - η·σ of SGD, and η·l1 of the truncated gradient."""
PARAMETERS = STEP + 2
SCALE, SCALE_SUM = 0, 1
"""Rows of the array of scalars: a and S."""
# Below, S·v + u would lose digits by cancellation.
_SMALLEST_SCALE = 2.0**-20


@inlinable
def _fold(direction, iterate_sum, scalars):  # type: ignore[no-untyped-def]
    """a becomes 1, and S becomes 0."""
    for i in range(direction.shape[0]):
        for lane in range(direction.shape[1]):
            iterate_sum[i, lane] += scalars[SCALE_SUM, lane] * direction[i, lane]
            direction[i, lane] *= scalars[SCALE, lane]
    scalars[SCALE], scalars[SCALE_SUM] = 1.0, 0.0


@compiled
def fold(direction, iterate_sum, scalars):  # type: ignore[no-untyped-def]
    _fold(direction, iterate_sum, scalars)


@cache
def sgd_steps(layout: str) -> Steps:
    """What SGD does in a step. Its arrays are v, u and the scalars."""
    dot_of, add = dot_and_add(layout)

    @inlinable
    def begin(direction, iterate_sum, scalars, room, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        small = False
        for lane in range(multipliers.size):
            small |= scalars[SCALE, lane] * parameters[DECAY, lane] ** copies < _SMALLEST_SCALE
        if small:
            _fold(direction, iterate_sum, scalars)
        for lane in range(multipliers.size):
            multipliers[lane] = scalars[SCALE, lane]
            scalars[SCALE_SUM, lane] += scalars[SCALE, lane]
            for _ in range(copies):
                scalars[SCALE, lane] *= parameters[DECAY, lane]

    @inlinable
    def dot(direction, iterate_sum, scalars, room, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        dot_of(direction, indices, values, start, stop, intercept, sums)

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        direction, iterate_sum, scalars, room, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        for lane in range(sums.size):
            changes[k, lane] /= scalars[SCALE, lane]
        add(direction, indices, values, start, stop, intercept, changes, k)
        for lane in range(sums.size):
            changes[k, lane] *= -scalars[SCALE_SUM, lane]
        add(iterate_sum, indices, values, start, stop, intercept, changes, k)

    return Steps(begin, dot, move, fixed=True)


@inlinable
def _catch_up(weights, caught, i, t, parameters):  # type: ignore[no-untyped-def]
    missed = t - caught[i]
    if missed > 0:
        for lane in range(weights.shape[1]):
            weight = weights[i, lane]
            weights[i, lane] = math.copysign(max(0.0, abs(weight) - missed * parameters[SHRINK, lane]), weight)
        caught[i] = t


@compiled
def settle_truncated(weights, caught, t, parameters):  # type: ignore[no-untyped-def]
    """Make up the missed shrinking of all weights."""
    for i in range(1, weights.shape[0]):
        _catch_up(weights, caught, i, t, parameters)


@cache
def truncated_steps(layout: str) -> Steps:
    """What the truncated gradient does in a step. Its arrays are the weights and up to which step they have shrunk."""
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
