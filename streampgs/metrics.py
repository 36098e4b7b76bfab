"""How good are predictions? Metrics that take rows in batches, in bounded memory: one block and one line each.

A metric takes batches in any order, may be merged with another one of its kind, and gives None if it has no value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from streampgs.kernels.judge_loop import loss_sum_for
from streampgs.losses import Loss, Vector

_EXACT_RANKS = 1 << 21
_RANK_BINS = 1 << 17
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


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


class Metric(ABC):
    name: ClassVar[str]
    """In JSON."""
    title: ClassVar[str]

    @abstractmethod
    def __init__(self, task: Task) -> None: ...

    @staticmethod
    @abstractmethod
    def applies(task: Task) -> bool:
        """Whether the metric makes sense for these labels and this loss."""

    @abstractmethod
    def add(self, batch: Batch) -> None: ...

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add all rows of another metric of this class."""

    @abstractmethod
    def result(self) -> Any:
        """A number, or another JSON value; None if the rows do not define one."""


class _Mean(Metric):
    """A weighted mean over rows."""

    def __init__(self, task: Task) -> None:
        self.weight = self.total = 0.0

    def add(self, batch: Batch) -> None:
        self.weight += float(batch.weights.sum())
        self.total += self.sum_of(batch)

    def sum_of(self, batch: Batch) -> float:
        return float(batch.weights @ self.values(batch))

    def values(self, batch: Batch) -> Vector:
        raise NotImplementedError

    def merge(self, other: Self) -> None:
        self.weight += other.weight
        self.total += other.total

    def result(self) -> float | None:
        return self.total / self.weight if self.weight else None


class MeanLoss(_Mean):
    """Of several classes: the mean of the losses of each class against all others."""

    name, title = "loss", "mean loss"

    @staticmethod
    def applies(task: Task) -> bool:
        return True

    def sum_of(self, batch: Batch) -> float:
        task, scores = batch.task, batch.scores
        loss_sum = loss_sum_for(task.loss)
        if scores.ndim == 1:
            return loss_sum(scores, batch.labels, batch.weights, task.shape)
        total = 0.0
        for number in range(scores.shape[1]):
            labels = np.where(batch.labels == number, 1.0, -1.0)
            total += loss_sum(np.ascontiguousarray(scores[:, number]), labels, batch.weights, task.shape)
        return total / int(scores.shape[1])


class Accuracy(_Mean):
    name, title = "accuracy", "accuracy"

    @staticmethod
    def applies(task: Task) -> bool:
        return task.classes > 0

    def values(self, batch: Batch) -> Vector:
        return np.asarray(batch.predictions == batch.labels, np.float64)


class LogLoss(_Mean):
    """Minus the mean logarithm of the probability of the right class; probabilities of 0 count as 2e-16."""

    name, title = "log_loss", "log loss"

    @staticmethod
    def applies(task: Task) -> bool:
        return task.loss.probability is not None

    def values(self, batch: Batch) -> Vector:
        least = _SMALLEST_PROBABILITY
        return np.asarray(-np.log(np.clip(batch.label_probabilities, least, 1.0 - least)))


class SquaredError(_Mean):
    name, title = "mse", "mean squared error"

    @staticmethod
    def applies(task: Task) -> bool:
        return task.classes == 0

    def values(self, batch: Batch) -> Vector:
        return np.asarray((batch.labels - batch.predictions) ** 2)


class AbsoluteError(_Mean):
    name, title = "mae", "mean absolute error"
    applies = staticmethod(SquaredError.applies)

    def values(self, batch: Batch) -> Vector:
        return np.abs(batch.labels - batch.predictions)


class Pinball(_Mean):
    """Of the quantile that the model was trained for."""

    name, title = "pinball", "mean pinball loss"

    @staticmethod
    def applies(task: Task) -> bool:
        return task.loss.name == "quantile"

    def values(self, batch: Batch) -> Vector:
        misses, quantile = batch.labels - batch.predictions, batch.task.shape
        return np.maximum(quantile * misses, (quantile - 1.0) * misses)


class PoissonDeviance(_Mean):
    name, title = "deviance", "mean Poisson deviance"

    @staticmethod
    def applies(task: Task) -> bool:
        return task.loss.name == "poisson"

    def values(self, batch: Batch) -> Vector:
        counts, expected = batch.labels, np.maximum(batch.predictions, np.finfo(np.float64).tiny)
        logarithms = np.log(np.where(counts > 0.0, counts, 1.0) / expected)
        return np.asarray(2.0 * (counts * logarithms - counts + expected))


class RSquared(Metric):
    """1 - squared error / variance of the labels."""

    name, title = "r2", "R²"
    applies = staticmethod(SquaredError.applies)

    def __init__(self, task: Task) -> None:
        self.squares = 0.0
        self.weight = self.mean = self.spread = 0.0

    def add(self, batch: Batch) -> None:
        weights, labels = batch.weights, batch.labels
        weight = float(weights.sum())
        if weight:
            mean = float(weights @ labels) / weight
            self._join(weight, mean, float(weights @ (labels - mean) ** 2))
        self.squares += float(weights @ (labels - batch.predictions) ** 2)

    def merge(self, other: Self) -> None:
        if other.weight:
            self._join(other.weight, other.mean, other.spread)
        self.squares += other.squares

    def _join(self, weight: float, mean: float, spread: float) -> None:
        """By means, so that the spread survives labels that are large and close together."""
        total, apart = self.weight + weight, mean - self.mean
        self.spread += spread + apart * apart * self.weight * weight / total
        self.mean += apart * weight / total
        self.weight = total

    def result(self) -> float | None:
        return 1.0 - self.squares / self.spread if self.spread > 0.0 else None


class RocArea(Metric):
    """The probability that a positive row has a higher score than a negative one; ties count as one half.

    It is exact up to some millions of rows. Then the scores seen so far fix bins of about equally many rows, and all rows
    are counted by bin. Rows of the same bin count as ties, which changes the area by less than the rows can resolve.
    """

    name, title = "auc", "area under the ROC curve"

    def __init__(self, task: Task, exact_rows: int = _EXACT_RANKS) -> None:
        self.exact_rows = exact_rows
        self._waiting: list[tuple[Vector, Vector, Vector]] = []
        """Scores, with the weights of the positive and of the negative rows that have them."""
        self._waiting_rows = 0
        self._edges: Vector | None = None
        self._positive: Vector = np.zeros(0)
        self._negative: Vector = np.zeros(0)

    @staticmethod
    def applies(task: Task) -> bool:
        return task.classes == 2

    def add(self, batch: Batch) -> None:
        positive = batch.labels > 0.0
        self._add(batch.scores.copy(), np.where(positive, batch.weights, 0.0), np.where(positive, 0.0, batch.weights))

    def merge(self, other: Self) -> None:
        for counted in other._waiting:
            self._add(*counted)
        if other._edges is not None:
            lowest = np.nextafter(other._edges[:1], -np.inf)  # for the scores below all edges
            self._add(np.concatenate([lowest, other._edges]), other._positive, other._negative)

    def result(self) -> float | None:
        if self._edges is not None:
            self._count_by_bin()
            return _area(self._positive, self._negative)
        if not self._waiting:
            return None
        scores, positive, negative = self._all_waiting()
        _, place = np.unique(scores, return_inverse=True)
        return _area(np.bincount(place, positive).astype(np.float64), np.bincount(place, negative).astype(np.float64))

    def _add(self, scores: Vector, positive: Vector, negative: Vector) -> None:
        self._waiting.append((scores, positive, negative))
        self._waiting_rows += len(scores)
        if self._waiting_rows >= self.exact_rows:
            self._count_by_bin()

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


METRICS: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        MeanLoss,
        Accuracy,
        RocArea,
        LogLoss,
        SquaredError,
        RSquared,
        AbsoluteError,
        Pinball,
        PoissonDeviance,
    )
}


class Metrics:
    """All metrics that apply to a task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._each = [metric(task) for metric in METRICS.values() if metric.applies(task)]

    def add(self, scores: Vector, labels: Vector, weights: Vector) -> None:
        batch = Batch(self.task, scores, labels, weights)
        for metric in self._each:
            metric.add(batch)

    def merge(self, other: Metrics) -> None:
        for own, its in zip(self._each, other._each, strict=True):
            own.merge(its)

    def results(self) -> dict[str, Any]:
        return {metric.name: metric.result() for metric in self._each}
