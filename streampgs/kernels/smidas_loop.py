"""The loop of SMIDAS: a gradient step on θ, then θ shrinks towards zero, and w follows from θ by the q-norm's link.

For a scale s > 0, v_i = sgn(θ_i)·(|θ_i|/s)^{q-1} and Q = Σ (|θ_i|/s)^q, and

    w_i = sgn(θ_i)·|θ_i|^{q-1} / ‖θ‖_q^{q-2} = s·Q^{(2-q)/q}·v_i.

Shrinking changes every θ_i, and then v and Q are computed again: O(features). It is done when `every` steps have passed,
by as much as these steps would have shrunk. Between two shrinkings a step changes v and Q only at the features of its row.
The intercept (coordinate 0) does not shrink.

Arrays of θ and v have a row for each lane here, so that loops over all features go over neighbours. q is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.divergence import is_beyond
from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of
from streampgs.kernels.vector_math import exp2_of, log2_of

STEP = TARGET_ROWS
"""η."""
SHRINK = TARGET_ROWS + 1
"""η·l1."""
PARAMETERS = TARGET_ROWS + 2
# Rows of the array of scalars.
POWER_SUM, SCALE, SCALARS = 0, 1, 2
LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = 2, 3, 4

# Powers are taken of so many numbers at a time, in memory that stays in the first-level cache.
_CHUNK = 512
_BUFFERS = 4
# Between two rescalings Q is within these bounds: powers stay in range, and what Q loses by cancellation is rounding.
_LARGEST_SUM, _SMALLEST_SUM = 2.0**8, 2.0**-8


@inlinable
def _raise_all(bases, powers, count, exponent):  # type: ignore[no-untyped-def]
    """powers = bases ** exponent, by squaring; the bases are overwritten."""
    for k in range(np.uint64(count)):
        powers[k] = 1.0
    left = exponent
    while left > 0:
        if left & 1:
            for k in range(np.uint64(count)):
                powers[k] *= bases[k]
        left >>= 1
        if left > 0:
            for k in range(np.uint64(count)):
                bases[k] *= bases[k]


@reordering
def _dot_of_row(left, right, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(np.uint64(count)):
        total += left[k] * right[k]
    return total


@inlinable
def _link(dual, raised, scale, q, buffers):  # type: ignore[no-untyped-def]
    """Compute v, and return Q: the same bits for any number of further features whose θ is 0."""
    signed, bases, powers, sums = buffers[0], buffers[1], buffers[2], buffers[3]
    inverse = 1.0 / scale
    sums[:] = 0.0
    for first in range(0, dual.size, _CHUNK):
        count = min(_CHUNK, dual.size - first)
        for k in range(np.uint64(count)):
            signed[k] = dual[np.uint64(first) + k] * inverse
            bases[k] = abs(signed[k])
        _raise_all(bases, powers, count, q - 2)
        for k in range(np.uint64(count)):
            powers[k] *= signed[k]
            raised[np.uint64(first) + k] = powers[k]
            sums[k] += powers[k] * signed[k]
    width = _CHUNK // 2
    while width > 0:
        for k in range(np.uint64(width)):
            sums[k] += sums[np.uint64(width) + k]
        width //= 2
    return sums[0]


@inlinable
def _relink(dual, raised, scalars, lane, q, buffers):  # type: ignore[no-untyped-def]
    """Compute v and Q again, with the same scale if it still suits."""
    scale = scalars[SCALE, lane]
    if scale > 0.0:
        power_sum = _link(dual, raised, scale, q, buffers)
        if _SMALLEST_SUM <= power_sum <= _LARGEST_SUM:
            scalars[POWER_SUM, lane] = power_sum
            return
    largest = 0.0
    for i in range(dual.size):
        size = abs(dual[i])
        largest = size if size > largest else largest
    scalars[POWER_SUM, lane] = scalars[SCALE, lane] = 0.0
    raised[:] = 0.0
    if largest > 0.0:
        scale = largest * exp2_of(log2_of(_link(dual, raised, largest, q, buffers)) / q)
        scalars[POWER_SUM, lane] = _link(dual, raised, scale, q, buffers)
        scalars[SCALE, lane] = scale


@inlinable
def _soften(dual, amount):  # type: ignore[no-untyped-def]
    features = dual[1:]
    for i in range(np.uint64(features.size)):
        number = features[i]
        features[i] = (number - amount if number > amount else 0.0) + (number + amount if number < -amount else 0.0)


@inlinable
def _multiplier(scalars, lane, q):  # type: ignore[no-untyped-def]
    """w_i / v_i."""
    power_sum = scalars[POWER_SUM, lane]
    return scalars[SCALE, lane] * exp2_of((2.0 - q) / q * log2_of(power_sum)) if power_sum > 0.0 else 0.0


@compiled
def shrink_all(dual, raised, scalars, amounts, q):  # type: ignore[no-untyped-def]
    """Shrink θ by the amount of each lane, and compute the rest again."""
    buffers = np.empty((_BUFFERS, _CHUNK))
    for lane in range(dual.shape[0]):
        if amounts[lane] > 0.0:
            _soften(dual[lane], amounts[lane])
        _relink(dual[lane], raised[lane], scalars, lane, q, buffers)


@compiled
def weights_of(dual, amount, q):  # type: ignore[no-untyped-def]
    """The weights after θ of one lane has shrunk by this amount; θ stays as it is."""
    buffers, scalars = np.empty((_BUFFERS, _CHUNK)), np.zeros((SCALARS, 1))
    shrunk, weights = dual.copy(), np.empty(dual.size)
    _soften(shrunk, amount)
    _relink(shrunk, weights, scalars, 0, q, buffers)
    multiplier = _multiplier(scalars, 0, q)
    for i in range(weights.size):
        weights[i] *= multiplier
    return weights


@cache
def advance_for(loss: LossFormulas, layout: str) -> Callable[..., tuple[int, int]]:
    """advance(…): steps over rows [first, stop), `batch` rows a step; returns the step count after them, and up to which
    step all features have shrunk. Each gradient, each shrinking and each step is counted `copies` times."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"

    @reordering
    def dot(numbers, indices, values, start, stop):  # type: ignore[no-untyped-def]
        total = 0.0
        for j in range(np.uint64(stop - start)):
            i = np.int64(indices[np.uint64(start) + j]) if sparse else np.int64(j)
            total += numbers[i + 1] * np.float64(values[np.uint64(start) + j])
        return total

    @inlinable
    def add(dual, indices, values, start, stop, change, intercept):  # type: ignore[no-untyped-def]
        dual[0] += change * intercept
        for j in range(np.uint64(stop - start)):
            i = np.int64(indices[np.uint64(start) + j]) if sparse else np.int64(j)
            dual[i + 1] += change * np.float64(values[np.uint64(start) + j])

    @inlinable
    def add_and_link(dual, raised, scalars, lane, indices, values, start, stop, change, intercept, q, row_buffers):  # type: ignore[no-untyped-def]
        """Change θ, v and Q at the features of a row. Whether Q is still in range."""
        signed, bases, powers = row_buffers[0], row_buffers[1], row_buffers[2]
        inverse, count = 1.0 / scalars[SCALE, lane], stop - start + 1
        before = 0.0
        for k in range(count):
            last = k == count - 1
            i = 0 if last else (np.int64(indices[start + k]) if sparse else k) + 1
            before += abs(dual[i] * raised[i]) * inverse
            dual[i] += change * (intercept if last else np.float64(values[start + k]))
            signed[k] = dual[i] * inverse
            bases[k] = abs(signed[k])
        _raise_all(bases, powers, count, q - 2)
        for k in range(count):
            i = 0 if k == count - 1 else (np.int64(indices[start + k]) if sparse else k) + 1
            powers[k] *= signed[k]
            raised[i] = powers[k]
        scalars[POWER_SUM, lane] += _dot_of_row(powers, signed, count) - before
        return _SMALLEST_SUM <= scalars[POWER_SUM, lane] <= _LARGEST_SUM

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        dual, raised, scalars, stopped, tallies, parameters, starts, stops, indices, values, labels, row_weights, offsets,
        first, stop, batch, t, shrunk, copies, intercept, q, every,
    ):  # fmt: skip
        lanes, longest = dual.shape[0], 0
        for r in range(first, stop):
            longest = max(longest, stops[r] - starts[r])
        row_buffers, buffers = np.empty((3, longest + 1)), np.empty((_BUFFERS, _CHUNK))
        multipliers, changes = np.empty(lanes), np.empty((batch, lanes))
        weighted, shifted = row_weights.size > 0, offsets.size > 0
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = copies / (batch_stop - batch_first)
            for lane in range(lanes):
                multipliers[lane] = _multiplier(scalars, lane, q)
            for r in range(batch_first, batch_stop):
                weight = row_weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    total = dot(raised[lane], indices, values, starts[r], stops[r]) + raised[lane, 0] * intercept
                    score = multipliers[lane] * total + (parameters[BASE, lane] + offset * parameters[UNIT, lane])
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
            t += copies
            shrinks = t - shrunk >= every
            for lane in range(lanes):
                for r in range(batch_first, batch_stop):
                    change = changes[r - batch_first, lane]
                    if change == 0.0:
                        continue
                    if shrinks:
                        add(dual[lane], indices, values, starts[r], stops[r], change, intercept)
                    elif scalars[SCALE, lane] == 0.0:
                        add(dual[lane], indices, values, starts[r], stops[r], change, intercept)
                        _relink(dual[lane], raised[lane], scalars, lane, q, buffers)
                    elif not add_and_link(
                        dual[lane], raised[lane], scalars, lane, indices, values, starts[r], stops[r], change, intercept, q,
                        row_buffers,
                    ):  # fmt: skip
                        _relink(dual[lane], raised[lane], scalars, lane, q, buffers)
                if shrinks:
                    _soften(dual[lane], (t - shrunk) * parameters[SHRINK, lane])
                    _relink(dual[lane], raised[lane], scalars, lane, q, buffers)
            if shrinks:
                shrunk = t
        return t, shrunk

    made: Callable[..., tuple[int, int]] = advance
    return made
