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

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.powers import dual_exponent, power_for
from streampgs.kernels.row_loops import row_loops
from streampgs.kernels.row_steps import REGULARIZER_TALLY, TARGET_ROWS, Steps
from streampgs.kernels.vector_math import exp2_of, log2_of

# Rows of the array of scalars that loops keep between calls. The array has a column for each lane.
POWER_SUM = 0
SCALE = 1
MULTIPLIER_SUM = 2
TALLIES = 3
"""The first of the tallies' rows."""
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


@reordering
def _squared_norm(values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(np.uint64(start), np.uint64(stop)):
        value = np.float64(values[j])
        total += value * value
    return total


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
def steps_for(p: float, layout: str, lanes: int, averaging: bool) -> Steps:
    """What PGS does in a step. Its arrays are coordinates and scalars."""
    if p == 2.0:
        return _euclidean_steps(layout, lanes, averaging)
    if lanes != 1:
        raise ValueError(f"{lanes} lanes with p = {p}: only p = 2 has more than one")
    return _general_steps(p, layout, averaging)


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
        # Assignments of whole rows would take longer to compile than all the rest.
        multiplier_sums, power_sums = np.zeros(lanes), np.zeros(lanes)
        for lane in range(lanes):
            multiplier_sums[lane] = scalars[MULTIPLIER_SUM, lane]
        for i in range(coordinates.shape[0]):
            for lane in range(lanes):
                dual = coordinates[i, lane]
                power_sums[lane] += dual * dual
                if averaging:
                    coordinates[i, lanes + lane] += multiplier_sums[lane] * dual
        for lane in range(lanes):
            scalars[MULTIPLIER_SUM, lane] = 0.0
            scalars[POWER_SUM, lane] = power_sums[lane]

    made: Callable[..., None] = rebuild_one if lanes == 1 else rebuild_all
    return made


def _euclidean_steps(layout: str, lanes: int, averaging: bool) -> Steps:
    columns = lanes * (2 if averaging else 1)
    dot_of_row, add = row_loops(lanes, columns, layout == "sparse")

    @inlinable
    def begin(coordinates, none, scalars, steps, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        for lane in range(multipliers.size):
            divisor = (t + parameters[T0, lane]) * parameters[SIGMA, lane]
            multiplier = 1.0 / divisor if divisor > 0.0 else 0.0  # where it is 0, λ is still 0
            norm = math.sqrt(max(0.0, scalars[POWER_SUM, lane])) * multiplier
            radius = parameters[RADIUS, lane]
            if norm > radius:
                multiplier *= radius / norm
                norm = radius
            multipliers[lane] = multiplier
            if averaging:
                scalars[MULTIPLIER_SUM, lane] += multiplier
            scalars[TALLIES + REGULARIZER_TALLY, lane] += parameters[SIGMA, lane] * norm * norm * 0.5

    @inlinable
    def dot(coordinates, none, scalars, steps, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        dot_of_row(coordinates, indices, values, start, stop, sums)
        for lane in range(sums.size):
            sums[lane] += coordinates[0, lane] * intercept

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        coordinates, none, scalars, steps, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        squared_norm = _squared_norm(values, start, stop) + intercept * intercept
        for lane in range(sums.size):
            step = changes[k, lane]
            steps[lane] = step
            if averaging:
                steps[lanes + lane] = -step * scalars[MULTIPLIER_SUM, lane]
            scalars[POWER_SUM, lane] += step * (2.0 * sums[lane] + step * squared_norm)
        add(coordinates, indices, values, start, stop, steps)
        for column in range(steps.size):
            coordinates[0, column] += steps[column] * intercept

    @inlinable
    def room(coordinates, rows, first, stop):  # type: ignore[no-untyped-def]
        return np.zeros(columns)

    return Steps(begin, dot, move, room=room, lanes=lanes, columns=columns, needs_sums=True)


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


def _general_steps(p: float, layout: str, averaging: bool) -> Steps:
    """A move takes one power for each touched coordinate.

    It has three phases over the row's entries, so that the powers are taken of neighbours, in vector registers.
    """
    q = dual_exponent(p) + 1.0
    power = power_for(q - 1.0)
    largest_size = _RANGE ** (1.0 / q)
    rebuild = _general_rebuild(p, averaging)
    sparse = layout == "sparse"
    lowest_power_sum = 1.0 / _RANGE
    p_less_1 = 1.0 / (q - 1.0)

    @inlinable
    def begin(coordinates, none, scalars, buffers, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        sigma, radius = parameters[SIGMA, 0], parameters[RADIUS, 0]
        power_sum = max(0.0, scalars[POWER_SUM, 0])
        if power_sum < lowest_power_sum and scalars[SCALE, 0] > 0.0:
            rebuild(coordinates, scalars)
            power_sum = scalars[POWER_SUM, 0]
        multiplier, norm = 0.0, 0.0
        if power_sum > 0.0:
            size = p_less_1 * scalars[SCALE, 0] / ((t + parameters[T0, 0]) * sigma)
            logarithm = log2_of(power_sum)
            multiplier = size * exp2_of(logarithm * ((2.0 - q) / q))
            norm = size * exp2_of(logarithm / q)
        if norm > radius:
            multiplier *= radius / norm
            norm = radius
        multipliers[0] = multiplier
        if averaging:
            scalars[MULTIPLIER_SUM, 0] += multiplier
        scalars[TALLIES + REGULARIZER_TALLY, 0] += sigma * norm * norm / (2.0 * p_less_1)

    @inlinable
    def dot(coordinates, none, scalars, buffers, parameters, t, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        sums[0] = _general_dot(coordinates[1:], indices, values, start, stop, sparse) + coordinates[0, 1] * intercept

    @inlinable
    def move_one(coordinates, i, change, shrink, sizes, before, k):  # type: ignore[no-untyped-def]
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
    def move(  # type: ignore[no-untyped-def]
        coordinates, none, scalars, buffers, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums
    ):  # fmt: skip
        step, features = changes[k, 0], coordinates[1:]
        sizes, raised, before = buffers[0], buffers[1], buffers[2]
        first, count = np.uint64(start), np.uint64(stop - start)
        scale = scalars[SCALE, 0]
        shrink = 1.0 / scale if scale > 0.0 else 0.0
        within = move_one(coordinates, 0, step * intercept, shrink, sizes, before, count)
        for entry in range(count):
            i = indices[first + entry] if sparse else np.uint32(entry)
            within &= move_one(features, i, step * values[first + entry], shrink, sizes, before, entry)
        # A rebuild takes the place of the rest. It is at the end: arrays whose last use depends on a condition are counted.
        one, entries = (np.uint64(1), count) if within and scale > 0.0 else (np.uint64(0), np.uint64(0))
        for entry in range(entries + one):
            raised[entry] = power(sizes[entry])
        multiplier_sum = scalars[MULTIPLIER_SUM, 0]
        for _ in range(one):
            write_back(coordinates, 0, raised[count], multiplier_sum)
        for entry in range(entries):
            i = indices[first + entry] if sparse else np.uint32(entry)
            write_back(features, i, raised[entry], multiplier_sum)
        scalars[POWER_SUM, 0] += _growth(raised, sizes, before, entries + one)
        if one == 0:
            rebuild(coordinates, scalars)

    @inlinable
    def room(coordinates, rows, first, stop):  # type: ignore[no-untyped-def]
        starts, stops, longest = rows.starts, rows.stops, 0
        for r in range(first, stop):
            longest = max(longest, stops[r] - starts[r])
        return np.empty((3, longest + 1))

    return Steps(begin, dot, move, room=room, lanes=1)
