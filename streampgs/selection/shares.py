"""The shares of a mixture that fit judged rows best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]
"""Value and slopes of a convex function of the shares."""

_STEPS = 25  # times d(d + 1), where d shares are free: the volume that is left shrinks by a fixed factor in each step
_EXACT = 1e-10
_RADIUS_SQUARED = 2.0  # of a ball around any point of the simplex that contains all of it


def with_prior(mean_loss: Objective, prior: Array, weight: float) -> Objective:
    """The mean loss plus weight·Σ share·log(share/prior)."""

    def objective(shares: Array) -> tuple[float, Array]:
        loss, slopes = mean_loss(shares)
        logs = np.array([math.log(share / likely) for share, likely in zip(shares, prior, strict=True)])
        return loss + weight * float((shares * logs).sum()), slopes + weight * (logs + 1.0)

    return objective


def best_shares(objective: Objective, start: Sequence[float]) -> Array:
    """Where the objective is smallest on the simplex, by the ellipsoid method: kinks of the losses do not stop it. The
    objective is never larger than at the start, where no share may be 0."""
    centre, free = np.array(start[:-1]), len(start) - 1
    spread = _RADIUS_SQUARED * np.eye(free)
    best, least = np.array(start), math.inf
    for _ in range(_STEPS * free * (free + 1)):
        shares = np.append(centre, 1.0 - centre.sum())
        inside = bool(shares.min() > 0.0)
        if inside:
            value, slopes = objective(shares)
            if value < least:
                best, least = shares, value
        else:
            slopes = -1.0 * (np.arange(free + 1) == shares.argmin())
        direction = slopes[:-1] - slopes[-1]
        largest = float(np.abs(direction).max())
        if not 0.0 < largest < math.inf:
            break
        direction /= largest
        moved = (spread * direction).sum(axis=1)
        width = math.sqrt(max(0.0, float((direction * moved).sum())))
        # No point of the ellipsoid has a value that is smaller by more than the width.
        if width == 0.0 or (inside and largest * width <= _EXACT):
            break
        centre, spread = _smaller(centre, spread, moved / width)
    return best


def _smaller(centre: Array, spread: Array, step: Array) -> tuple[Array, Array]:
    """The smallest ellipsoid around the half of this one that is opposite to the step."""
    free = len(centre)
    if free == 1:
        return centre - 0.5 * step, 0.25 * spread
    half = spread - 2.0 / (free + 1) * np.outer(step, step)
    return centre - step / (free + 1), free * free / (free * free - 1.0) * half
