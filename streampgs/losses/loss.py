"""What a loss declares about itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Formula = Callable[[float, float, float], float]
"""A function of score, label and shape. Formulas are module-level functions of different names: compiled code is kept by name."""


@dataclass(frozen=True)
class Parameter:
    """The number that some losses carry, called `shape` in formulas."""

    name: str
    default: Callable[[Vector], float]
    """From a sample of the labels."""
    above: float = 0.0
    below: float = math.inf
    help: str = ""
    """For the option of its name; empty if a user may not choose it."""
    shown: str = ""
    """The default in words."""
    in_label_units: bool = False
    """Whether it is measured in the unit of the labels: where labels are scaled, it is too."""

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, eq=False)
class Loss:
    """A convex function of the score, for each label. Labels of classification are -1 and +1.

    Formulas never give NaN for a finite score, and only those that grow as a square may overflow.
    """

    name: str
    value: Formula
    slope: Formula
    """dvalue/dscore; at a kink any slope between those of both sides."""
    classifies: bool
    curvature: float
    """The first step is 1/(curvature·mean ‖x‖²): the largest second derivative, or the best measured value (logistic,
    and losses without curvature)."""
    lipschitz: bool
    """Whether the slope is bounded on the whole line; the others need a ball."""
    minimizer: Callable[[Vector, Vector, Vector, float], float]
    """The constant score with the smallest mean loss, from labels, weights, offsets and shape. Losses of classes ignore
    the offsets: with offsets their constant has no closed form."""
    smooth: bool = True
    """Whether the slope is continuous."""
    parameter: Parameter | None = None
    scale: Callable[[Vector, Vector], float] = lambda labels, weights: 1.0
    """The unit in which models see labels, from a sample of labels and weights, so that steps suit labels of any size."""
    degree: int = 0
    """Labels and scores that are c times as large have c**degree times the loss."""
    unit: Callable[[Vector], float] = lambda labels: 1.0
    """Steps are multiplied by it: not 1 where the curvature depends on the labels. From a sample of them."""
    lowest_label: float = -math.inf
    probability: Callable[[Vector], Vector] | None = None
    """The probability of the positive class, from scores; None if the loss estimates none."""
    prediction: Callable[[Vector], Vector] = lambda scores: scores
    """The predicted number, from scores. Classes are predicted by the sign of the score."""

    def shape(self, labels: Vector, chosen: float | None = None) -> float:
        """The loss's parameter: as chosen, or from a sample of the labels; 0 if it has none."""
        if self.parameter is None:
            return 0.0
        return self.parameter.default(labels) if chosen is None else chosen

    def scaled_shape(self, shape: float, scale: float) -> float:
        """The parameter for labels that are divided by `scale`."""
        return shape / scale if self.parameter is not None and self.parameter.in_label_units else shape

    def base(self, labels: Vector, weights: Vector, offsets: Vector, shape: float) -> float:
        """The score that fits labels best if it is the same for all rows, up to their offsets. Empty weights mean ones,
        empty offsets zeros; 0 if no row counts."""
        weights = weights if weights.size else np.ones(len(labels))
        offsets = offsets if offsets.size else np.zeros(len(labels))
        return self.minimizer(labels, weights, offsets, shape) if weights.sum() > 0.0 else 0.0

    def values(self, scores: Vector | float, labels: Vector, shape: float) -> Vector:
        """The value for each label, in plain Python: for a few numbers."""
        return np.asarray(np.vectorize(self.value, otypes=[np.float64])(scores, labels, shape))


_MEAN_TO_MEDIAN = 1.1829  # sqrt(2/π)/Φ⁻¹(3/4)
_SAME = 1e-9  # labels that differ by less than this share of the mean distance count as the same


def spread(labels: Vector) -> float:
    """The usual distance of labels from their median, the largest of several columns; 1 if it is 0."""
    columns = labels if labels.ndim == 2 else labels[:, np.newaxis]
    return max((weighted_spread(column, np.ones(len(column))) for column in columns.T), default=1.0)


def weighted_spread(labels: Vector, weights: Vector) -> float:
    """The usual distance of labels from their median: the median distance, which does not depend on outliers, times the
    number that makes it the mean distance of normally distributed labels. The mean distance if more than half of the
    labels are the same; 1 if it is 0."""
    if not weights.sum() > 0.0:
        return 1.0
    distances = np.abs(labels - weighted_quantile(labels, weights, 0.5))
    mean = float(np.average(distances, weights=weights))
    robust = _MEAN_TO_MEDIAN * weighted_quantile(distances, weights, 0.5)
    return _positive(robust if robust > _SAME * mean else mean)


def weighted_deviation(labels: Vector, weights: Vector) -> float:
    """The standard deviation; 1 if it is 0."""
    if not weights.sum() > 0.0:
        return 1.0
    mean = np.average(labels, weights=weights)
    return _positive(math.sqrt(float(np.average((labels - mean) ** 2, weights=weights))))


def _positive(found: float) -> float:
    return found if found > 0.0 and math.isfinite(found) else 1.0


def weighted_quantile(labels: Vector, weights: Vector, quantile: float) -> float:
    order = np.argsort(labels, kind="stable")
    below = np.cumsum(weights[order])
    return float(labels[order[np.searchsorted(below, quantile * below[-1])]])
