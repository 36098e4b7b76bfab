"""Losses of given scores: their sums, the logistic loss at the best scale of the scores, and the losses of mixtures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.jit import compiled
from streampgs.kernels.row_steps import LossFormulas, value_and_slope
from streampgs.kernels.vector_math import exp_of_negative, log1p_of_unit


@cache
def loss_sum_for(loss: LossFormulas) -> Callable[..., float]:
    """loss_sum(scores, labels, weights, shape): Σ weight·loss; empty `weights` means ones."""
    value_of, _ = value_and_slope(loss)

    @compiled
    def loss_sum(scores, labels, weights, shape):  # type: ignore[no-untyped-def]
        weighted = weights.size > 0
        total = 0.0
        for r in range(scores.size):
            total += (weights[r] if weighted else 1.0) * value_of(scores[r], labels[r], shape)
        return total

    made: Callable[..., float] = loss_sum
    return made


@cache
def slope_sums_for(loss: LossFormulas) -> Callable[..., tuple[float, float]]:
    """slope_sums(scores, labels, weights, shape, constant): Σ weight·slope of the scores plus a constant, and the sum of
    the squares."""
    _, slope_of = value_and_slope(loss)

    @compiled
    def slope_sums(scores, labels, weights, shape, constant):  # type: ignore[no-untyped-def]
        total, squares = 0.0, 0.0
        for r in range(scores.size):
            slope = weights[r] * slope_of(scores[r] + constant, labels[r], shape)
            total += slope
            squares += slope * slope
        return total, squares

    made: Callable[..., tuple[float, float]] = slope_sums
    return made


_NEWTON_STEPS = 16
_LARGEST_MARGIN = 64.0


@compiled
def scaled_logistic_loss(scores, labels, weights):  # type: ignore[no-untyped-def]
    """min over a ≥ 0 of Σ weight·log(1 + exp(-a·y·score)): how well scores tell the classes apart, for any scale.

    By Newton's method inside a bracket, until the sixth digit of the loss is certain.
    """
    mean_size, at_zero = 0.0, 0.0
    for r in range(scores.size):
        mean_size += abs(scores[r])
        at_zero += weights[r]
    mean_size /= max(1, scores.size)
    at_zero *= log1p_of_unit(1.0)
    if mean_size == 0.0:
        return at_zero
    if not mean_size < np.inf:
        return np.inf  # scores that are not finite cannot separate the classes
    low, high, scale = 0.0, _LARGEST_MARGIN, 1.0  # in units of 1/mean_size: squares of margins stay in range
    least = np.inf
    for _ in range(_NEWTON_STEPS):
        loss, slope, curvature = 0.0, 0.0, 0.0
        for r in range(scores.size):
            margin = scores[r] / mean_size * labels[r]
            shrunk = exp_of_negative(-abs(scale * margin))
            loss += weights[r] * (log1p_of_unit(shrunk) + max(0.0, -scale * margin))
            wrong = (shrunk if scale * margin >= 0.0 else 1.0) / (1.0 + shrunk)
            slope -= weights[r] * margin * wrong
            curvature += weights[r] * margin * margin * wrong * (1.0 - wrong)
        gained = least - loss
        least = min(least, loss)
        if slope > 0.0:
            high = scale
        else:
            low = scale
        following = scale - slope / curvature if curvature > 0.0 else high
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(gained) <= 1e-7 * least or following == scale:
            break
        scale = following
    return min(least, at_zero)


@cache
def mixed_loss_for(loss: LossFormulas) -> Callable[..., float]:
    """mixed_loss(scores, fixed, labels, weights, shape, shares, slopes): Σ weight·loss, where the score of a row is
    shares·scores[row] + fixed[row]. Adds the slope of this sum by each share to `slopes`."""
    value_of, slope_of = value_and_slope(loss)

    @compiled
    def mixed_loss(scores, fixed, labels, weights, shape, shares, slopes):  # type: ignore[no-untyped-def]
        total = 0.0
        for r in range(labels.size):
            mixed = fixed[r]
            for k in range(shares.size):
                mixed += shares[k] * scores[r, k]
            total += weights[r] * value_of(mixed, labels[r], shape)
            slope = weights[r] * slope_of(mixed, labels[r], shape)
            for k in range(shares.size):
                slopes[k] += slope * scores[r, k]
        return total

    made: Callable[..., float] = mixed_loss
    return made


@cache
def add_losses_for(loss: LossFormulas) -> Callable[..., None]:
    """add_losses(scores, labels, shape, unit, losses): adds unit·loss of each row to `losses`."""
    value_of, _ = value_and_slope(loss)

    @compiled
    def add_losses(scores, labels, shape, unit, losses):  # type: ignore[no-untyped-def]
        for r in range(labels.size):
            losses[r] += unit * value_of(scores[r], labels[r], shape)

    made: Callable[..., None] = add_losses
    return made
