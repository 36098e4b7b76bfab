"""The loss of counts: half the Poisson deviance. The expected count is exp(score)."""

from __future__ import annotations

import math

import numpy as np

from streampgs.kernels.vector_math import exp_of, log_of
from streampgs.losses.loss import Loss, Parameter, Vector

_LARGEST_RATE = 10.0  # mean counts
_LARGEST_EXPONENT = 708.0


def poisson_value(s: float, y: float, shape: float) -> float:
    """e^s - y - y·(s - log y), with the tangent of e^s in its place where e^s exceeds `shape` + y.

    So no score overflows, and one row of a much too large score moves the model by `shape` at most. The minimum is at
    e^s = y, below that bound, for every label.
    """
    limit = shape + y
    rate = exp_of(s)
    if rate > limit:
        rate = limit * (1.0 + s - log_of(limit))
    return max(0.0, rate - y - y * (s - log_of(y)))


def poisson_slope(s: float, y: float, shape: float) -> float:
    return min(exp_of(s), shape + y) - y


def _largest_rate(labels: Vector) -> float:
    return _LARGEST_RATE * (float(np.max(labels.mean(axis=0), initial=0.0) if len(labels) else 0.0) or 1.0)


def _unit(labels: Vector) -> float:
    """Mean count over mean squared count: a step on a row moves its score by about 1, be events rare or counts large."""
    columns = labels if labels.ndim == 2 else labels[:, np.newaxis]
    means, squares = columns.sum(axis=0), (columns * columns).sum(axis=0)
    return float(min((mean / square for mean, square in zip(means, squares, strict=True) if square > 0.0), default=1.0))


def _log_rate(labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
    """The logarithm of events per exposure. No event at all counts as half of one, so that it is finite."""
    events = max(float(weights @ labels), 0.5 * float(weights.mean()))
    excess = max(0.0, float(np.max(offsets, initial=0.0)) - _LARGEST_EXPONENT)
    return math.log(events / float(weights @ np.exp(offsets - excess))) - excess


def _expected_count(scores: Vector) -> Vector:
    return np.asarray(np.exp(np.minimum(scores, _LARGEST_EXPONENT)))


POISSON = Loss(
    "poisson", poisson_value, poisson_slope, classifies=False, curvature=1.0, lipschitz=True, minimizer=_log_rate,
    parameter=Parameter("largest_rate", default=_largest_rate), unit=_unit, lowest_label=0.0,
    prediction=_expected_count,
)  # fmt: skip
