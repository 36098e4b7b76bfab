"""How good are predictions? A metric is one function or class, and one line of the registry below.

Rows come in batches, in any order, and memory is bounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import Loss, Vector

_EXACT_RANKS = 1 << 21
_RANK_BINS = 1 << 17


@dataclass(frozen=True)
class Task:
    """The prediction that scores stand for: a number, one of two classes (-1 and +1), or the number of one of several classes."""

    loss: Loss
    shape: float
    classes: int
    """0: a number."""

    def probabilities(self, scores: Vector) -> Vector | None:
        """Of the positive class, or of each of several classes, so that they add up to 1; None if the loss has none."""
        if self.loss.probability is None:
            return None
        positive = self.loss.probability(scores)
        if self.classes <= 2:
            return positive
        total = positive.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, positive / np.where(total > 0.0, total, 1.0), 1.0 / positive.shape[1])


@dataclass(frozen=True)
class Batch:
    """Scored rows: a score each, or one for each of several classes."""

    task: Task
    scores: Vector
    labels: Vector
    weights: Vector

    @cached_property
    def predictions(self) -> Vector:
        """In the terms of the labels."""
        if self.task.classes == 0:
            return self.task.loss.prediction(self.scores)
        if self.task.classes == 2:
            return np.where(self.scores > 0.0, 1.0, -1.0)
        return np.asarray(self.scores.argmax(axis=1), np.float64)

    @cached_property
    def label_probabilities(self) -> Vector:
        """The probability that the model gave to the class that the row has."""
        found = self.task.probabilities(self.scores)
        assert found is not None
        if self.task.classes == 2:
            return np.where(self.labels > 0.0, found, 1.0 - found)
        return np.asarray(found[np.arange(len(found)), self.labels.astype(np.intp)])

    def total(self, values: NDArray[Any]) -> float:
        """The weighted sum of a value for each row."""
        return float(self.weights @ values)


class Sums(ABC):
    """The rows that a metric has taken so far."""

    @abstractmethod
    def add(self, batch: Batch) -> None: ...

    @abstractmethod
    def result(self) -> Any:
        """A number, or another JSON value; None if these rows have no value."""


@dataclass(frozen=True)
class Metric:
    name: str
    """In JSON."""
    title: str
    applies: Callable[[Task], bool]
    """Whether it makes sense for these labels and this loss."""
    sums: Callable[[], Sums]


class Mean(Sums):
    """A weighted mean over rows."""

    def __init__(self, total_of: Callable[[Batch], float]) -> None:
        self._total_of = total_of
        self.weight = self.total = 0.0

    def add(self, batch: Batch) -> None:
        self.weight += float(batch.weights.sum())
        self.total += self._total_of(batch)

    def result(self) -> float | None:
        return self.total / self.weight if self.weight else None


# Totals of which the mean is a metric.


def _losses(batch: Batch) -> float:
    """Of several classes: the mean of the losses of each class against all others."""
    loss_sum, scores, shape = loss_sum_for(batch.task.loss), batch.scores, batch.task.shape
    if scores.ndim == 1:
        return loss_sum(scores, batch.labels, batch.weights, shape)
    total = 0.0
    for number in range(scores.shape[1]):
        labels = np.where(batch.labels == number, 1.0, -1.0)
        total += loss_sum(np.ascontiguousarray(scores[:, number]), labels, batch.weights, shape)
    return total / int(scores.shape[1])


def _hits(batch: Batch) -> float:
    return batch.total(batch.predictions == batch.labels)


def _log_losses(batch: Batch) -> float:
    """A probability of 0 counts as 2e-16."""
    least = float(np.finfo(np.float64).eps)
    return batch.total(-np.log(np.clip(batch.label_probabilities, least, 1.0 - least)))


def _squared_errors(batch: Batch) -> float:
    return batch.total((batch.labels - batch.predictions) ** 2)


def _absolute_errors(batch: Batch) -> float:
    return batch.total(np.abs(batch.labels - batch.predictions))


def _pinball_losses(batch: Batch) -> float:
    """At the quantile of the model."""
    misses, quantile = batch.labels - batch.predictions, batch.task.shape
    return batch.total(np.maximum(quantile * misses, (quantile - 1.0) * misses))


def _poisson_deviances(batch: Batch) -> float:
    counts, expected = batch.labels, np.maximum(batch.predictions, np.finfo(np.float64).tiny)
    logarithms = np.log(np.where(counts > 0.0, counts, 1.0) / expected)
    return batch.total(2.0 * (counts * logarithms - counts + expected))


# Metrics that are not means.


class RSquared(Sums):
    """1 - squared error / variance of the labels."""

    def __init__(self) -> None:
        self.squares = self.weight = self.mean = self.spread = 0.0

    def add(self, batch: Batch) -> None:
        weights, labels = batch.weights, batch.labels
        weight = float(weights.sum())
        if weight:
            # By means, so that the spread survives labels that are large and close together.
            mean = float(weights @ labels) / weight
            total, apart = self.weight + weight, mean - self.mean
            self.spread += float(weights @ (labels - mean) ** 2) + apart * apart * self.weight * weight / total
            self.mean += apart * weight / total
            self.weight = total
        self.squares += _squared_errors(batch)

    def result(self) -> float | None:
        return 1.0 - self.squares / self.spread if self.spread > 0.0 else None


class RocArea(Sums):
    """The probability that a positive row has a higher score than a negative one; ties count as one half.

    It is exact up to some millions of rows. Then the scores seen so far fix bins of about equally many rows, and all rows
    are counted by bin. Rows of the same bin count as ties, which changes the area by less than the rows can resolve.
    """

    def __init__(self, exact_rows: int = _EXACT_RANKS) -> None:
        self.exact_rows = exact_rows
        self._waiting: list[tuple[Vector, Vector, Vector]] = []
        """Scores, with the weights of the positive and of the negative rows that have them."""
        self._waiting_rows = 0
        self._edges: Vector | None = None
        self._positive: Vector = np.zeros(0)
        self._negative: Vector = np.zeros(0)

    def add(self, batch: Batch) -> None:
        positive, weights = batch.labels > 0.0, batch.weights
        self._waiting.append((batch.scores.copy(), np.where(positive, weights, 0.0), np.where(positive, 0.0, weights)))
        self._waiting_rows += len(weights)
        if self._waiting_rows >= self.exact_rows:
            self._count_by_bin()

    def result(self) -> float | None:
        if self._edges is not None:
            self._count_by_bin()
            return _area(self._positive, self._negative)
        if not self._waiting:
            return None
        scores, positive, negative = self._all_waiting()
        _, place = np.unique(scores, return_inverse=True)
        return _area(np.bincount(place, positive).astype(np.float64), np.bincount(place, negative).astype(np.float64))

    def _all_waiting(self) -> tuple[Vector, Vector, Vector]:
        scores, positive, negative = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        return scores, positive, negative

    def _count_by_bin(self) -> None:
        if not self._waiting:
            return
        scores, positive, negative = self._all_waiting()
        self._waiting, self._waiting_rows = [], 0
        if self._edges is None:
            ordered = np.sort(scores)
            self._edges = np.unique(ordered[:: max(1, len(ordered) // _RANK_BINS)])
            self._positive = np.zeros(len(self._edges) + 1)
            self._negative = np.zeros(len(self._edges) + 1)
        place = np.searchsorted(self._edges, scores, side="right")
        self._positive += np.bincount(place, positive, minlength=len(self._positive))
        self._negative += np.bincount(place, negative, minlength=len(self._negative))


def _area(positive: Vector, negative: Vector) -> float | None:
    """From weights in ascending order of their scores."""
    pairs = positive.sum() * negative.sum()
    if pairs == 0.0:
        return None
    below = np.cumsum(negative) - negative
    return float((positive * (below + 0.5 * negative)).sum() / pairs)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("loss", "mean of the loss that training minimizes", lambda task: True, partial(Mean, _losses)),
        Metric("accuracy", "share of rows with the right class", lambda task: task.classes > 0, partial(Mean, _hits)),
        Metric("auc", "area under the ROC curve", lambda task: task.classes == 2, RocArea),
        Metric(
            "log_loss",
            "minus the mean log probability of the right class",
            lambda task: task.loss.probability is not None,
            partial(Mean, _log_losses),
        ),
        Metric("mse", "mean squared error", lambda task: task.classes == 0, partial(Mean, _squared_errors)),
        Metric("r2", "1 − squared error / variance of the labels", lambda task: task.classes == 0, RSquared),
        Metric("mae", "mean absolute error", lambda task: task.classes == 0, partial(Mean, _absolute_errors)),
        Metric(
            "pinball", "mean pinball loss", lambda task: task.loss.name == "quantile", partial(Mean, _pinball_losses)
        ),
        Metric(
            "deviance",
            "mean Poisson deviance",
            lambda task: task.loss.name == "poisson",
            partial(Mean, _poisson_deviances),
        ),
    )
}


class Metrics:
    """All metrics that apply to a task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._each = {name: metric.sums() for name, metric in METRICS.items() if metric.applies(task)}

    def add(self, scores: Vector, labels: Vector, weights: Vector) -> None:
        batch = Batch(self.task, scores, labels, weights)
        for sums in self._each.values():
            sums.add(batch)

    def results(self) -> dict[str, Any]:
        return {name: sums.result() for name, sums in self._each.items()}
