"""Losses of mixed scores, and their slopes by the shares of the mixture."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from streampgs.kernels.jit import compiled
from streampgs.kernels.losses import LossFormulas, value_and_slope


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
