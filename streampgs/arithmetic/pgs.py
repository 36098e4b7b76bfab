"""The Primal Gradient Solver's loop: one step costs O(nonzeros of its rows) for every p in (1, 2], ball and averaging
included.

The formulas. λ is the negated sum of all sub-gradients, s a scale near max |λ_i| that keeps powers in range (1 for
p = 2, and 0 while λ is), v_i = sgn(λ_i)·(|λ_i|/s)^{q-1} and Q = Σ (|λ_i|/s)^q. Before step t the iterate is w = c·v with

    c = (p-1)·s·Q^{(2-q)/q} / ((t-1+t0)σ),      ‖w‖_p = (p-1)·s·Q^{1/q} / ((t-1+t0)σ),

and c shrinks by min(1, B/‖w‖_p) on the ball. The sum of iterates is S·v + u, where S sums c and u is corrected at the
few coordinates whose v changes.

`coordinates` holds what is touched together side by side, a row for each feature behind the intercept's row 0: (λ, u)
for p = 2, (λ, v, u) otherwise; without averaging u is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.arithmetic.jit import compiled, inlinable, prefetch_for_writing, reordering
from streampgs.arithmetic.losses import LOSSES
from streampgs.arithmetic.powers import dual_exponent, power_for

# Places in the array of scalars that a loop carries from call to call.
POWER_SUM = 0
SCALE = 1
MULTIPLIER_SUM = 2
REGULARIZER_TALLY = 3
LINEAR_TALLY = 4
LOSS_TALLY = 5
CORRECT_TALLY = 6
WEIGHT_TALLY = 7
SCALARS = 8

# Between two rebuilds (max |λ_i|/s)^q may leave 1 by this factor, either way. A sum of iterates S·v + u loses as many
# digits as v has changed since its iterates were counted, and Q as many as it has fallen; so all is made afresh before
# that can be told from rounding. For p near 1, where q is large, a small change of λ is a large one of v.
_RANGE = 2.0**8

_ROWS_AHEAD = 3
_LINE_ENTRIES = 16  # of four bytes in a cache line


@reordering
def sparse_dot(features, slot, indices, values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(start, stop):
        total += features[indices[j], slot] * values[j]
    return total


@reordering
def dense_dot(features, slot, indices, values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(stop - start):
        total += features[j, slot] * values[start + j]
    return total


@inlinable
def reciprocal(scale):  # type: ignore[no-untyped-def]
    """1/s; while s is 0 any change of λ shall seem too large, so that all is rebuilt with a scale."""
    return 1.0 / scale if scale > 0.0 else math.inf


@inlinable
def fetch_ahead(row, starts, stops, indices, values):  # type: ignore[no-untyped-def]
    """Start fetching a row that does not lie behind the one before it, where the processor would not look for it."""
    if row < starts.size and starts[row] != stops[row - 1]:
        for line in range(starts[row], stops[row] + _LINE_ENTRIES - 1, _LINE_ENTRIES):
            prefetch_for_writing(indices, line)
            prefetch_for_writing(values, line)


def _euclidean_step(layout: str, averaging: bool) -> Callable[..., None]:
    """step(…): λ += step·x for p = 2, where v is λ itself."""
    sparse = layout == "sparse"

    @reordering
    def step_row(features, indices, values, start, stop, step, multiplier_sum):  # type: ignore[no-untyped-def]
        growth = 0.0  # of Σ λ²
        for j in range(start, stop):
            i = indices[j] if sparse else np.uint32(j - start)
            change = step * values[j]
            before = features[i, 0]
            features[i, 0] = before + change
            if averaging:
                features[i, 1] -= change * multiplier_sum
            growth += change * (before + before + change)
        return growth

    @inlinable
    def step_euclidean(coordinates, scalars, indices, values, start, stop, step, intercept):  # type: ignore[no-untyped-def]
        multiplier_sum = scalars[MULTIPLIER_SUM]
        growth = step_row(coordinates[1:], indices, values, start, stop, step, multiplier_sum)
        change = step * intercept
        before = coordinates[0, 0]
        coordinates[0, 0] = before + change
        if averaging:
            coordinates[0, 1] -= change * multiplier_sum
        scalars[POWER_SUM] += growth + change * (before + before + change)

    return step_euclidean


def _general_step(p: float, layout: str, averaging: bool) -> Callable[..., None]:
    """step(…): λ += step·x for p < 2, with one power for each touched coordinate."""
    q = dual_exponent(p) + 1.0
    power = power_for(q - 1.0)
    largest_size = _RANGE ** (1.0 / q)
    rebuild = _rebuild(p, averaging)
    sparse = layout == "sparse"

    @inlinable
    def touch(coordinates, i, change, shrink, multiplier_sum):  # type: ignore[no-untyped-def]
        """How much Q grew by λ_i += change; infinite where |λ_i|/s has left its range and all must be rebuilt."""
        if change == 0.0:
            return 0.0
        before = coordinates[i, 0]
        raised_before = coordinates[i, 1]
        dual = before + change
        coordinates[i, 0] = dual
        size = abs(dual) * shrink
        if not size <= largest_size:
            return math.inf
        raised = power(size)
        signed = math.copysign(raised, dual)
        coordinates[i, 1] = signed
        if averaging:
            coordinates[i, 2] -= (signed - raised_before) * multiplier_sum
        return raised * size - abs(raised_before * before) * shrink

    @inlinable
    def step_in_general(coordinates, scalars, indices, values, start, stop, step, intercept):  # type: ignore[no-untyped-def]
        shrink = reciprocal(scalars[SCALE])
        multiplier_sum = scalars[MULTIPLIER_SUM]
        growth = 0.0
        for j in range(start, stop + 1):
            if j == stop:
                i, change = np.int64(0), step * intercept
            elif sparse:
                i, change = np.int64(indices[j]) + 1, step * values[j]
            else:
                i, change = np.int64(j - start + 1), step * values[j]
            growth_here = touch(coordinates, i, change, shrink, multiplier_sum)
            if growth_here == math.inf:
                rebuild(coordinates, scalars)
                shrink = reciprocal(scalars[SCALE])
                multiplier_sum = scalars[MULTIPLIER_SUM]
                growth = 0.0
            else:
                growth += growth_here
        scalars[POWER_SUM] += growth

    return step_in_general


def _rebuild(p: float, averaging: bool) -> Callable[..., None]:
    if p == 2.0:

        @inlinable
        def rebuild_euclidean(coordinates, scalars):  # type: ignore[no-untyped-def]
            multiplier_sum = scalars[MULTIPLIER_SUM]
            scalars[MULTIPLIER_SUM] = 0.0
            power_sum = 0.0
            for i in range(coordinates.shape[0]):
                dual = coordinates[i, 0]
                power_sum += dual * dual
                if averaging:
                    coordinates[i, 1] += multiplier_sum * dual
            scalars[POWER_SUM] = power_sum

        return rebuild_euclidean

    power = power_for(dual_exponent(p))

    @inlinable
    def rebuild_in_general(coordinates, scalars):  # type: ignore[no-untyped-def]
        multiplier_sum = scalars[MULTIPLIER_SUM]
        scalars[MULTIPLIER_SUM] = 0.0
        largest = 0.0
        for i in range(coordinates.shape[0]):
            if averaging:
                coordinates[i, 2] += multiplier_sum * coordinates[i, 1]
            largest = max(largest, abs(coordinates[i, 0]))
        scalars[SCALE] = largest
        shrink = reciprocal(largest) if largest > 0.0 else 0.0
        power_sum = 0.0
        for i in range(coordinates.shape[0]):
            dual = coordinates[i, 0]
            size = abs(dual) * shrink
            raised = power(size)
            coordinates[i, 1] = math.copysign(raised, dual)
            power_sum += raised * size
        scalars[POWER_SUM] = power_sum

    return rebuild_in_general


@cache
def rebuild_for(p: float, averaging: bool) -> Callable[..., None]:
    """rebuild(coordinates, scalars): everything derived from λ made afresh, against drift and overflow.

    The running pair (S, u) is flushed first (u takes up S·v, S becomes 0), so that sums of iterates survive a change
    of scale and no cancellation lasts longer than the stretch between two rebuilds.
    """
    rebuild_parts = _rebuild(p, averaging)

    @compiled
    def rebuild(coordinates, scalars):  # type: ignore[no-untyped-def]
        rebuild_parts(coordinates, scalars)

    made: Callable[..., None] = rebuild
    return made


@cache
def advance_for(loss_name: str, p: float, layout: str, averaging: bool) -> Callable[..., int]:
    """advance(…): steps over rows [first, stop) of a window, `batch` rows a step; gives the step count after them.

    Rows come in visiting order; row r's entries are [starts[r], stops[r]) of `values` (and of `indices` where the
    layout is sparse). Nothing is chosen inside the loop: loss, p, layout and averaging are closed over.
    """
    loss = LOSSES[loss_name]
    value_of, slope_of = loss.value, loss.slope
    euclidean = p == 2.0
    dot = sparse_dot if layout == "sparse" else dense_dot
    step_row = _euclidean_step(layout, averaging) if euclidean else _general_step(p, layout, averaging)
    rebuild_parts = _rebuild(p, averaging)
    lowest_power_sum = 1.0 / _RANGE
    slot = 0 if euclidean else 1
    q = dual_exponent(p) + 1.0
    p_less_1 = 1.0 / (q - 1.0)

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        coordinates, scalars, starts, stops, indices, values, labels, weights,
        first, stop, batch, t, t0, sigma, radius, shape, intercept,
    ):  # fmt: skip
        features = coordinates[1:]
        steps = np.empty(batch)
        weighted = weights.size > 0
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = 1.0 / (batch_stop - batch_first)

            clock = (t + t0) * sigma  # t counts the steps taken so far
            power_sum = max(0.0, scalars[POWER_SUM])
            if not euclidean and power_sum < lowest_power_sum and scalars[SCALE] > 0.0:
                rebuild_parts(coordinates, scalars)
                power_sum = scalars[POWER_SUM]
            if euclidean:
                multiplier = 1.0 / clock
                norm = math.sqrt(power_sum) / clock
            elif power_sum > 0.0:
                multiplier = p_less_1 * scalars[SCALE] * power_sum ** ((2.0 - q) / q) / clock
                norm = p_less_1 * scalars[SCALE] * power_sum ** (1.0 / q) / clock
            else:
                multiplier = 0.0
                norm = 0.0
            if norm > radius:
                multiplier *= radius / norm
                norm = radius
            if averaging:
                scalars[MULTIPLIER_SUM] += multiplier
            scalars[REGULARIZER_TALLY] += sigma * norm * norm / (2.0 * p_less_1)

            for r in range(batch_first, batch_stop):
                fetch_ahead(r + _ROWS_AHEAD, starts, stops, indices, values)
                score = multiplier * (
                    dot(features, slot, indices, values, starts[r], stops[r]) + coordinates[0, slot] * intercept
                )
                label = labels[r]
                weight = weights[r] if weighted else 1.0
                slope = weight * slope_of(score, label, shape)
                steps[r - batch_first] = -share * slope
                scalars[LINEAR_TALLY] += share * slope * score
                scalars[LOSS_TALLY] += weight * value_of(score, label, shape)
                if (score > 0.0) == (label > 0.0):
                    scalars[CORRECT_TALLY] += weight
                scalars[WEIGHT_TALLY] += weight

            for r in range(batch_first, batch_stop):
                step = steps[r - batch_first]
                if step != 0.0:
                    step_row(coordinates, scalars, indices, values, starts[r], stops[r], step, intercept)
            t += 1
        return t

    made: Callable[..., int] = advance
    return made
