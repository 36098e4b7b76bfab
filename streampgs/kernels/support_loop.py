"""Loops of the solver `kernel`: kernels of rows with support rows, and steps on the support that is most like a row."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled, inlinable, reordering
from streampgs.kernels.row_steps import TARGET_ROWS, Steps
from streampgs.kernels.vector_math import exp_of_negative

SIGMA = TARGET_ROWS
T0 = TARGET_ROWS + 1
PARAMETERS = TARGET_ROWS + 2


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
def steps_for(layout: str) -> Steps:
    """What the solver does in a step. Its arrays are λ and the sum of iterates, with a row for each lane, and S."""
    sparse = layout == "sparse"

    @inlinable
    def begin(dual, iterate_sum, multiplier_sum, room, parameters, t, copies, multipliers):  # type: ignore[no-untyped-def]
        multipliers[:] = 1.0
        if t > 0:  # averages are of the weights from which steps start
            for lane in range(multipliers.size):
                multiplier_sum[lane] += 1.0 / ((t + parameters[T0, lane]) * parameters[SIGMA, lane])

    @inlinable
    def dot(  # type: ignore[no-untyped-def]
        dual, iterate_sum, multiplier_sum, room, parameters, t, indices, values, start, stop, intercept, sums
    ):  # fmt: skip
        for lane in range(sums.size):
            total = dual[lane, 0] * intercept
            if sparse:
                for j in range(start, stop):
                    total += dual[lane, np.int64(indices[j]) + 1] * values[j]
            else:
                total += _dense_dot(dual[lane, 1:], values[start:stop])
            sums[lane] = total / ((t + parameters[T0, lane]) * parameters[SIGMA, lane]) if t > 0 else 0.0

    @inlinable
    def move(  # type: ignore[no-untyped-def]
        dual, iterate_sum, multiplier_sum, room, parameters, t, copies, indices, values, start, stop, intercept, changes, k,
        sums,
    ):  # fmt: skip
        nearest, largest = -1, 0.0
        for j in range(start, stop):
            size = abs(np.float64(values[j]))
            if size > largest:
                nearest, largest = j, size
        for lane in range(sums.size):
            change = changes[k, lane] * intercept
            dual[lane, 0] += change
            iterate_sum[lane, 0] -= change * multiplier_sum[lane]
            if nearest >= 0:
                i = (np.int64(indices[nearest]) if sparse else nearest - start) + 1
                change = changes[k, lane] * np.float64(values[nearest])
                dual[lane, i] += change
                iterate_sum[lane, i] -= change * multiplier_sum[lane]

    return Steps(begin, dot, move)
