"""The loop over rows that all solvers share which step row by row, and the block that turns a row into scores, slopes and
tallies.

A step takes a batch of rows. First the solver finds the multipliers of the scores, then each row of the batch gets its
scores, slopes and tallies, and then the solver moves by each row. The loop makes no choices: everything that differs
between solvers is a function that it closes over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.jit import called, compiled, inlinable, prefetch_for_writing

# Rows of the array of parameters, which has a column for each lane: how it uses labels and offsets.
SHAPE = 0
"""The parameter of the loss."""
LABEL = 1
"""The column of the labels."""
CLASS = 2
"""The label that is +1 to this lane, all others being -1; NaN: labels are used as they are."""
UNIT = 3
"""By which labels and offsets are multiplied."""
BASE = 4
"""Added to each score."""
TARGET_ROWS = 5
"""Further rows are the loop's own."""

# Rows of the array of tallies, which has a column for each lane.
REGULARIZER_TALLY, LINEAR_TALLY, LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = range(5)

STEP = TARGET_ROWS
"""The size of the steps, for solvers whose steps have a fixed size: a row of the parameters."""

# With many lanes and a state larger than the second-level cache, the features of the row after the next are fetched in
# advance. With few lanes, the processor prefetches enough, and more instructions would only cost time.
_PREFETCHED_STATE = 1 << 18  # numbers
_ROWS_AHEAD = 2
_LINE_NUMBERS = 8  # of eight bytes in a cache line
_ENTRIES_AHEAD = 5  # rows
_LINE_ENTRIES = 16  # of four bytes in a cache line

_LARGEST_SCORE = 1e50
_LARGEST_CHANGE = 1e100


Formula = Callable[[float, float, float], float]
"""Of score, label and shape."""


class LossFormulas(Protocol):
    @property
    def value(self) -> Formula: ...

    @property
    def slope(self) -> Formula: ...

    def __hash__(self) -> int: ...


@cache
def value_and_slope(loss: LossFormulas) -> tuple[Formula, Formula]:
    """Both formulas, which loops may then close over."""
    return inlinable(loss.value), inlinable(loss.slope)


@inlinable
def label_of(labels, r, lane, parameters):  # type: ignore[no-untyped-def]
    label = labels[r, np.int64(parameters[LABEL, lane])]
    wanted = parameters[CLASS, lane]
    if wanted != wanted:
        return label * parameters[UNIT, lane]
    return 1.0 if label == wanted else -1.0


class RowArrays(NamedTuple):
    """Rows in visiting order: row r has entries [starts[r], stops[r]) of `values`, and of `indices` where rows are sparse.
    Empty `weights` are ones, and empty `offsets` zeros."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    offsets: NDArray[np.float64]


@inlinable
def _nothing(numbers, second, scalars, room, parameters, t, copies):  # type: ignore[no-untyped-def]
    pass


@inlinable
def _no_room(numbers, rows, first, stop):  # type: ignore[no-untyped-def]
    return np.empty(0)


class Steps(NamedTuple):
    """What a solver does in a step, as functions that a loop can close over. Its arrays are `numbers`, with a row for each
    coordinate, and two others. (They are no tuple: each access would count references, which takes a tenth of the time.)
    `t` counts the steps before this one."""

    begin: Callable[..., None]
    """begin(numbers, second, scalars, room, parameters, t, copies, multipliers): find by what the sums of rows are multiplied
    to give scores."""
    dot: Callable[..., None]
    """dot(numbers, second, scalars, room, parameters, t, indices, values, start, stop, intercept, sums): fill the sums of a
    row."""
    move: Callable[..., None]
    """move(numbers, second, scalars, room, parameters, t, copies, indices, values, start, stop, intercept, changes, k, sums):
    change what was learned by changes[k, lane] times the row."""
    end: Callable[..., None] = _nothing
    """end(numbers, second, scalars, room, parameters, t, copies): after the moves."""
    room: Callable[..., Any] = _no_room
    """room(numbers, rows, first, stop): an array for the use of the other functions in one call of the loop."""
    lanes: int = 0
    """The number of lanes where the loop is compiled for it, else 0."""
    columns: int = 0
    """The numbers of a coordinate that are to be fetched in advance; 0: none."""
    fixed: bool = False
    """Whether steps have a fixed size, so that lanes can diverge. Then a lane stops, and the others continue."""
    needs_sums: bool = False
    """Whether `move` uses the sums of the row, as they are after the moves before it."""


@inlinable
def is_beyond(score, change):  # type: ignore[no-untyped-def]
    """Whether a score is too large, or the step that follows; also if one of them is not a number. Lanes that race include
    some whose steps are too large: they stop before their numbers leave the finite range."""
    return not (abs(score) < _LARGEST_SCORE and abs(change) < _LARGEST_CHANGE)


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


@inlinable
def _prefetch_features(coordinates, indices, start, stop, columns):  # type: ignore[no-untyped-def]
    for j in range(np.uint64(start), np.uint64(stop)):
        place = (np.int64(indices[j]) + 1) * columns
        for line in range(place, place + columns, _LINE_NUMBERS):
            prefetch_for_writing(coordinates, line)


@cache
def advance_for(steps: Steps, loss: LossFormulas, layout: str) -> Callable[..., int]:
    """advance(numbers, second, scalars, tallies, stopped, parameters, rows, first, stop, batch, t, copies, intercept): step
    over rows [first, stop), `batch` rows a step; returns the step count after them. Each gradient and each step is counted
    `copies` times. `stopped` counts the rows in which a lane did not learn because it had diverged."""
    value_of, slope_of = value_and_slope(loss)
    begin, dot, move, end, room_for, fixed_lanes, columns, fixed, needs_sums = steps
    prefetching_features = layout == "sparse" and columns >= _LINE_NUMBERS

    @compiled
    def advance(numbers, second, scalars, tallies, stopped, parameters, rows, first, stop, batch, t, copies, intercept):  # type: ignore[no-untyped-def]
        starts, stops, indices, values, labels, weights, offsets = rows
        lanes = fixed_lanes if fixed_lanes else parameters.shape[1]
        multipliers, sums, lane_labels = np.empty(lanes), np.empty(lanes), np.empty(lanes)
        changes = np.empty((batch, lanes))
        room = room_for(numbers, rows, first, stop)
        weighted, shifted = weights.size > 0, offsets.size > 0
        prefetching = prefetching_features and numbers.size > _PREFETCHED_STATE
        scattered = _are_scattered(starts, stops, first, stop)
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = 1.0 / (batch_stop - batch_first)
            begin(numbers, second, scalars, room, parameters, t, copies, multipliers)

            for r in range(batch_first, batch_stop):
                if scattered:
                    _prefetch_entries(r + _ENTRIES_AHEAD, starts, stops, indices, values)
                if prefetching_features and prefetching and r + _ROWS_AHEAD < stop:
                    ahead = r + _ROWS_AHEAD
                    _prefetch_features(numbers, indices, starts[ahead], stops[ahead], columns)
                dot(
                    numbers, second, scalars, room, parameters, t, indices, values, starts[r], stops[r], intercept, sums
                )
                weight = weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    lane_labels[lane] = label_of(labels, r, lane, parameters)
                for lane in range(lanes):
                    label, shape = lane_labels[lane], parameters[SHAPE, lane]
                    product = multipliers[lane] * sums[lane]
                    score = product + (parameters[BASE, lane] + offset * parameters[UNIT, lane])
                    slope = weight * slope_of(score, label, shape)
                    change = -share * copies * slope
                    if fixed:
                        change *= parameters[STEP, lane]
                        if stopped[lane] > 0.0 or is_beyond(score, change):
                            stopped[lane] += 1.0
                            changes[r - batch_first, lane] = 0.0
                            continue
                    tallies[LINEAR_TALLY, lane] += share * slope * product
                    tallies[LOSS_TALLY, lane] += weight * value_of(score, label, shape)
                    tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                    tallies[WEIGHT_TALLY, lane] += weight
                    changes[r - batch_first, lane] = change

            for r in range(batch_first, batch_stop):
                k = r - batch_first
                moved = False
                for lane in range(lanes):
                    moved |= changes[k, lane] != 0.0
                if moved:
                    if needs_sums and batch > 1:  # earlier rows of the batch have changed what was learned
                        dot(
                            numbers, second, scalars, room, parameters, t, indices, values, starts[r], stops[r],
                            intercept, sums,
                        )  # fmt: skip
                    move(
                        numbers, second, scalars, room, parameters, t, copies, indices, values, starts[r], stops[r],
                        intercept, changes, k, sums,
                    )  # fmt: skip
            end(numbers, second, scalars, room, parameters, t, copies)
            t += copies
        return t

    made: Callable[..., int] = advance
    return made


@cache
def dot_and_add(layout: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """dot(numbers, …) and add(numbers, …) of one row, for an array with a row for each coordinate and a column for each lane:
    fill the sums, and add changes[k, lane] times the row."""
    sparse = layout == "sparse"

    @inlinable
    def dot(numbers, indices, values, start, stop, intercept, sums):  # type: ignore[no-untyped-def]
        for lane in range(sums.size):
            sums[lane] = numbers[0, lane] * intercept
        for j in range(start, stop):
            i, value = (np.int64(indices[j]) if sparse else j - start) + 1, np.float64(values[j])
            for lane in range(sums.size):
                sums[lane] += numbers[i, lane] * value

    @inlinable
    def add(numbers, indices, values, start, stop, intercept, changes, k):  # type: ignore[no-untyped-def]
        for lane in range(changes.shape[1]):
            numbers[0, lane] += changes[k, lane] * intercept
        for j in range(start, stop):
            i, value = (np.int64(indices[j]) if sparse else j - start) + 1, np.float64(values[j])
            for lane in range(changes.shape[1]):
                numbers[i, lane] += changes[k, lane] * value

    return dot, add
