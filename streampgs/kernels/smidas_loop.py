"""The loop of SMIDAS: a gradient step on θ, then θ shrinks towards zero, and w follows from θ by the q-norm's link.

For the scale s = max |θ_i|, v_i = sgn(θ_i)·(|θ_i|/s)^{q-1} and Q = Σ (|θ_i|/s)^q, and

    w_i = sgn(θ_i)·|θ_i|^{q-1} / ‖θ‖_q^{q-2} = s·Q^{(2-q)/q}·v_i.

Shrinking changes every θ_i, and then s, v and Q are computed again: O(features). It is done when K steps have passed, by as
much as these steps would have shrunk. Between two shrinkings a step changes v and Q only at the features of its row, and s
stays, as long as powers are in range. The intercept (coordinate 0) does not shrink. q is whole.

Arrays of θ and v have a row for each lane here, so that loops over all features go over neighbours.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.row_steps import STEP, Steps
from streampgs.kernels.vector_math import exp2_of, log2_of

SHRINK, POWER, EVERY = STEP + 1, STEP + 2, STEP + 3
"""Rows of the parameters: η·l1, q and K."""
PARAMETERS = STEP + 4
POWER_SUM, SCALE, SHRUNK, SCALARS = 0, 1, 2, 3
"""Rows of the scalars: Q, s, and up to which step θ has shrunk."""
_LARGEST_SUM, _SMALLEST_SUM = 2.0**20, 2.0**-8  # of Q, which loses digits by cancellation when it falls


@inlinable
def _power(base, exponent):  # type: ignore[no-untyped-def]
    """base**exponent by squaring, for a whole exponent."""
    found, left = 1.0, exponent
    while left > 0:
        if left & 1:
            found *= base
        left >>= 1
        base *= base
    return found


@inlinable
def _relink(dual, raised, scalars, lane, exponent):  # type: ignore[no-untyped-def]
    """Compute s, v and Q: the same bits for any number of further features whose θ is 0. `exponent` is q - 1."""
    largest, total = 0.0, 0.0
    for i in range(dual.shape[1]):
        largest = max(largest, abs(dual[lane, i]))
    inverse = 1.0 / largest if largest > 0.0 else 0.0
    for i in range(dual.shape[1]):
        size = abs(dual[lane, i]) * inverse
        power = _power(size, exponent)
        raised[lane, i] = math.copysign(power, dual[lane, i])
        total += power * size
    scalars[SCALE, lane], scalars[POWER_SUM, lane] = largest, total


@inlinable
def _shrink(dual, raised, scalars, lane, t, parameters):  # type: ignore[no-untyped-def]
    """Shrink by as much as the steps since the last time."""
    amount = (t - scalars[SHRUNK, lane]) * parameters[SHRINK, lane]
    for i in range(1, dual.shape[1]):
        number = dual[lane, i]
        dual[lane, i] = number - min(max(number, -amount), amount)
    scalars[SHRUNK, lane] = t
    _relink(dual, raised, scalars, lane, np.int64(parameters[POWER, lane]) - 1)


@inlinable
def _multiplier(scalars, lane, q):  # type: ignore[no-untyped-def]
    """w_i / v_i."""
    power_sum = scalars[POWER_SUM, lane]
    return scalars[SCALE, lane] * exp2_of((2.0 - q) / q * log2_of(power_sum)) if power_sum > 0.0 else 0.0


@compiled
def settle(dual, raised, scalars, t, parameters):  # type: ignore[no-untyped-def]
    """Make up the shrinking of the last steps, and compute the rest again. Returns w_i / v_i of each lane."""
    multipliers = np.empty(dual.shape[0])
    for lane in range(dual.shape[0]):
        _shrink(dual, raised, scalars, lane, np.float64(t), parameters)
        multipliers[lane] = _multiplier(scalars, lane, parameters[POWER, lane])
    return multipliers


@cache
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are θ, v and the scalars."""
    sparse = layout == "sparse"

    @reordering
    def dot_of_lane(raised, lane, indices, values, start, stop):  # type: ignore[no-untyped-def]
        total = 0.0
        for j in range(np.uint64(stop - start)):
            i = np.int64(indices[np.uint64(start) + j]) if sparse else np.int64(j)
            total += raised[lane, i + 1] * np.float64(values[np.uint64(start) + j])
        return total

    @inlinable
    def begin(dual, raised, scalars, room, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        for lane in range(multipliers.size):
            multipliers[lane] = _multiplier(scalars, lane, parameters[POWER, lane])

    @inlinable
    def dot(dual, raised, scalars, room, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        for lane in range(sums.size):
            sums[lane] = dot_of_lane(raised, lane, indices, values, start, stop) + raised[lane, 0] * intercept

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        dual, raised, scalars, room, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        """θ, and, where it will not shrink, v and Q at the features of the row."""
        for lane in range(sums.size):
            change, scale, power_sum = changes[k, lane], scalars[SCALE, lane], scalars[POWER_SUM, lane]
            shrinks = t + copies - scalars[SHRUNK, lane] >= parameters[EVERY, lane]
            inverse = 1.0 / scale if scale > 0.0 else 0.0
            exponent = np.int64(parameters[POWER, lane]) - 1
            for j in range(start - 1, stop if change != 0.0 else start - 1):
                i, value = np.int64(0), intercept
                if j >= start:
                    i, value = (np.int64(indices[j]) if sparse else j - start) + 1, np.float64(values[j])
                before = abs(dual[lane, i] * raised[lane, i])
                dual[lane, i] += change * value
                if not shrinks:
                    size = abs(dual[lane, i]) * inverse
                    power = _power(size, exponent)
                    raised[lane, i] = math.copysign(power, dual[lane, i])
                    power_sum += power * size - before * inverse
            scalars[POWER_SUM, lane] = power_sum
            if not shrinks and change != 0.0 and not _SMALLEST_SUM <= power_sum <= _LARGEST_SUM:
                _relink(dual, raised, scalars, lane, exponent)

    @inlinable
    def end(dual, raised, scalars, room, parameters, t, copies):  # type: ignore[no-untyped-def]
        for lane in range(dual.shape[0]):
            if t + copies - scalars[SHRUNK, lane] >= parameters[EVERY, lane]:
                _shrink(dual, raised, scalars, lane, np.float64(t + copies), parameters)

    return Steps(begin, dot, move, end, fixed=True)
