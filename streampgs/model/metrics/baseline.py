"""What the best constant prediction would get: a model that knows the labels' distribution and no feature."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import Vector
from streampgs.model.metrics.sums import FULL, Batch, Histogram, Moments, Size, Sums, Task

_LARGEST_SCORE = 64.0
_SHARE = (math.sqrt(5.0) - 1.0) / 2.0
_SECTIONS = 80


class Labels(Sums):
    """The distribution of the labels: the weight of each class, or of each number (of bins of numbers, where there are
    more rows than may be kept)."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self._classes = np.zeros(task.classes)
        self._numbers = Histogram(2, size)
        self.moments = Moments(task, size)

    def add(self, batch: Batch) -> None:
        if self.task.classes:
            self._classes += np.bincount(batch.numbers, batch.weights, minlength=self.task.classes)
        else:
            self.moments.add(batch)
            self._numbers.add(batch.labels, batch.weights, batch.weights * batch.labels)

    @property
    def shares(self) -> Vector | None:
        """The share of each class; None without rows."""
        total = self._classes.sum()
        return self._classes / total if total else None

    def distribution(self) -> tuple[Vector, Vector]:
        """Numbers and their weights."""
        weights, totals = self._numbers.columns()
        counted = weights > 0.0
        return totals[counted] / weights[counted], weights[counted]


def largest_share(labels: Labels) -> float | None:
    return None if labels.shares is None else float(labels.shares.max())


def entropy(labels: Labels) -> float | None:
    if labels.shares is None:
        return None
    shares = labels.shares[labels.shares > 0.0]
    return float(-(shares @ np.log(shares))) + 0.0


def brier(labels: Labels) -> float | None:
    return None if labels.shares is None else float(labels.shares[1] * (1.0 - labels.shares[1]))


def positive_share(labels: Labels) -> float | None:
    shares = labels.shares
    return float(shares[1]) if shares is not None and shares[1] > 0.0 else None


def one_half(labels: Labels) -> float | None:
    return 0.5 if labels.shares is not None and np.count_nonzero(labels.shares) > 1 else None


def variance(labels: Labels) -> float | None:
    return labels.moments.spread / labels.moments.weight if labels.moments.weight else None


def deviation(labels: Labels) -> float | None:
    found = variance(labels)
    return None if found is None else math.sqrt(found)


def zero(labels: Labels) -> float | None:
    return 0.0 if labels.moments.spread else None


def absolute(labels: Labels) -> float | None:
    """Around the median."""
    return _quantile_loss(labels, 0.5, 2.0)


def pinball(labels: Labels) -> float | None:
    return _quantile_loss(labels, labels.task.shape, 1.0)


def _quantile_loss(labels: Labels, quantile: float, factor: float) -> float | None:
    values, weights = labels.distribution()
    if not len(values):
        return None
    below = np.cumsum(weights)
    constant = values[min(np.searchsorted(below, quantile * below[-1]), len(values) - 1)]
    misses = values - constant
    return factor * float(np.average(np.maximum(quantile * misses, (quantile - 1.0) * misses), weights=weights))


def deviance(labels: Labels) -> float | None:
    """The deviance of the mean count."""
    counts, weights = labels.distribution()
    if not len(counts):
        return None
    mean = max(float(np.average(counts, weights=weights)), np.finfo(np.float64).tiny)
    logarithms = np.log(np.where(counts > 0.0, counts, 1.0) / mean)
    return float(np.average(2.0 * (counts * logarithms - counts + mean), weights=weights))


def loss(labels: Labels) -> float | None:
    """The least mean loss; of several classes the mean of each class against all others."""
    task = labels.task
    if not task.classes:
        values, weights = labels.distribution()
        return _least_loss(task, values, weights) if len(values) else None
    shares = labels.shares
    if shares is None:
        return None
    positives = shares[1:] if task.classes == 2 else shares
    both = np.array([-1.0, 1.0])
    return float(np.mean([_least_loss(task, both, np.array([1.0 - share, share])) for share in positives]))


def _least_loss(task: Task, labels: Vector, weights: Vector) -> float:
    """The least mean over constant scores."""

    def mean_at(score: float) -> float:
        total = loss_sum_for(task.loss)(np.full(len(labels), score), labels, weights, task.shape)
        return total / float(weights.sum())

    if not task.classes:
        return mean_at(task.loss.base(labels, weights, np.empty(0), task.shape))
    return _least_by_sections(mean_at, -_LARGEST_SCORE, _LARGEST_SCORE)


def _least_by_sections(value_at: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a convex function, by golden sections."""
    first, second = high - _SHARE * (high - low), low + _SHARE * (high - low)
    at_first, at_second = value_at(first), value_at(second)
    for _ in range(_SECTIONS):
        if at_first <= at_second:
            high, second, at_second = second, first, at_first
            first = high - _SHARE * (high - low)
            at_first = value_at(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + _SHARE * (high - low)
            at_second = value_at(second)
    return min(at_first, at_second)
