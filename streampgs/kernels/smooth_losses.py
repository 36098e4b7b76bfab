"""Losses with a bounded second derivative: what coordinate descent and its dual problem need of them.

Keyed by the name of the loss. Second derivatives are functions of the slope, which the loop keeps for each row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

EXACT, GROWS, JUMPS = 0, 1, 2
"""How the second derivative changes with the score: not at all; by a factor of at most e^|change|; in jumps."""


class SmoothLoss(NamedTuple):
    changes: int
    curvature: float
    """The largest second derivative."""
    bend: Callable[[float, float], float]
    """The second derivative, from the slope and the shape."""
    conjugate: Callable[[float, float, float], float]
    """sup over scores s of u·s - loss(s; y), from u, y and the shape, for u between 0 and a slope."""


def squared_bend(slope: float, shape: float) -> float:
    return 2.0


def squared_conjugate(u: float, y: float, shape: float) -> float:
    return u * (0.25 * u + y)


def logistic_bend(slope: float, shape: float) -> float:
    return abs(slope) * (1.0 - abs(slope))


def logistic_conjugate(u: float, y: float, shape: float) -> float:
    share = min(1.0, max(0.0, -u * y))
    low, high = share, 1.0 - share
    return (low * np.log(low) if low > 0.0 else 0.0) + (high * np.log(high) if high > 0.0 else 0.0)


def active_bend(slope: float, shape: float) -> float:
    """Of the squared hinge."""
    return 2.0 if slope != 0.0 else 0.0


def modified_huber_bend(slope: float, shape: float) -> float:
    return 2.0 if 0.0 < abs(slope) < 4.0 else 0.0


def huber_bend(slope: float, shape: float) -> float:
    return 1.0 if abs(slope) < shape else 0.0


def huber_conjugate(u: float, y: float, shape: float) -> float:
    return u * (0.5 * u + y)


SMOOTH_LOSSES = {
    "squared": SmoothLoss(EXACT, 2.0, squared_bend, squared_conjugate),
    "logistic": SmoothLoss(GROWS, 0.25, logistic_bend, logistic_conjugate),
    "squared-hinge": SmoothLoss(JUMPS, 2.0, active_bend, squared_conjugate),
    "modified-huber": SmoothLoss(JUMPS, 2.0, modified_huber_bend, squared_conjugate),
    "huber": SmoothLoss(JUMPS, 1.0, huber_bend, huber_conjugate),
}
