"""Losses of labels that are numbers."""

from __future__ import annotations

import numpy as np

from streampgs.losses.loss import (
    Loss,
    Parameter,
    Vector,
    spread,
    weighted_deviation,
    weighted_quantile,
    weighted_spread,
)


def squared_value(s: float, y: float, shape: float) -> float:
    return (s - y) * (s - y)


def squared_slope(s: float, y: float, shape: float) -> float:
    return 2.0 * (s - y)


def _mean(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    return float(np.average(labels - offsets, weights=weights))


SQUARED = Loss(
    "squared", squared_value, squared_slope, classifies=False, curvature=2.0, lipschitz=False, minimizer=_mean,
    scale=weighted_deviation, degree=2,
)  # fmt: skip


def huber_value(s: float, y: float, shape: float) -> float:
    miss = abs(s - y)
    if miss <= shape:
        return 0.5 * miss * miss
    return shape * (miss - 0.5 * shape)


def huber_slope(s: float, y: float, shape: float) -> float:
    return min(shape, max(-shape, s - y))


_HALVINGS = 60


def _huber_centre(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    """The root of the mean slope, which rises with the score."""
    labels = labels - offsets
    low, high = float(labels.min()), float(labels.max())
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if float(weights @ np.clip(middle - labels, -shape, shape)) < 0.0:
            low = middle
        else:
            high = middle
    return high


HUBER = Loss(
    "huber", huber_value, huber_slope, classifies=False, curvature=1.0, lipschitz=True, minimizer=_huber_centre,
    scale=weighted_spread, degree=2,
    parameter=Parameter(
        "huber_width", default=spread, in_label_units=True, help="Error at which --loss huber changes from squared to absolute.",
        shown="the usual distance of the labels from their median",
    ),
)  # fmt: skip


def absolute_value(s: float, y: float, shape: float) -> float:
    return abs(s - y)


def absolute_slope(s: float, y: float, shape: float) -> float:
    if s > y:
        return 1.0
    return -1.0 if s < y else 0.0


def _median(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    return weighted_quantile(labels - offsets, weights, 0.5)


ABSOLUTE = Loss(
    "absolute", absolute_value, absolute_slope, classifies=False, curvature=1.0, lipschitz=True, minimizer=_median,
    smooth=False, scale=weighted_spread, degree=1,
)  # fmt: skip


def quantile_value(s: float, y: float, shape: float) -> float:
    return max(shape * (y - s), (shape - 1.0) * (y - s))


def quantile_slope(s: float, y: float, shape: float) -> float:
    if s > y:
        return 1.0 - shape
    return -shape if s < y else 0.0


def _quantile(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    return weighted_quantile(labels - offsets, weights, shape)


QUANTILE = Loss(
    "quantile", quantile_value, quantile_slope, classifies=False, curvature=1.0, lipschitz=True,
    minimizer=_quantile, smooth=False, scale=weighted_spread, degree=1,
    parameter=Parameter(
        "quantile", default=lambda labels: 0.5, below=1.0, shown="0.5",
        help="Quantile that --loss quantile estimates, in (0, 1).",
    ),
)  # fmt: skip
