"""The end of a pass of L-BFGS: where the line search goes, and the next direction.

F(w) = σ/2·‖w‖² + mean loss. Arrays hold gradients of the mean loss alone, so that they stay right if σ is changed: those
of F are g + σ·w. A pair is a move s of the weights and the change y of the gradient that it caused. Where no pair says more,
the curvature of coordinate j is that of rows with independent features, up to a factor: c·(mean x_j²) + σ.

All sums over coordinates are in the order of the coordinates, one lane like the other: coordinates that are added later,
and are zero, change no bit.
"""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.pass_loop import BEYOND, LOSS, ROWS, TRIAL_LOSS, TRIAL_SLOPE

# Rows of the numbers that each lane keeps.
STEP, KNOWN_LOSS, KNOWN_ROWS, FAILED, PAIRS, GRADIENT_NORM = range(6)
"""The trial step; mean loss and rows of the pass in which the gradient at w was found (0 rows: it is not known); trial steps
that failed since the last move; pairs so far; ‖∇F(w)‖²."""
NUMBERS = 6
# Rows of the products of a pair.
SY, SS = range(2)
PRODUCTS = 2

# A trial step must lower F by this share of what the slope promises; or, where rounding hides that, by the slopes at both
# ends.
_DECREASE, _ROUNDING = 1e-4, 1e-10
# If a step fails, the next one is within these shares of it. After so many failures in turn the search begins again without
# pairs. A direction that needs no pairs is that of the gradient, along which some step is short enough.
_SHORTEST, _LONGEST, _MOST_FAILURES = 0.05, 0.6, 8
# The trial step before any pair is known.
_FIRST_STEP = 0.1
# The mean loss at the same weights over the same rows, in another order, is the same up to this share.
_SAME = 1e-9


@inlinable
def _dots(a, b, found):  # type: ignore[no-untyped-def]
    found[:] = 0.0
    for i in range(a.shape[0]):
        for lane in range(a.shape[1]):
            found[lane] += a[i, lane] * b[i, lane]


@inlinable
def _pair_dots(pairs, slots, which, b, found):  # type: ignore[no-untyped-def]
    """Of each lane's pair at slots[lane] with b."""
    found[:] = 0.0
    for i in range(b.shape[0]):
        for lane in range(b.shape[1]):
            found[lane] += pairs[slots[lane], which, i, lane] * b[i, lane]


@inlinable
def _shorter(step, before, after, slope_before, slope_after):  # type: ignore[no-untyped-def]
    """The minimum of the cubic through values and slopes at 0 and at the step that failed."""
    bend = slope_before + slope_after - 3.0 * (after - before) / step
    root = np.sqrt(max(0.0, bend * bend - slope_before * slope_after))
    width = slope_after - slope_before + 2.0 * root
    found = step * (1.0 - (slope_after + root - bend) / width) if width > 0.0 else 0.0
    return min(_LONGEST * step, max(_SHORTEST * step, found))


@compiled
def finish(points, gradient, row_sums, pairs, products, numbers, sums, sigmas, curvature, stopped):  # type: ignore[no-untyped-def]
    """The pass is over: move to the trial point if it is good enough, and choose the next one. Returns whether any lane
    has moved. `pairs`: [slot, s or y, coordinate, lane]. A lane stops if the weights themselves are of no use."""
    lanes = gradient.shape[1]
    weights, direction = points[:, :lanes], points[:, lanes:]
    ww, wd, dd, slopes = np.empty(lanes), np.empty(lanes), np.empty(lanes), np.empty(lanes)
    _dots(weights, weights, ww)
    _dots(weights, direction, wd)
    _dots(direction, direction, dd)
    _dots(gradient, direction, slopes)
    moves = np.zeros(lanes, np.bool_)
    paired = np.zeros(lanes, np.bool_)
    for lane in range(lanes):
        rows, sigma, step = sums[ROWS, lane], sigmas[lane], numbers[STEP, lane]
        if rows == 0.0 or stopped[lane] > 0.0:
            continue
        beyond = sums[BEYOND, lane] > 0.0
        known = numbers[KNOWN_ROWS, lane] == rows
        loss_at_zero = sums[LOSS, lane] / rows
        known = known and abs(loss_at_zero - numbers[KNOWN_LOSS, lane]) <= _SAME * abs(loss_at_zero)
        before = loss_at_zero + 0.5 * sigma * ww[lane]
        after = sums[TRIAL_LOSS, lane] / rows
        after += 0.5 * sigma * (ww[lane] + step * (2.0 * wd[lane] + step * dd[lane]))
        slope_before = slopes[lane] + sigma * wd[lane]
        slope_after = sums[TRIAL_SLOPE, lane] / rows + sigma * (wd[lane] + step * dd[lane])
        if beyond or step == 0.0:
            good = not beyond
        elif not known or slope_before >= 0.0:
            good = after < before
        else:
            good = after <= before + _DECREASE * step * slope_before
            flat = after <= before + _ROUNDING * abs(before)
            good = good or (flat and 0.9 * slope_before <= slope_after <= -0.8 * slope_before)
        moves[lane], paired[lane] = good, good and known and step > 0.0
        if good:
            numbers[KNOWN_LOSS, lane] = sums[TRIAL_LOSS, lane] / rows
            numbers[KNOWN_ROWS, lane], numbers[FAILED, lane] = rows, 0.0
        elif step == 0.0:
            stopped[lane] = 1.0
        elif (
            not known or slope_before >= 0.0 or (numbers[FAILED, lane] >= _MOST_FAILURES and numbers[PAIRS, lane] > 0.0)
        ):
            # The gradient is that of other rows, or the pairs give a direction of no use: find the gradient at w.
            numbers[PAIRS, lane] = 0.0 if known else numbers[PAIRS, lane]
            numbers[STEP, lane] = numbers[FAILED, lane] = numbers[KNOWN_ROWS, lane] = 0.0
        else:
            shorter = _SHORTEST * step if beyond else _shorter(step, before, after, slope_before, slope_after)
            numbers[STEP, lane] = shorter
            numbers[FAILED, lane] += 1.0
    if not moves.any():
        return False
    _move(points, gradient, row_sums, pairs, products, numbers, sums, moves, paired)
    _turn(points, gradient, row_sums[:, lanes] / sums[ROWS].max(), pairs, products, numbers, sigmas, curvature, moves)
    return True


@inlinable
def _move(points, gradient, row_sums, pairs, products, numbers, sums, moves, paired):  # type: ignore[no-untyped-def]
    """To the trial point, and keep the pair."""
    lanes, kept = gradient.shape[1], pairs.shape[0]
    slots = np.zeros(lanes, np.int64)
    sy, ss = np.zeros(lanes), np.zeros(lanes)
    for lane in range(lanes):
        slots[lane] = np.int64(numbers[PAIRS, lane]) % kept
    for i in range(gradient.shape[0]):
        for lane in range(lanes):
            if moves[lane]:
                move = numbers[STEP, lane] * points[i, lanes + lane]
                found = row_sums[i, lane] / sums[ROWS, lane]
                change = found - gradient[i, lane]
                points[i, lane] += move
                gradient[i, lane] = found
                if paired[lane]:
                    pairs[slots[lane], 0, i, lane] = move
                    pairs[slots[lane], 1, i, lane] = change
                    sy[lane] += move * change
                    ss[lane] += move * move
    for lane in range(lanes):
        if paired[lane] and sy[lane] >= 0.0 and ss[lane] > 0.0:
            products[slots[lane], SY, lane] = sy[lane]
            products[slots[lane], SS, lane] = ss[lane]
            numbers[PAIRS, lane] += 1.0


@inlinable
def _turn(points, gradient, squares, pairs, products, numbers, sigmas, curvature, moves):  # type: ignore[no-untyped-def]
    """The next direction of the lanes that have moved: -H·∇F(w), by the two loops over the pairs."""
    lanes, kept = gradient.shape[1], pairs.shape[0]
    direction = points[:, lanes:]
    for i in range(gradient.shape[0]):
        for lane in range(lanes):
            if moves[lane]:
                direction[i, lane] = 0.0 - (gradient[i, lane] + sigmas[lane] * points[i, lane])  # no -0.0
    found, others = np.empty(lanes), np.empty(lanes)
    _dots(direction, direction, found)
    counts, slots = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    for lane in range(lanes):
        if moves[lane]:
            numbers[GRADIENT_NORM, lane] = found[lane]
            counts[lane] = min(np.int64(numbers[PAIRS, lane]), kept)
            numbers[STEP, lane] = 1.0 if counts[lane] else _FIRST_STEP
    most = counts.max()
    shares, factors = np.zeros((kept, lanes)), np.zeros(lanes)
    for back in range(most):
        _slots_of(numbers, counts, back, kept, slots)
        _pair_dots(pairs, slots, 0, direction, found)
        for lane in range(lanes):
            curved = products[slots[lane], SY, lane] + sigmas[lane] * products[slots[lane], SS, lane]
            shares[back, lane] = factors[lane] = found[lane] / curved if back < counts[lane] and curved > 0.0 else 0.0
        for i in range(direction.shape[0]):
            for lane in range(lanes):
                if factors[lane] != 0.0:
                    move, change = pairs[slots[lane], 0, i, lane], pairs[slots[lane], 1, i, lane]
                    direction[i, lane] -= factors[lane] * (change + sigmas[lane] * move)
    _scale(direction, squares, pairs, products, numbers, counts, sigmas, curvature, moves, slots, factors)
    for forth in range(most):
        back = most - 1 - forth
        _slots_of(numbers, counts, back, kept, slots)
        _pair_dots(pairs, slots, 1, direction, found)
        _pair_dots(pairs, slots, 0, direction, others)
        for lane in range(lanes):
            curved = products[slots[lane], SY, lane] + sigmas[lane] * products[slots[lane], SS, lane]
            used = back < counts[lane] and curved > 0.0
            factors[lane] = shares[back, lane] - (found[lane] + sigmas[lane] * others[lane]) / curved if used else 0.0
        for i in range(direction.shape[0]):
            for lane in range(lanes):
                if factors[lane] != 0.0:
                    direction[i, lane] += factors[lane] * pairs[slots[lane], 0, i, lane]


@inlinable
def _slots_of(numbers, counts, back, kept, slots):  # type: ignore[no-untyped-def]
    """Where each lane's pair is that is `back` pairs older than the newest; any slot if there is none."""
    for lane in range(slots.size):
        slots[lane] = (np.int64(numbers[PAIRS, lane]) - 1 - back) % kept if back < counts[lane] else 0


@inlinable
def _scale(direction, squares, pairs, products, numbers, counts, sigmas, curvature, moves, slots, factors):  # type: ignore[no-untyped-def]
    """By the curvatures of the coordinates, times a factor that fits the newest move."""
    _slots_of(numbers, counts, 0, pairs.shape[0], slots)
    total = squares.sum()
    factors[:] = 0.0
    for i in range(direction.shape[0]):
        for lane in range(slots.size):
            if counts[lane]:
                change = pairs[slots[lane], 1, i, lane] + sigmas[lane] * pairs[slots[lane], 0, i, lane]
                factors[lane] += change * change / _curvature(squares[i], total, curvature, sigmas[lane])
    for lane in range(slots.size):
        curved = products[slots[lane], SY, lane] + sigmas[lane] * products[slots[lane], SS, lane]
        factors[lane] = curved / factors[lane] if counts[lane] and factors[lane] > 0.0 else 1.0
    for i in range(direction.shape[0]):
        for lane in range(slots.size):
            if moves[lane]:
                direction[i, lane] *= factors[lane] / _curvature(squares[i], total, curvature, sigmas[lane])


@inlinable
def _curvature(square, total, curvature, sigma):  # type: ignore[no-untyped-def]
    """Of a coordinate; no row of this pass may have it, although others had."""
    found = curvature * (square if square > 0.0 else total) + sigma
    return found if found > 0.0 else 1.0
