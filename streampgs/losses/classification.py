"""Losses of two classes, -1 and +1."""

from __future__ import annotations

import math

import numpy as np

from streampgs.kernels.vector_math import exp_of_negative, log1p_of_unit
from streampgs.losses.loss import Loss, Vector


def mean_label(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    return float(np.average(labels, weights=weights))


def hinge_value(s: float, y: float, shape: float) -> float:
    return max(0.0, 1.0 - y * s)


def hinge_slope(s: float, y: float, shape: float) -> float:
    return -y if y * s < 1.0 else 0.0


def _larger_class(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    return float(np.sign(mean_label(labels, weights, offsets, shape)))


HINGE = Loss(
    "hinge", hinge_value, hinge_slope, classifies=True, curvature=1.0, lipschitz=True, minimizer=_larger_class,
    smooth=False,
)  # fmt: skip


def squared_hinge_value(s: float, y: float, shape: float) -> float:
    miss = max(0.0, 1.0 - y * s)
    return miss * miss


def squared_hinge_slope(s: float, y: float, shape: float) -> float:
    return -2.0 * y * max(0.0, 1.0 - y * s)


SQUARED_HINGE = Loss(
    "squared-hinge", squared_hinge_value, squared_hinge_slope, classifies=True, curvature=2.0, lipschitz=False,
    minimizer=mean_label,
)  # fmt: skip


def modified_huber_value(s: float, y: float, shape: float) -> float:
    margin = y * s
    if margin < -1.0:
        return -4.0 * margin
    miss = max(0.0, 1.0 - margin)
    return miss * miss


def modified_huber_slope(s: float, y: float, shape: float) -> float:
    margin = y * s
    if margin < -1.0:
        return -4.0 * y
    return -2.0 * y * max(0.0, 1.0 - margin)


def _clipped_probability(scores: Vector) -> Vector:
    return np.clip((scores + 1.0) / 2.0, 0.0, 1.0)


MODIFIED_HUBER = Loss(
    "modified-huber", modified_huber_value, modified_huber_slope, classifies=True, curvature=2.0, lipschitz=True,
    minimizer=mean_label, probability=_clipped_probability,
)  # fmt: skip


def logistic_value(s: float, y: float, shape: float) -> float:
    margin = y * s
    return log1p_of_unit(exp_of_negative(-abs(margin))) + max(0.0, -margin)


def logistic_slope(s: float, y: float, shape: float) -> float:
    margin = y * s
    shrunk = exp_of_negative(-abs(margin))  # at most 1, so that no score overflows
    return -y * (shrunk if margin >= 0.0 else 1.0) / (1.0 + shrunk)


def _logistic_probability(scores: Vector) -> Vector:
    shrunk = np.exp(-np.abs(scores))
    return np.asarray(np.where(scores >= 0.0, 1.0, shrunk) / (1.0 + shrunk))


def _log_odds(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    """A class that no row has counts as half a row, so that the odds are finite."""
    share = float(weights[labels > 0.0].sum() / weights.sum())
    least = 0.5 / len(labels)
    share = min(max(share, least), 1.0 - least)
    return math.log(share / (1.0 - share))


LOGISTIC = Loss(
    "logistic", logistic_value, logistic_slope, classifies=True, curvature=0.5, lipschitz=True, minimizer=_log_odds,
    probability=_logistic_probability,
)  # fmt: skip
