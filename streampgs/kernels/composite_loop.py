"""The loop of PGS with l1 (composite dual averaging) for p = 2. A step costs O(nonzeros of its rows), averages included.

λ is the negated sum of all sub-gradients. Before step t, counted from 0, the iterate is

    w_t = soft(λ, a_t) / ((t + t0)σ),   a_t = (t + l1_steps)·l1,   soft(λ, a)_i = sgn(λ_i)·max(0, |λ_i| - a),

so weights of features that no row touches need no work. Between two touches λ_i is constant, and w_i shrinks until it is
zero and stays there. The sum of iterates is brought up to date when a row touches the feature. With S = Σ 1/((t + t0)σ)
and A = Σ a_t/((t + t0)σ) over the steps so far, a weight that is not zero adds sgn(λ_i)·(|λ_i|·S - A), up to a constant
that is taken off when it begins. Where it became zero in between, the part of S and A since then is subtracted; it is a
difference of two digamma functions. The intercept (coordinate 0) has no l1.

Each row of `numbers` belongs to a coordinate: the λ of all lanes, the sums of their iterates, the number of steps in which
their weights were not zero, and the step count up to which all this is known.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from streampgs.kernels.jit import called, compiled, inlinable
from streampgs.kernels.row_steps import TARGET_ROWS, Steps
from streampgs.kernels.vector_math import log1p_of_unit

SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
L1 = TARGET_ROWS + 2
L1_STEPS = TARGET_ROWS + 3
PARAMETERS = TARGET_ROWS + 4
PARTS = 3
"""Numbers of a lane in each row of `numbers`: λ, the sum of iterates, the steps with a weight."""
_ASYMPTOTIC = 16.0


@called
def _harmonic(x, count):  # type: ignore[no-untyped-def]
    """1/x + 1/(x + 1) + … (`count` terms), for x > 0: ψ(x + count) - ψ(x), by their asymptotic series."""
    total = 0.0
    while x < _ASYMPTOTIC and count > 0.0:
        total += 1.0 / x
        x += 1.0
        count -= 1.0
    if count <= 0.0:
        return total
    y = x + count
    if count <= x:
        total += log1p_of_unit(count / x)
    else:
        half = y
        while half > 2.0 * x:
            total += log1p_of_unit(1.0)
            half *= 0.5
        total += log1p_of_unit((half - x) / x)
    return total + 0.5 * count / (x * y) + (_series_rest(x) - _series_rest(y))


@inlinable
def _series_rest(x):  # type: ignore[no-untyped-def]
    """1/(12x²) - 1/(120x⁴) + 1/(252x⁶) - 1/(240x⁸)."""
    u = 1.0 / (x * x)
    return u / 12.0 * (1.0 - u / 10.0 * (1.0 - u * (10.0 / 21.0) * (1.0 - u * 1.05)))


@called
def _zero_since(size, began, t, sigma, t0, l1, l1_steps):  # type: ignore[no-untyped-def]
    """Of a weight that has become zero after step `began` and before step t - 1: for how many steps it has been zero, and
    the parts of S and A of these steps."""
    zero = min(max(math.ceil(size / l1 - l1_steps), began + 1.0), t - 1.0)  # the first of them
    harmonic = _harmonic(zero + t0, t - zero)
    return t - zero, harmonic / sigma, l1 * ((t - zero) + (l1_steps - t0) * harmonic) / sigma


# These take numbers: arrays that are passed to a function in a loop are counted as references each time.


@inlinable
def _offset(dual, multipliers, thresholds):  # type: ignore[no-untyped-def]
    """The amount that a weight that is not zero adds to the sum of iterates while S and A grow from zero."""
    return math.copysign(abs(dual) * multipliers - thresholds, dual)


@inlinable
def _completed(dual, total, count, began, t, sums, sigma, t0, l1, l1_steps):  # type: ignore[no-untyped-def]
    """The sum of iterates and the steps with a weight, of all steps before step t, if λ has not changed since `began`."""
    size = abs(dual)
    if size > (began + l1_steps) * l1:
        zeros, multipliers, thresholds = 0.0, sums[0], sums[1]
        if size <= (t - 1.0 + l1_steps) * l1:
            zeros, late_multipliers, late_thresholds = _zero_since(size, began, t, sigma, t0, l1, l1_steps)
            multipliers -= late_multipliers
            thresholds -= late_thresholds
        total += _offset(dual, multipliers, thresholds)
        count += sums[2] - zeros
    return total, count


@compiled
def settle(numbers, sums, t, parameters):  # type: ignore[no-untyped-def]
    """Complete the sums of all coordinates; S and A begin again."""
    lanes, now = sums.shape[1], np.float64(t)
    for i in range(numbers.shape[0]):
        began, with_l1 = numbers[i, PARTS * lanes], 1.0 if i > 0 else 0.0
        for lane in range(lanes):
            numbers[i, lanes + lane], numbers[i, 2 * lanes + lane] = _completed(
                numbers[i, lane], numbers[i, lanes + lane], numbers[i, 2 * lanes + lane], began, now,
                (sums[0, lane], with_l1 * sums[1, lane], sums[2, lane]), parameters[SIGMA, lane], parameters[T0, lane],
                with_l1 * parameters[L1, lane], parameters[L1_STEPS, lane],
            )  # fmt: skip
        numbers[i, PARTS * lanes] = now
    sums[:] = 0.0


@cache
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are the numbers of the coordinates, and S, A and the steps so far."""
    sparse, one = layout == "sparse", np.uint64(1)

    @inlinable
    def begin(numbers, none, sums, limits, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        for lane in range(multipliers.size):
            t0, sigma, l1, l1_steps = (
                parameters[T0, lane], parameters[SIGMA, lane], parameters[L1, lane], parameters[L1_STEPS, lane],
            )  # fmt: skip
            limits[lane] = (t + l1_steps) * l1
            multipliers[lane] = 1.0 / ((t + t0) * sigma)
            for own in range(t, t + copies):
                multiplier = 1.0 / ((own + t0) * sigma)
                sums[0, lane] += multiplier
                sums[1, lane] += multiplier * ((own + l1_steps) * l1)
                sums[2, lane] += 1.0

    @inlinable
    def dot(numbers, none, sums, limits, parameters, t, indices, values, start, stop, intercept, products):  # type: ignore[no-untyped-def]
        for lane in range(products.size):
            total, limit = numbers[0, lane] * intercept, limits[lane]  # local variables stay in registers
            for k in range(np.uint64(stop - start)):
                j = np.uint64(start) + k
                dual = numbers[np.uint64(indices[j] if sparse else k) + one, lane]
                total += (dual - min(max(dual, -limit), limit)) * values[j]
            products[lane] = total

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        numbers, none, sums, limits, parameters, t, copies, indices, values, start, stop, intercept, changes, row, products
    ):  # fmt: skip
        lanes, now = products.size, np.float64(t + copies)
        for k in range(stop - start + 1):
            i, value, with_l1 = np.uint64(0), intercept, 0.0
            if k > 0:
                j = np.uint64(start + k - 1)
                i, value, with_l1 = np.uint64(indices[j] if sparse else k - 1) + one, np.float64(values[j]), 1.0
            began = numbers[i, PARTS * lanes]
            for lane in range(lanes):
                dual, change = numbers[i, lane], changes[row, lane] * value
                after = dual + change
                l1, l1_steps = with_l1 * parameters[L1, lane], parameters[L1_STEPS, lane]
                multipliers, thresholds = sums[0, lane], with_l1 * sums[1, lane]
                begins, size = abs(after) > (now + l1_steps) * l1, abs(dual)
                stays = begins and dual * after > 0.0 and size > (now - 1.0 + l1_steps) * l1
                numbers[i, lane] = after
                if stays and size > (began + l1_steps) * l1:
                    numbers[i, lanes + lane] -= change * multipliers
                    continue
                total, count = _completed(
                    dual, numbers[i, lanes + lane], numbers[i, 2 * lanes + lane], began, now,
                    (multipliers, thresholds, sums[2, lane]), parameters[SIGMA, lane], parameters[T0, lane], l1, l1_steps,
                )  # fmt: skip
                if begins:
                    total -= _offset(after, multipliers, thresholds)
                    count -= sums[2, lane]
                numbers[i, lanes + lane], numbers[i, 2 * lanes + lane] = total, count
            numbers[i, PARTS * lanes] = now

    @inlinable
    def room(numbers, rows, first, stop):  # type: ignore[no-untyped-def]
        return np.empty((numbers.shape[1] - 1) // PARTS)

    return Steps(begin, dot, move, room=room)
