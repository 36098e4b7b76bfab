"""The loop of stochastic gradient descent with steps of a fixed size, in O(nonzeros).

The regularizer multiplies all weights by 1 - η·σ in each step. So w = a·v is kept as a number a and a vector v, and the
sum of all iterates as S·v + u, where S is the sum of a: only the coordinates of the row change in v, and they are corrected
in u. When a has become small, it is multiplied into v, and S·v is added to u.
"""

from __future__ import annotations

from functools import cache

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.row_steps import STEP, Steps, dot_and_add

DECAY = STEP + 1
"""1 - η·σ."""
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
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are v, u and the scalars."""
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
