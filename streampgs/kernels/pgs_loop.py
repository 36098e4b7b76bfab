"""The loop of the Primal Gradient Solver. A step costs O(nonzeros of its rows) for every p in (1, 2], including the ball
and averages; for p = 2 several models ("lanes") step on each row together.

λ is the negated sum of all sub-gradients, s is a scale near max |λ_i| that keeps powers in range (1 for p = 2, and 0
while λ = 0), v_i = sgn(λ_i)·(|λ_i|/s)^{q-1} and Q = Σ (|λ_i|/s)^q. Before step t the iterate is w = c·v with

    c = (p-1)·s·Q^{(2-q)/q} / ((t-1+t0)σ),      ‖w‖_p = (p-1)·s·Q^{1/q} / ((t-1+t0)σ),

and c shrinks by min(1, B/‖w‖_p) on the ball. The sum of iterates is S·v + u, where S is the sum of c, and u is
corrected at the few coordinates whose v changes.

`coordinates` has a row for the intercept and then one for each feature, with the numbers that a step touches together: for
p = 2 the λ of all lanes, then their u; otherwise (λ, v, u) of the one lane. Without averages there is no u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from streampgs.kernels.jit import called, compiled, inlinable, prefetch_for_writing, reordering
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.powers import dual_exponent, power_for
from streampgs.kernels.row_loops import row_loops
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of
from streampgs.kernels.vector_math import exp2_of, log2_of

# Rows of the array of scalars that loops keep between calls. The array has a column for each lane.
POWER_SUM = 0
SCALE = 1
MULTIPLIER_SUM = 2
REGULARIZER_TALLY = 3
LINEAR_TALLY = 4
LOSS_TALLY = 5
CORRECT_TALLY = 6
WEIGHT_TALLY = 7
SCALARS = 8

# Rows of the array of parameters, after those of targets.py.
SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
RADIUS = TARGET_ROWS + 2
PARAMETERS = TARGET_ROWS + 3

LANE_WIDTHS = (1, 4, 8, 16)

# Between two rebuilds, (max |λ_i|/s)^q may differ from 1 by at most this factor, up or down. The sum of iterates
# S·v + u loses accuracy by cancellation when v changes, and Q when it decreases, so both are computed again before the
# loss exceeds rounding. For p near 1, where q is large, a small change of λ is a large change of v.
_RANGE = 2.0**8

# With many lanes and a state larger than the second-level cache, the features of the row after the next are fetched in
# advance. With few lanes, the processor prefetches enough, and more instructions would only cost time.
_PREFETCHED_STATE = 1 << 18  # numbers
_ROWS_AHEAD = 2
_LINE_NUMBERS = 8  # of eight bytes in a cache line
_ENTRIES_AHEAD = 5  # rows
_LINE_ENTRIES = 16  # of four bytes in a cache line


@called
def _are_scattered(starts, stops, first, stop):  # type: ignore[no-untyped-def]
    """Whether some rows do not follow the row before in memory, where the processor would fetch them in advance."""
    scattered = False
    for r in range(first + 1, stop):
        scattered |= starts[r] != stops[r - 1]
    return scattered


@called
def _prefetch_entries(row, starts, stops, indices, values):  # type: ignore[no-untyped-def]
    """Not inlined: few calls need it, and the loop has no register to spare."""
    if row < starts.size:
        for line in range(starts[row], stops[row] + _LINE_ENTRIES - 1, _LINE_ENTRIES):
            prefetch_for_writing(indices, line)
            prefetch_for_writing(values, line)


@reordering
def _squared_norm(values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(np.uint64(start), np.uint64(stop)):
        value = np.float64(values[j])
        total += value * value
    return total


@inlinable
def _prefetch_features(coordinates, indices, start, stop, columns):  # type: ignore[no-untyped-def]
    for j in range(np.uint64(start), np.uint64(stop)):
        place = (np.int64(indices[j]) + 1) * columns
        for line in range(place, place + columns, _LINE_NUMBERS):
            prefetch_for_writing(coordinates, line)


@inlinable
def _tally(scalars, lane, product, score, label, slope, loss, weight, share):  # type: ignore[no-untyped-def]
    scalars[LINEAR_TALLY, lane] += share * slope * product
    scalars[LOSS_TALLY, lane] += weight * loss
    scalars[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
    scalars[WEIGHT_TALLY, lane] += weight


@cache
def rebuild_for(p: float, lanes: int, averaging: bool) -> Callable[..., None]:
    """rebuild(coordinates, scalars): compute everything derived from λ again, against drift and overflow.

    First S·v is added to u and S becomes 0, so that sums of iterates survive a change of scale, and cancellation does not
    last beyond the next rebuild.
    """
    rebuild_parts = _euclidean_rebuild(lanes, averaging) if p == 2.0 else _general_rebuild(p, averaging)

    @compiled
    def rebuild(coordinates, scalars):  # type: ignore[no-untyped-def]
        rebuild_parts(coordinates, scalars)

    made: Callable[..., None] = rebuild
    return made


@dataclass(frozen=True)
class MeetingLoops:
    """Merge the states of workers that started from the same state, for features [first, stop)."""

    fold: Callable[..., None]
    """fold(state, other, multiplier_sums, other_sums, first, stop): add λ and the sums of iterates of another worker to the
    first one's. `multiplier_sums` are the first one's S; zeros once they have been added."""
    settle: Callable[..., None]
    """settle(state, other, multiplier_sums, other_sums, workers, first, stop, power_sums): fold the last worker, divide λ by
    the number of workers, and copy the result to that worker."""
    spread: Callable[..., None]
    """spread(state, other, first, stop): copy the state to another worker, whose sums begin at zero."""
    derived: bool
    """Whether numbers derived from λ (p < 2) must be rebuilt and copied to the workers after a merge."""


@cache
def meeting_for(p: float, lanes: int, averaging: bool) -> MeetingLoops:
    euclidean = p == 2.0
    raised = 0 if euclidean else 1
    sums = lanes if euclidean else 2  # the first column of u

    @inlinable
    def fold_feature(state, other, multiplier_sums, other_sums, i, lane):  # type: ignore[no-untyped-def]
        if averaging:
            own = multiplier_sums[lane] * state[i, raised + lane] + state[i, sums + lane]
            state[i, sums + lane] = own + (other_sums[lane] * other[i, raised + lane] + other[i, sums + lane])
        state[i, lane] += other[i, lane]

    @compiled
    def fold(state, other, multiplier_sums, other_sums, first, stop):  # type: ignore[no-untyped-def]
        for i in range(np.uint64(first), np.uint64(stop)):
            for lane in range(lanes):
                fold_feature(state, other, multiplier_sums, other_sums, i, lane)

    @compiled
    def settle(state, other, multiplier_sums, other_sums, workers, first, stop, power_sums):  # type: ignore[no-untyped-def]
        share = 1.0 / workers
        for i in range(np.uint64(first), np.uint64(stop)):
            for lane in range(lanes):
                fold_feature(state, other, multiplier_sums, other_sums, i, lane)
                dual = state[i, lane] * share
                state[i, lane] = dual
                if euclidean:
                    other[i, lane] = dual
                    power_sums[lane] += dual * dual
                    if averaging:
                        other[i, sums + lane] = 0.0

    @compiled
    def spread(state, other, first, stop):  # type: ignore[no-untyped-def]
        for i in range(np.uint64(first), np.uint64(stop)):
            for column in range(sums):
                other[i, column] = state[i, column]
            if averaging:
                for column in range(sums, sums + lanes):
                    other[i, column] = 0.0

    return MeetingLoops(fold, settle, spread, not euclidean)


@cache
def advance_for(loss: LossFormulas, p: float, layout: str, lanes: int, averaging: bool) -> Callable[..., int]:
    """advance(…): step over rows [first, stop) of a window, `batch` rows a step; returns the step count after them.

    Rows are in visiting order. Row r has entries [starts[r], stops[r]) of `values` (and of `indices` if the layout is
    sparse) and labels[r, …]. Each gradient and each step is counted `copies` times. The loop makes no choices: loss, p,
    layout, lanes and averaging are closed over.
    """
    if p == 2.0:
        return _euclidean_advance(loss, layout, lanes, averaging)
    if lanes != 1:
        raise ValueError(f"{lanes} lanes with p = {p}: only p = 2 has more than one")
    return _general_advance(loss, p, layout, averaging)


# p = 2, where v is λ itself.


def _euclidean_rebuild(lanes: int, averaging: bool) -> Callable[..., None]:
    @inlinable
    def rebuild_one(coordinates, scalars):  # type: ignore[no-untyped-def]
        multiplier_sum = scalars[MULTIPLIER_SUM, 0]
        power_sum = 0.0  # a local variable stays in a register, an array element does not
        for i in range(coordinates.shape[0]):
            dual = coordinates[i, 0]
            power_sum += dual * dual
            if averaging:
                coordinates[i, 1] += multiplier_sum * dual
        scalars[MULTIPLIER_SUM, 0] = 0.0
        scalars[POWER_SUM, 0] = power_sum

    @inlinable
    def rebuild_all(coordinates, scalars):  # type: ignore[no-untyped-def]
        multiplier_sums = scalars[MULTIPLIER_SUM].copy()
        power_sums = np.zeros(lanes)
        for i in range(coordinates.shape[0]):
            for lane in range(lanes):
                dual = coordinates[i, lane]
                power_sums[lane] += dual * dual
                if averaging:
                    coordinates[i, lanes + lane] += multiplier_sums[lane] * dual
        scalars[MULTIPLIER_SUM] = 0.0
        scalars[POWER_SUM] = power_sums

    made: Callable[..., None] = rebuild_one if lanes == 1 else rebuild_all
    return made


def _euclidean_advance(loss: LossFormulas, layout: str, lanes: int, averaging: bool) -> Callable[..., int]:
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"
    columns = lanes * (2 if averaging else 1)
    dot, add = row_loops(lanes, columns, sparse)

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        coordinates, scalars, parameters, starts, stops, indices, values, labels, weights,
        offsets, first, stop, batch, t, copies, intercept,
    ):  # fmt: skip
        multipliers = np.empty(lanes)
        sums = np.empty(lanes)
        lane_labels = np.empty(lanes)
        slopes = np.empty((batch, lanes))
        steps = np.zeros(columns)
        weighted = weights.size > 0
        shifted = offsets.size > 0
        prefetching = sparse and columns >= _LINE_NUMBERS and coordinates.size > _PREFETCHED_STATE
        scattered = _are_scattered(starts, stops, first, stop)
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = 1.0 / (batch_stop - batch_first)

            for lane in range(lanes):
                clock = (t + parameters[T0, lane]) * parameters[SIGMA, lane]  # t counts the steps taken so far
                multiplier = 1.0 / clock
                norm = math.sqrt(max(0.0, scalars[POWER_SUM, lane])) * multiplier
                radius = parameters[RADIUS, lane]
                if norm > radius:
                    multiplier *= radius / norm
                    norm = radius
                multipliers[lane] = multiplier
                if averaging:
                    scalars[MULTIPLIER_SUM, lane] += multiplier
                scalars[REGULARIZER_TALLY, lane] += parameters[SIGMA, lane] * norm * norm * 0.5

            for r in range(batch_first, batch_stop):
                if scattered:
                    _prefetch_entries(r + _ENTRIES_AHEAD, starts, stops, indices, values)
                if prefetching and r + _ROWS_AHEAD < stop:
                    ahead = r + _ROWS_AHEAD
                    _prefetch_features(coordinates, indices, starts[ahead], stops[ahead], columns)
                dot(coordinates, indices, values, starts[r], stops[r], sums)
                weight = weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    lane_labels[lane] = label_of(labels, r, lane, parameters)
                for lane in range(lanes):
                    label = lane_labels[lane]
                    sums[lane] += coordinates[0, lane] * intercept
                    product = multipliers[lane] * sums[lane]
                    score = product + (parameters[BASE, lane] + offset * parameters[UNIT, lane])
                    slope = weight * slope_of(score, label, parameters[SHAPE, lane])
                    loss_here = value_of(score, label, parameters[SHAPE, lane])
                    _tally(scalars, lane, product, score, label, slope, loss_here, weight, share)
                    slopes[r - batch_first, lane] = slope

            for r in range(batch_first, batch_stop):
                if batch > 1:  # earlier rows of the batch have changed λ
                    dot(coordinates, indices, values, starts[r], stops[r], sums)
                    for lane in range(lanes):
                        sums[lane] += coordinates[0, lane] * intercept
                squared_norm = _squared_norm(values, starts[r], stops[r]) + intercept * intercept
                moved = False
                for lane in range(lanes):
                    step = -share * copies * slopes[r - batch_first, lane]
                    moved |= step != 0.0
                    steps[lane] = step
                    if averaging:
                        steps[lanes + lane] = -step * scalars[MULTIPLIER_SUM, lane]
                    scalars[POWER_SUM, lane] += step * (2.0 * sums[lane] + step * squared_norm)
                if moved:
                    add(coordinates, indices, values, starts[r], stops[r], steps)
                    for column in range(columns):
                        coordinates[0, column] += steps[column] * intercept
            t += copies
        return t

    made: Callable[..., int] = advance
    return made


# p < 2, one lane.


@inlinable
def _general_dot(features, indices, values, start, stop, sparse):  # type: ignore[no-untyped-def]
    """Four sums by hand: if it may reassociate, the compiler gathers, which is slower than loading one by one."""
    first, count = np.uint64(start), np.uint64(stop - start)
    sum_0, sum_1, sum_2, sum_3 = 0.0, 0.0, 0.0, 0.0
    k = np.uint64(0)
    for _ in range(count // np.uint64(4)):
        j_0, j_1, j_2, j_3 = first + k, first + k + np.uint64(1), first + k + np.uint64(2), first + k + np.uint64(3)
        if sparse:
            i_0, i_1, i_2, i_3 = indices[j_0], indices[j_1], indices[j_2], indices[j_3]
        else:
            i_0, i_1 = np.uint32(k), np.uint32(k + np.uint64(1))
            i_2, i_3 = np.uint32(k + np.uint64(2)), np.uint32(k + np.uint64(3))
        sum_0 += features[i_0, 1] * values[j_0]
        sum_1 += features[i_1, 1] * values[j_1]
        sum_2 += features[i_2, 1] * values[j_2]
        sum_3 += features[i_3, 1] * values[j_3]
        k += np.uint64(4)
    while k < count:
        i = indices[first + k] if sparse else np.uint32(k)
        sum_0 += features[i, 1] * values[first + k]
        k += np.uint64(1)
    return (sum_0 + sum_1) + (sum_2 + sum_3)


@reordering
def _growth(raised, sizes, before, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(np.uint64(count)):
        total += raised[k] * sizes[k] - before[k]
    return total


def _general_rebuild(p: float, averaging: bool) -> Callable[..., None]:
    power = power_for(dual_exponent(p))

    @inlinable
    def rebuild(coordinates, scalars):  # type: ignore[no-untyped-def]
        multiplier_sum = scalars[MULTIPLIER_SUM, 0]
        scalars[MULTIPLIER_SUM, 0] = 0.0
        largest = 0.0
        for i in range(coordinates.shape[0]):
            if averaging:
                coordinates[i, 2] += multiplier_sum * coordinates[i, 1]
            largest = max(largest, abs(coordinates[i, 0]))
        scalars[SCALE, 0] = largest
        shrink = 1.0 / largest if largest > 0.0 else 0.0
        power_sum = 0.0
        for i in range(coordinates.shape[0]):
            dual = coordinates[i, 0]
            size = abs(dual) * shrink
            raised = power(size)
            coordinates[i, 1] = math.copysign(raised, dual)
            power_sum += raised * size
        scalars[POWER_SUM, 0] = power_sum

    made: Callable[..., None] = rebuild
    return made


def _general_step(p: float, layout: str, averaging: bool) -> Callable[..., None]:
    """step(…): λ += step·x for p < 2, with one power for each touched coordinate.

    In three phases over the row's entries, so that the powers are taken of neighbours, in vector registers.
    """
    q = dual_exponent(p) + 1.0
    power = power_for(q - 1.0)
    largest_size = _RANGE ** (1.0 / q)
    rebuild = _general_rebuild(p, averaging)
    sparse = layout == "sparse"

    @inlinable
    def move(coordinates, i, change, shrink, sizes, before, k):  # type: ignore[no-untyped-def]
        dual = coordinates[i, 0]
        before[k] = abs(dual * coordinates[i, 1]) * shrink
        dual += change
        coordinates[i, 0] = dual
        sizes[k] = abs(dual) * shrink
        return sizes[k] <= largest_size

    @inlinable
    def write_back(coordinates, i, raised, multiplier_sum):  # type: ignore[no-untyped-def]
        signed = math.copysign(raised, coordinates[i, 0])
        if averaging:
            coordinates[i, 2] -= (signed - coordinates[i, 1]) * multiplier_sum
        coordinates[i, 1] = signed

    @inlinable
    def step_in_general(coordinates, scalars, indices, values, start, stop, step, intercept, buffers):  # type: ignore[no-untyped-def]
        sizes, raised, before = buffers[0], buffers[1], buffers[2]
        features = coordinates[1:]
        first, count = np.uint64(start), np.uint64(stop - start)
        scale = scalars[SCALE, 0]
        shrink = 1.0 / scale if scale > 0.0 else 0.0
        within = move(coordinates, 0, step * intercept, shrink, sizes, before, count)
        for k in range(count):
            i = indices[first + k] if sparse else np.uint32(k)
            within &= move(features, i, step * values[first + k], shrink, sizes, before, k)
        if not within or scale == 0.0:
            rebuild(coordinates, scalars)
            return
        for k in range(count + np.uint64(1)):
            raised[k] = power(sizes[k])
        multiplier_sum = scalars[MULTIPLIER_SUM, 0]
        write_back(coordinates, 0, raised[count], multiplier_sum)
        for k in range(count):
            i = indices[first + k] if sparse else np.uint32(k)
            write_back(features, i, raised[k], multiplier_sum)
        scalars[POWER_SUM, 0] += _growth(raised, sizes, before, count + np.uint64(1))

    made: Callable[..., None] = step_in_general
    return made


def _general_advance(loss: LossFormulas, p: float, layout: str, averaging: bool) -> Callable[..., int]:
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"
    step_row = _general_step(p, layout, averaging)
    rebuild = _general_rebuild(p, averaging)
    lowest_power_sum = 1.0 / _RANGE
    q = dual_exponent(p) + 1.0
    p_less_1 = 1.0 / (q - 1.0)

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        coordinates, scalars, parameters, starts, stops, indices, values, labels, weights,
        offsets, first, stop, batch, t, copies, intercept,
    ):  # fmt: skip
        sigma, t0, radius, shape = (
            parameters[SIGMA, 0], parameters[T0, 0], parameters[RADIUS, 0], parameters[SHAPE, 0],
        )  # fmt: skip
        longest = 0
        for r in range(first, stop):
            longest = max(longest, stops[r] - starts[r])
        buffers = np.empty((3, longest + 1))
        steps = np.empty(batch)
        features = coordinates[1:]
        weighted = weights.size > 0
        shifted = offsets.size > 0
        scattered = _are_scattered(starts, stops, first, stop)
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = 1.0 / (batch_stop - batch_first)

            clock = (t + t0) * sigma  # t counts the steps taken so far
            power_sum = max(0.0, scalars[POWER_SUM, 0])
            if power_sum < lowest_power_sum and scalars[SCALE, 0] > 0.0:
                rebuild(coordinates, scalars)
                power_sum = scalars[POWER_SUM, 0]
            if power_sum > 0.0:
                size = p_less_1 * scalars[SCALE, 0] / clock
                logarithm = log2_of(power_sum)
                multiplier = size * exp2_of(logarithm * ((2.0 - q) / q))
                norm = size * exp2_of(logarithm / q)
            else:
                multiplier = 0.0
                norm = 0.0
            if norm > radius:
                multiplier *= radius / norm
                norm = radius
            if averaging:
                scalars[MULTIPLIER_SUM, 0] += multiplier
            scalars[REGULARIZER_TALLY, 0] += sigma * norm * norm / (2.0 * p_less_1)

            for r in range(batch_first, batch_stop):
                if scattered:
                    _prefetch_entries(r + _ENTRIES_AHEAD, starts, stops, indices, values)
                total = _general_dot(features, indices, values, starts[r], stops[r], sparse)
                product = multiplier * (total + coordinates[0, 1] * intercept)
                offset = offsets[r] if shifted else 0.0
                score = product + (parameters[BASE, 0] + offset * parameters[UNIT, 0])
                label = label_of(labels, r, 0, parameters)
                weight = weights[r] if weighted else 1.0
                slope = weight * slope_of(score, label, shape)
                _tally(scalars, 0, product, score, label, slope, value_of(score, label, shape), weight, share)
                steps[r - batch_first] = -share * copies * slope

            for r in range(batch_first, batch_stop):
                step = steps[r - batch_first]
                if step != 0.0:
                    step_row(coordinates, scalars, indices, values, starts[r], stops[r], step, intercept, buffers)
            t += copies
        return t

    made: Callable[..., int] = advance
    return made
