"""The losses: of a score s and a label y, each is its value and its slope dvalue/ds, and nothing more.

`shape` is the one number that some losses carry (the quantile, Huber's width); the others ignore it. Labels of
classification are -1 and +1. None gives NaN for a finite score, and only those that grow as a square can overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streampgs.kernels.jit import inlinable
from streampgs.kernels.vector_math import exp_of_negative, log1p_of_unit

LossPart = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Loss:
    name: str
    value: LossPart
    slope: LossPart
    classifies: bool
    steepness: float
    """The first step is 1/(steepness·mean ‖x‖²): the largest second derivative, or what measured best (logistic)."""
    lipschitz: bool
    """Whether the slope is bounded on the whole line; the others need the ball."""
    default_shape: float = 0.0


@inlinable
def hinge_value(s: float, y: float, shape: float) -> float:
    return max(0.0, 1.0 - y * s)


@inlinable
def hinge_slope(s: float, y: float, shape: float) -> float:
    return -y if y * s < 1.0 else 0.0


@inlinable
def squared_hinge_value(s: float, y: float, shape: float) -> float:
    miss = max(0.0, 1.0 - y * s)
    return miss * miss


@inlinable
def squared_hinge_slope(s: float, y: float, shape: float) -> float:
    return -2.0 * y * max(0.0, 1.0 - y * s)


@inlinable
def modified_huber_value(s: float, y: float, shape: float) -> float:
    margin = y * s
    if margin < -1.0:
        return -4.0 * margin
    miss = max(0.0, 1.0 - margin)
    return miss * miss


@inlinable
def modified_huber_slope(s: float, y: float, shape: float) -> float:
    margin = y * s
    if margin < -1.0:
        return -4.0 * y
    return -2.0 * y * max(0.0, 1.0 - margin)


@inlinable
def logistic_value(s: float, y: float, shape: float) -> float:
    margin = y * s
    return log1p_of_unit(exp_of_negative(-abs(margin))) + max(0.0, -margin)


@inlinable
def logistic_slope(s: float, y: float, shape: float) -> float:
    margin = y * s
    shrunk = exp_of_negative(-abs(margin))  # at most 1, so that no score overflows
    return -y * (shrunk if margin >= 0.0 else 1.0) / (1.0 + shrunk)


@inlinable
def squared_value(s: float, y: float, shape: float) -> float:
    return (s - y) * (s - y)


@inlinable
def squared_slope(s: float, y: float, shape: float) -> float:
    return 2.0 * (s - y)


@inlinable
def huber_value(s: float, y: float, shape: float) -> float:
    miss = abs(s - y)
    if miss <= shape:
        return 0.5 * miss * miss
    return shape * (miss - 0.5 * shape)


@inlinable
def huber_slope(s: float, y: float, shape: float) -> float:
    return min(shape, max(-shape, s - y))


@inlinable
def absolute_value(s: float, y: float, shape: float) -> float:
    return abs(s - y)


@inlinable
def absolute_slope(s: float, y: float, shape: float) -> float:
    if s > y:
        return 1.0
    return -1.0 if s < y else 0.0


@inlinable
def quantile_value(s: float, y: float, shape: float) -> float:
    return max(shape * (y - s), (shape - 1.0) * (y - s))


@inlinable
def quantile_slope(s: float, y: float, shape: float) -> float:
    if s > y:
        return 1.0 - shape
    return -shape if s < y else 0.0


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("hinge", hinge_value, hinge_slope, True, 1.0, True),
        Loss("logistic", logistic_value, logistic_slope, True, 0.5, True),
        Loss("squared", squared_value, squared_slope, False, 2.0, False),
        Loss("squared-hinge", squared_hinge_value, squared_hinge_slope, True, 2.0, False),
        Loss("modified-huber", modified_huber_value, modified_huber_slope, True, 2.0, True),
        Loss("huber", huber_value, huber_slope, False, 1.0, True, default_shape=1.0),
        Loss("absolute", absolute_value, absolute_slope, False, 1.0, True),
        Loss("quantile", quantile_value, quantile_slope, False, 1.0, True, default_shape=0.5),
    )
}


def loss_values(loss: Loss) -> Any:
    """A plain-Python vectorisation of the value, for reports over few numbers."""
    import numpy as np

    return np.vectorize(loss.value, otypes=[np.float64])
