"""Sums of losses and gradients over rows, at weights that do not change meanwhile.

The weights of coordinate i are points[i, :lanes], and its gradient is summed in row_sums[i, :lanes]. If `points` has twice as
many columns, the others are a direction d: then the gradient is that at w + trial·d, and losses are summed at w and at
w + trial·d, which takes two dot products a row. The squares of each feature are summed in row_sums[i, lanes].

A row whose score or loss is beyond the range of training is only counted: then the sums are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.row_steps import (
    BASE,
    CORRECT_TALLY,
    LOSS_TALLY,
    SHAPE,
    TARGET_ROWS,
    UNIT,
    WEIGHT_TALLY,
    LossFormulas,
    dot_and_add,
    is_beyond,
    label_of,
    value_and_slope,
)

PARAMETERS = TARGET_ROWS
ROWS, LOSS, TRIAL_LOSS, TRIAL_SLOPE, BEYOND = range(5)
"""Sums: rows; the weighted losses at w, those at w + trial·d, and how fast the latter rise with the trial step; rows that were
only counted."""
SUMS = 5


@reordering
def _score_of_sparse(points, indices, values, start, stop, column):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(np.uint64(start), np.uint64(stop)):
        total += points[np.uint64(indices[j]) + np.uint64(1), column] * np.float64(values[j])
    return total


@reordering
def _two_scores_of_sparse(points, indices, values, start, stop):  # type: ignore[no-untyped-def]
    first, second = 0.0, 0.0
    for j in range(np.uint64(start), np.uint64(stop)):
        i, value = np.uint64(indices[j]) + np.uint64(1), np.float64(values[j])
        first += points[i, 0] * value
        second += points[i, 1] * value
    return first, second


@reordering
def _score_of_dense(points, values, start, stop, column):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(np.uint64(stop - start)):
        total += points[j + np.uint64(1), column] * np.float64(values[np.uint64(start) + j])
    return total


@compiled
def descend(points, gradient_sum, iterate_sum, squares, sums, sigmas, steps, stopped):  # type: ignore[no-untyped-def]
    """A step of gradient descent. The iterate before it is added to the sum of iterates, and ‖∇F‖² there to `squares`. A lane
    stops before its weights leave the range of training."""
    for lane in range(gradient_sum.shape[1]):
        rows, sigma, square, largest = sums[ROWS, lane], sigmas[lane], 0.0, 0.0
        for i in range(points.shape[0]):
            gradient = gradient_sum[i, lane] / rows + sigma * points[i, lane]
            square += gradient * gradient
            largest = max(largest, abs(gradient))
        if stopped[lane] > 0.0 or sums[BEYOND, lane] > 0.0 or is_beyond(steps[lane] * largest, square):
            stopped[lane] += 1.0
            continue
        squares[lane] += square
        for i in range(points.shape[0]):
            weight = points[i, lane]
            iterate_sum[i, lane] += weight
            points[i, lane] = weight - steps[lane] * (gradient_sum[i, lane] / rows + sigma * weight)


@cache
def accumulate_for(loss: LossFormulas, layout: str) -> Callable[..., None]:
    """accumulate(…): add rows [first, stop) to the sums, the tallies and the gradient, but those that are held out (`held`
    begins at `first`; empty: none)."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"
    dot, _ = dot_and_add(layout)

    @inlinable
    def scores_of_one(points, indices, values, start, stop, intercept, scores):  # type: ignore[no-untyped-def]
        if sparse and scores.size == 2:
            scores[0], scores[1] = _two_scores_of_sparse(points, indices, values, start, stop)
        elif sparse:
            scores[0] = _score_of_sparse(points, indices, values, start, stop, 0)
        else:
            for column in range(scores.size):
                scores[column] = _score_of_dense(points, values, start, stop, column)
        for column in range(scores.size):
            scores[column] += points[0, column] * intercept

    @compiled
    def accumulate(  # type: ignore[no-untyped-def]
        points, row_sums, sums, tallies, trial, parameters, rows, held, first, stop, intercept
    ):  # fmt: skip
        starts, stops, indices, values, labels, row_weights, offsets = rows
        lanes = trial.size
        along = points.shape[1] > lanes
        scores = np.empty(points.shape[1])
        slopes = np.empty(lanes)
        weighted, shifted = row_weights.size > 0, offsets.size > 0
        for r in range(first, stop):
            if held.size > 0 and held[r - first]:
                continue
            if lanes == 1:
                scores_of_one(points, indices, values, starts[r], stops[r], intercept, scores)
            else:
                dot(points, indices, values, starts[r], stops[r], intercept, scores)
            weight = row_weights[r] if weighted else 1.0
            offset = offsets[r] if shifted else 0.0
            for lane in range(lanes):
                score = scores[lane] + parameters[BASE, lane] + offset * parameters[UNIT, lane]
                label = label_of(labels, r, lane, parameters)
                shape = parameters[SHAPE, lane]
                value = weight * value_of(score, label, shape)
                sums[ROWS, lane] += 1.0
                slopes[lane] = 0.0
                if is_beyond(score, value):
                    sums[BEYOND, lane] += 1.0
                    continue
                sums[LOSS, lane] += value
                tallies[LOSS_TALLY, lane] += value
                tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                tallies[WEIGHT_TALLY, lane] += weight
                if along:
                    move = scores[lanes + lane]
                    score += trial[lane] * move
                    value = weight * value_of(score, label, shape)
                slope = weight * slope_of(score, label, shape)
                if is_beyond(score, value) or is_beyond(score, slope):
                    sums[BEYOND, lane] += 1.0
                    continue
                slopes[lane] = slope
                if along:
                    sums[TRIAL_LOSS, lane] += value
                    sums[TRIAL_SLOPE, lane] += slope * move
                row_sums[0, lane] += slope * intercept
            if along:
                row_sums[0, lanes] += weight * intercept * intercept
            for j in range(starts[r], stops[r]):
                i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                entry = np.float64(values[j])
                for lane in range(lanes):
                    row_sums[i, lane] += slopes[lane] * entry
                if along:
                    row_sums[i, lanes] += weight * entry * entry

    made: Callable[..., None] = accumulate
    return made
