"""Sums of losses over given scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from streampgs.arithmetic.jit import compiled
from streampgs.arithmetic.losses import LOSSES


@cache
def loss_sum_for(loss_name: str) -> Callable[..., float]:
    """loss_sum(scores, labels, weights, shape): Σ weight·loss; empty `weights` means ones."""
    value_of = LOSSES[loss_name].value

    @compiled
    def loss_sum(scores, labels, weights, shape):  # type: ignore[no-untyped-def]
        weighted = weights.size > 0
        total = 0.0
        for r in range(scores.size):
            total += (weights[r] if weighted else 1.0) * value_of(scores[r], labels[r], shape)
        return total

    made: Callable[..., float] = loss_sum
    return made
