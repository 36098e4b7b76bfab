"""Loops of the solver `kernel`: kernels of rows with support rows, and steps on the support that is most like a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of
from streampgs.kernels.vector_math import exp_of_negative

SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
PARAMETERS = TARGET_ROWS + 2
LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = 2, 3, 4


@inlinable
def _add_products(products, owners, factors, value):  # type: ignore[no-untyped-def]
    """value · factor for each support that has the feature."""
    if owners.size == products.size:  # all have it, in their order
        for s in range(products.size):
            products[s] += value * factors[s]
    else:
        for k in range(owners.size):
            products[owners[k]] += value * factors[k]


@compiled
def kernel_rows(  # type: ignore[no-untyped-def]
    starts, stops, indices, values, sparse, inputs, features, bounds, owners, factors, squares, gamma, degree, out
):
    """out[r, s]: the kernel of row r and support s, divided by the length of the support in the space of the kernel.

    The supports are stored by feature: features[k] belongs to supports owners[bounds[k]:bounds[k+1]], with these values in
    `factors`. `squares`: ‖s‖² for each support. `degree` 0: the RBF kernel, else the polynomial one.
    """
    products = np.empty(squares.size)
    for r in range(starts.size):
        products[:] = 0.0
        square = 0.0
        for j in range(starts[r], stops[r]):
            i = np.int64(indices[j]) if sparse else j - starts[r]
            if i >= inputs:
                continue
            value = np.float64(values[j])
            square += value * value
            k = np.searchsorted(features, i)
            if k < features.size and features[k] == i:
                first, stop = bounds[k], bounds[k + 1]
                _add_products(products, owners[first:stop], factors[first:stop], value)
        row = out[r]
        if degree == 0:
            for s in range(squares.size):
                distance = max(0.0, (square + squares[s]) - 2.0 * products[s])
                row[s] = exp_of_negative(-gamma * distance)
        else:
            for s in range(squares.size):
                base, length = gamma * products[s] + 1.0, math.sqrt(gamma * squares[s] + 1.0)
                ratio, power = base / length, 1.0
                for _ in range(degree):
                    power *= ratio
                row[s] = power


@reordering
def _dense_dot(weights, values):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(values.size):
        total += weights[j] * values[j]
    return total


@cache
def advance_for(loss: LossFormulas, layout: str) -> Callable[..., int]:
    """advance(…): steps over rows [first, stop), `batch` rows a step; returns the step count after them. Each gradient and
    each step is counted `copies` times."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        dual, iterate_sum, multiplier_sum, tallies, parameters, starts, stops, indices, values, labels, row_weights,
        offsets, first, stop, batch, t, copies, intercept,
    ):  # fmt: skip
        lanes = dual.shape[0]
        changes, nearest = np.empty((batch, lanes)), np.empty(batch, np.int64)
        weighted, shifted = row_weights.size > 0, offsets.size > 0
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = copies / (batch_stop - batch_first)
            if t > 0:  # averages are of the weights from which steps start
                for lane in range(lanes):
                    multiplier_sum[lane] += 1.0 / ((t + parameters[T0, lane]) * parameters[SIGMA, lane])
            for r in range(batch_first, batch_stop):
                best, largest = -1, 0.0
                for j in range(starts[r], stops[r]):
                    size = abs(np.float64(values[j]))
                    if size > largest:
                        best, largest = j, size
                nearest[r - batch_first] = best
                row = values[starts[r] : stops[r]]
                weight = row_weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    total = dual[lane, 0] * intercept
                    if sparse:
                        for j in range(starts[r], stops[r]):
                            total += dual[lane, np.int64(indices[j]) + 1] * values[j]
                    else:
                        total += _dense_dot(dual[lane, 1:], row)
                    clock = (t + parameters[T0, lane]) * parameters[SIGMA, lane]
                    score = total / clock if t > 0 else 0.0
                    score += parameters[BASE, lane] + offset * parameters[UNIT, lane]
                    label = label_of(labels, r, lane, parameters)
                    slope = weight * slope_of(score, label, parameters[SHAPE, lane])
                    changes[r - batch_first, lane] = -share * slope
                    tallies[LOSS_TALLY, lane] += weight * value_of(score, label, parameters[SHAPE, lane])
                    tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                    tallies[WEIGHT_TALLY, lane] += weight
            for r in range(batch_first, batch_stop):
                j = nearest[r - batch_first]
                for lane in range(lanes):
                    change = changes[r - batch_first, lane] * intercept
                    dual[lane, 0] += change
                    iterate_sum[lane, 0] -= change * multiplier_sum[lane]
                    if j >= 0:
                        i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                        change = changes[r - batch_first, lane] * np.float64(values[j])
                        dual[lane, i] += change
                        iterate_sum[lane, i] -= change * multiplier_sum[lane]
            t += copies
        return t

    made: Callable[..., int] = advance
    return made
