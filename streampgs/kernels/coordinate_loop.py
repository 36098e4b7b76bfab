"""The loops of coordinate descent on columns, for one lane.

For each row the score and the slope of the loss at this score are kept, so that a visit of a column reads its entries
and one number for each of them, and a partial derivative costs no exponentials. Slopes include the weight of the row; rows
of weight 0 are not a part of the problem. All sums are over rows: the regularizer is multiplied by the total weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.row_steps import LossFormulas, value_and_slope
from streampgs.kernels.smooth_losses import EXACT, GROWS, SMOOTH_LOSSES

SHAPE, L1, SIGMA, BOUND, CONSTANT = range(5)
"""Rows of the array of parameters: the loss's shape; l1 and sigma, times the total weight; the bound of all second
derivatives, or 0 for one of each column; the constant of the intercept, or 0 if there is none."""
PARAMETERS = 5
ITERATES = 5
"""After so many passes the weights are extrapolated."""
_MOST_CENTRING_STEPS = 60
_CENTRED = 1e-14
_LARGEST_GROWTH = 40.0
_ENTRIES_AT_ONCE = 256
_ROWS_AT_ONCE = 16


@compiled
def count_entries(starts, stops, indices, counts):  # type: ignore[no-untyped-def]
    """Add the entries of each feature in these rows to `counts`."""
    for r in range(starts.size):
        for k in range(starts[r], stops[r]):
            counts[indices[k]] += 1


@compiled
def transpose(starts, stops, indices, values, places, rows, out):  # type: ignore[no-untyped-def]
    """Put the entries of each feature one after the other, in the order of the rows: row numbers into `rows`, values into
    `out`. `places`: where the entries of each feature begin; where they end afterwards."""
    for r in range(starts.size):
        for k in range(starts[r], stops[r]):
            place = places[indices[k]]
            rows[place] = r
            out[place] = values[k]
            places[indices[k]] = place + 1


@compiled
def transpose_dense(starts, stops, values, out):  # type: ignore[no-untyped-def]
    """The value of feature j in row r becomes out[j · rows + r]; features that a row lacks stay as they are."""
    rows = starts.size
    for first in range(0, rows, _ROWS_AT_ONCE):
        last = min(rows, first + _ROWS_AT_ONCE)
        for j in range(out.size // rows):
            for r in range(first, last):
                if starts[r] + j < stops[r]:
                    out[j * rows + r] = values[starts[r] + j]


@compiled
def squares_of(columns, bounds, indices, values, row_weights, sparse, squares, largest):  # type: ignore[no-untyped-def]
    """For each feature the weighted sum of squares, and the largest size of an entry."""
    for line in range(columns.size):
        total, most = 0.0, 0.0
        for k in range(bounds[line], bounds[line + 1]):
            r = np.int64(indices[k]) if sparse else k - bounds[line]
            value = np.float64(values[k])
            total += row_weights[r] * value * value
            most = max(most, abs(value))
        squares[columns[line] + 1], largest[columns[line] + 1] = total, most


@compiled
def add_scores(weights, columns, bounds, indices, values, sparse, scores):  # type: ignore[no-untyped-def]
    """Add to the rows' scores what the weights of features give."""
    for line in range(columns.size):
        weight = weights[columns[line] + 1]
        if weight != 0.0:
            for k in range(bounds[line], bounds[line + 1]):
                scores[np.int64(indices[k]) if sparse else k - bounds[line]] += weight * np.float64(values[k])


@inlinable
def _sparse_dot(slopes, indices, values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0  # in the order of the entries: vectors of gathered numbers take twice as long
    for k in range(start, stop):
        total += slopes[indices[k]] * np.float64(values[k])
    return total


@reordering
def _dense_dot(slopes, values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(stop - start):
        total += slopes[k] * np.float64(values[start + k])
    return total


@compiled
def measure(slopes, bounds, indices, values, columns, sparse, partials):  # type: ignore[no-untyped-def]
    """The partial derivatives of the sum of losses with respect to the weights of features."""
    for line in range(columns.size):
        if sparse:
            partials[columns[line] + 1] = _sparse_dot(slopes, indices, values, bounds[line], bounds[line + 1])
        else:
            partials[columns[line] + 1] = _dense_dot(slopes, values, bounds[line], bounds[line + 1])


@inlinable
def soft_threshold(value, threshold):  # type: ignore[no-untyped-def]
    return math.copysign(max(0.0, abs(value) - threshold), value)


@inlinable
def new_weight(weight, slope, curvature, l1, sigma):  # type: ignore[no-untyped-def]
    """The minimizer v of slope·(v - weight) + curvature/2·(v - weight)² + l1·|v| + sigma/2·v²."""
    return soft_threshold(curvature * weight - slope, l1) / (curvature + sigma)


@inlinable
def violation_of(weight, slope, l1, sigma):  # type: ignore[no-untyped-def]
    """The distance of 0 from the sub-differential."""
    if weight == 0.0:
        return max(0.0, abs(slope) - l1)
    return abs(slope + sigma * weight + math.copysign(l1, weight))


@compiled
def penalties(weights):  # type: ignore[no-untyped-def]
    """Σ|w| and Σw², without the intercept."""
    total, squares = 0.0, 0.0
    for i in range(1, weights.shape[0]):
        weight = weights[i]
        total += abs(weight)
        squares += weight * weight
    return total, squares


@compiled
def dual_sums(weights, partials, scale, l1, sigma):  # type: ignore[no-untyped-def]
    """Σ w·g, Σ max(0, scale·|g| - l1)² and max |g + sigma·w|, for partial derivatives g."""
    product, beyond, largest = 0.0, 0.0, 0.0
    for i in range(1, weights.shape[0]):
        weight, partial = weights[i], partials[i]
        product += weight * partial
        more = max(0.0, scale * abs(partial) - l1)
        beyond += more * more
        largest = max(largest, abs(partial + sigma * weight))
    return product, beyond, largest


@compiled
def find_violations(weights, partials, columns, l1, sigma, found):  # type: ignore[no-untyped-def]
    """How far each weight is from its optimality condition; -1 for weights that are not zero. Returns the largest, and the
    number of weights that are not zero."""
    worst, used = 0.0, 0
    for line in range(columns.size):
        i = columns[line] + 1
        weight = weights[i]
        violation = violation_of(weight, partials[i], l1, sigma)
        worst = max(worst, violation)
        found[line] = -1.0 if weight != 0.0 else violation
        used += weight != 0.0
    return worst, used


@compiled
def greatest_decrease(weights, partials, squares, columns, curvature, own):  # type: ignore[no-untyped-def]
    """The line whose step decreases the objective most for certain; -1 if there is none."""
    best, chosen = 0.0, -1
    l1, sigma = own[L1], own[SIGMA]
    for line in range(columns.size):
        i = columns[line] + 1
        bound = own[BOUND] if own[BOUND] > 0.0 else curvature * squares[i]
        if not bound + sigma > 0.0:
            continue
        weight, slope = weights[i], partials[i]
        after = new_weight(weight, slope, bound, l1, sigma)
        change = after - weight
        decrease = (
            l1 * (abs(weight) - abs(after))
            + 0.5 * sigma * (weight * weight - after * after)
            - change * (slope + 0.5 * bound * change)
        )
        if decrease > best:
            best, chosen = decrease, line
    return chosen


@inlinable
def extrapolated(iterates, found):  # type: ignore[no-untyped-def]
    """Anderson's extrapolation: the mean of the iterates, with weights of sum 1, whose steps nearly cancel. False if there is
    none. Bertrand & Massias, Anderson acceleration of coordinate descent (2021)."""
    count = iterates.shape[0] - 1
    equations = np.empty((count, count + 1))
    for i in range(count):
        for j in range(i + 1):
            total = 0.0
            for n in range(found.size):
                total += (iterates[i + 1, n] - iterates[i, n]) * (iterates[j + 1, n] - iterates[j, n])
            equations[i, j] = equations[j, i] = total
        equations[i, count] = 1.0
    if not solve(equations):
        return False
    total = 0.0
    for i in range(count):
        total += equations[i, count]
    found[:] = 0.0
    for i in range(count):
        for n in range(found.size):
            found[n] += equations[i, count] / total * iterates[i + 1, n]
    return np.isfinite(found).all()


@inlinable
def solve(equations):  # type: ignore[no-untyped-def]
    """Gauss and Jordan, with pivots: the last column becomes the solution. False if there is none."""
    count = equations.shape[0]
    for i in range(count):
        pivot = i
        for j in range(i + 1, count):
            if abs(equations[j, i]) > abs(equations[pivot, i]):
                pivot = j
        if not abs(equations[pivot, i]) > 0.0:
            return False
        for k in range(count + 1):
            equations[i, k], equations[pivot, k] = equations[pivot, k], equations[i, k]
        for j in range(count):
            if j != i:
                share = equations[j, i] / equations[i, i]
                for k in range(i, count + 1):
                    equations[j, k] -= share * equations[i, k]
    for i in range(count):
        equations[i, count] /= equations[i, i]
    return True


class Loops(NamedTuple):
    shift: Callable[..., None]
    """Add a number to all scores, and compute the slopes."""
    centre: Callable[..., float]
    """Find the best intercept."""
    sums: Callable[..., None]
    """Sums over rows: see SUMS."""
    visit: Callable[..., int]
    """Passes over some lines, with a step in each of them."""


LOSS_SUM, CONJUGATE_SUM, PRODUCT_SUM, SLOPE_SUM, CORRECT_SUM = range(5)
SUMS = 5
"""Σ loss, Σ loss*(scale·u), Σ u·score, Σ u, with u the slope, and the weight of the rows that are classified correctly."""


@cache
def loops_for(loss: LossFormulas, name: str) -> Loops:
    value_of, slope_of = value_and_slope(loss)
    smooth = SMOOTH_LOSSES[name]
    bend, conjugate = inlinable(smooth.bend), inlinable(smooth.conjugate)
    changes, curvature = smooth.changes, smooth.curvature

    @compiled
    def shift(scores, labels, row_weights, slopes, shape, change):  # type: ignore[no-untyped-def]
        for r in range(scores.size):
            score = scores[r] + change
            scores[r] = score
            slopes[r] = row_weights[r] * slope_of(score, labels[r], shape)

    @inlinable
    def curvature_at(slope, row_weight, shape):  # type: ignore[no-untyped-def]
        """Of a row, from its slope, times its weight."""
        return row_weight * bend(slope / row_weight, shape) if row_weight > 0.0 else 0.0

    @inlinable
    def sums_of(slopes, row_weights, shape):  # type: ignore[no-untyped-def]
        """The first and the second derivative with respect to the intercept."""
        slope, bent = 0.0, 0.0
        for r in range(slopes.size):
            slope += slopes[r]
            if changes != EXACT:
                bent += curvature_at(slopes[r], row_weights[r], shape)
        return slope, bent

    @inlinable
    def centring_step(row_weights, slopes, shape, total):  # type: ignore[no-untyped-def]
        """A step of the intercept that never increases the loss."""
        slope, bent = sums_of(slopes, row_weights, shape)
        bound = curvature * total
        if changes == GROWS:
            newton = abs(slope) / max(bent, 1e-300)
            bound = min(bound, bent * math.exp(min(newton, _LARGEST_GROWTH)))
        return -slope / max(bound, 1e-300), slope

    @compiled
    def centre(scores, labels, row_weights, slopes, own, total):  # type: ignore[no-untyped-def]
        """The sum of the slopes rises with the intercept: Newton's steps, within the bounds known so far. Returns by how much
        the scores have moved."""
        shape, shifted, low, high = own[SHAPE], 0.0, -math.inf, math.inf
        if own[CONSTANT] == 0.0 or not total > 0.0:
            return 0.0
        for _ in range(_MOST_CENTRING_STEPS):
            slope, bent = sums_of(slopes, row_weights, shape)
            if abs(slope) <= _CENTRED * total:
                break
            if slope < 0.0:
                low = shifted
            else:
                high = shifted
            bent = curvature * total if changes == EXACT else bent
            change = -slope / bent if bent > 0.0 else math.inf
            if not (low < shifted + change < high and abs(change) < math.inf):
                change = 0.5 * (low + high) - shifted
            if not abs(change) < math.inf:
                change = -slope / (curvature * total)
            if shifted + change == shifted:
                break
            shifted += change
            shift(scores, labels, row_weights, slopes, shape, change)
        return shifted

    @compiled
    def sums(scores, labels, row_weights, slopes, own, scale, found):  # type: ignore[no-untyped-def]
        found[:] = 0.0
        shape = own[SHAPE]
        for r in range(scores.size):
            weight, score, label = row_weights[r], scores[r], labels[r]
            if weight > 0.0:
                slope, right = slopes[r], (score > 0.0) == (label > 0.0)
                found[LOSS_SUM] += weight * value_of(score, label, shape)
                found[CONJUGATE_SUM] += weight * conjugate(scale * slope / weight, label, shape)
                found[PRODUCT_SUM] += slope * score
                found[SLOPE_SUM] += slope
                found[CORRECT_SUM] += weight if right else 0.0

    @inlinable
    def slope_and_curvature(slopes, row_weights, weighted, shape, indices, values, start, stop, sparse):  # type: ignore[no-untyped-def]
        if changes == EXACT:
            if sparse:
                return _sparse_dot(slopes, indices, values, start, stop), 0.0
            return _dense_dot(slopes, values, start, stop), 0.0
        slope, bent = 0.0, 0.0
        for k in range(start, stop):
            r = np.int64(indices[k]) if sparse else k - start
            value, own = np.float64(values[k]), slopes[r]
            slope += own * value
            if weighted:
                bent += curvature_at(own, row_weights[r], shape) * value * value
            else:
                bent += bend(own, shape) * value * value
        return slope, bent

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        scores, labels, row_weights, slopes, weighted, shape, indices, values, start, stop, sparse, change, some,
    ):  # fmt: skip
        if changes != GROWS:
            for k in range(start, stop):
                r = np.int64(indices[k]) if sparse else k - start
                score = scores[r] + change * np.float64(values[k])
                scores[r] = score
                slope = slope_of(score, labels[r], shape)
                slopes[r] = row_weights[r] * slope if weighted else slope
            return
        # Exponentials of numbers that lie next to each other use vector registers.
        for first in range(start, stop, _ENTRIES_AT_ONCE):
            count = min(_ENTRIES_AT_ONCE, stop - first)
            for n in range(count):
                k = first + n
                r = np.int64(indices[k]) if sparse else k - start
                score = scores[r] + change * np.float64(values[k])
                scores[r] = some[0, n] = score
                some[1, n] = labels[r]
            for n in range(count):
                some[0, n] = slope_of(some[0, n], some[1, n], shape)
            for n in range(count):
                r = np.int64(indices[first + n]) if sparse else first + n - start
                slopes[r] = row_weights[r] * some[0, n] if weighted else some[0, n]

    @inlinable
    def objective(chosen, scores, labels, row_weights, own):  # type: ignore[no-untyped-def]
        """As far as it depends on the chosen weights; the intercept is the last one."""
        total = 0.0
        for r in range(scores.size):
            if row_weights[r] > 0.0:
                total += row_weights[r] * value_of(scores[r], labels[r], own[SHAPE])
        for weight in chosen[:-1]:
            total += own[L1] * abs(weight) + 0.5 * own[SIGMA] * weight * weight
        return total

    @inlinable
    def leap(  # type: ignore[no-untyped-def]
        order, coordinates, weights, iterates, scores, labels, row_weights, slopes, own, bounds, indices, values, sparse,
    ):  # fmt: skip
        """Continue from the extrapolated weights if the objective is smaller there."""
        rows, chosen, after = scores.size, iterates[ITERATES], np.empty(coordinates.size)
        if not extrapolated(iterates, after):
            return
        before, known = objective(chosen, scores, labels, row_weights, own), scores.copy()
        change = (after[-1] - chosen[-1]) * own[CONSTANT]
        for r in range(rows):
            scores[r] += change
        for n in range(order.size):
            change = after[n] - chosen[n]
            if change != 0.0:
                start = bounds[order[n]]
                for k in range(start, bounds[order[n] + 1]):
                    scores[np.int64(indices[k]) if sparse else k - start] += change * np.float64(values[k])
        if objective(after, scores, labels, row_weights, own) < before:
            weights[coordinates] = after
            for r in range(rows):
                slopes[r] = row_weights[r] * slope_of(scores[r], labels[r], own[SHAPE])
        else:
            scores[:] = known

    @compiled
    def visit(  # type: ignore[no-untyped-def]
        order, columns, weights, scores, labels, row_weights, slopes, squares, largest, own, bounds, indices, values,
        sparse, weighted, total, tolerance, passes,
    ):  # fmt: skip
        shape, l1, sigma, constant = own[SHAPE], own[L1], own[SIGMA], own[CONSTANT]
        entries, rows = np.int64(0), scores.size
        some = np.empty((2, _ENTRIES_AT_ONCE))
        coordinates = np.zeros(order.size + 1, np.int64)
        coordinates[:-1] = columns[order] + 1
        iterates = np.empty((ITERATES + 1 if passes > ITERATES else 0, coordinates.size))
        for number in range(passes):
            if iterates.size:
                iterates[number % ITERATES] = weights[coordinates]
            worst = 0.0
            for n in range(order.size):
                i, start, stop = coordinates[n], bounds[order[n]], bounds[order[n] + 1]
                weight = weights[i]
                slope, bent = slope_and_curvature(
                    slopes, row_weights, weighted, shape, indices, values, start, stop, sparse
                )
                entries += stop - start
                worst = max(worst, violation_of(weight, slope, l1, sigma))
                bound = own[BOUND]
                if bound == 0.0:
                    bound = curvature * squares[i]
                    if changes == GROWS and bent > 0.0:
                        tried = new_weight(weight, slope, bent, l1, sigma) - weight
                        bound = min(bound, bent * math.exp(min(abs(tried) * largest[i], _LARGEST_GROWTH)))
                if not bound + sigma > 0.0:
                    continue
                after = new_weight(weight, slope, bound, l1, sigma)
                if after != weight:
                    weights[i] = after
                    move(
                        scores, labels, row_weights, slopes, weighted, shape, indices, values, start, stop, sparse,
                        after - weight, some,
                    )  # fmt: skip
                    entries += stop - start
            if constant != 0.0:
                change, slope = centring_step(row_weights, slopes, shape, total)
                worst = max(worst, abs(slope))
                weights[0] += change / constant
                shift(scores, labels, row_weights, slopes, shape, change)
                entries += rows
            if worst <= tolerance:
                break
            if iterates.size and number % ITERATES == ITERATES - 1:
                iterates[ITERATES] = weights[coordinates]
                leap(
                    order, coordinates, weights, iterates, scores, labels, row_weights, slopes, own, bounds, indices, values,
                    sparse,
                )  # fmt: skip
        return entries

    return Loops(shift, centre, sums, visit)
