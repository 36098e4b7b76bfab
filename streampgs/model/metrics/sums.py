"""Scored rows, and the sums over them that metrics are computed from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.losses import Loss, Vector


@dataclass(frozen=True)
class Task:
    """The prediction that scores stand for: a number, one of two classes (-1 and +1), or the number of one of several classes."""

    loss: Loss
    shape: float
    classes: int
    """0: a number."""
    threshold: float | None = None
    """The least probability at which the positive one of two classes is predicted; None: a score above 0."""

    @property
    def estimates(self) -> bool:
        """Whether the loss estimates probabilities."""
        return self.loss.probability is not None

    @property
    def kinds(self) -> set[str]:
        """The kinds of tasks that it is one of, for which there are metrics."""
        if not self.classes:
            return {"any", "numbers", self.loss.name}
        number = "two" if self.classes == 2 else "several"
        estimated = {"estimated classes", f"{number} estimated classes"} if self.estimates else set()
        return {"any", "classes", f"{number} classes"} | estimated

    def probabilities(self, scores: Vector) -> Vector | None:
        """The probability of the positive class, or of each class, so that they add up to 1; None if the loss has none."""
        if self.loss.probability is None:
            return None
        positive = self.loss.probability(scores)
        if self.classes <= 2:
            return positive
        total = positive.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, positive / np.where(total > 0.0, total, 1.0), 1.0 / positive.shape[1])

    def chosen(self, scores: Vector) -> NDArray[np.intp]:
        """The number of the predicted class; of two the positive one is number 1."""
        if self.classes > 2:
            return np.asarray(scores.argmax(axis=1), np.intp)
        if self.threshold is None:
            return np.asarray(scores > 0.0, np.intp)
        probabilities = self.probabilities(scores)
        assert probabilities is not None
        return np.asarray(probabilities >= self.threshold, np.intp)


@dataclass(frozen=True)
class Batch:
    """Scored rows: a score each, or one for each of several classes."""

    task: Task
    scores: Vector
    labels: Vector
    """NaN: a class that the model does not know."""
    weights: Vector

    @property
    def known(self) -> Batch:
        """The rows of classes that the model knows. Not cached: a batch that refers to itself is not freed at once."""
        unknown = np.isnan(self.labels)
        if not unknown.any():
            return self
        return Batch(self.task, self.scores[~unknown], self.labels[~unknown], self.weights[~unknown])

    @cached_property
    def predictions(self) -> Vector:
        """The predicted numbers."""
        return self.task.loss.prediction(self.scores)

    @cached_property
    def chosen(self) -> NDArray[np.intp]:
        """The number of the predicted class."""
        return self.task.chosen(self.scores)

    @cached_property
    def numbers(self) -> NDArray[np.intp]:
        """The number of each row's class; one more than the last for a class that the model does not know."""
        numbers = self.labels > 0.0 if self.task.classes == 2 else self.labels
        return np.where(np.isnan(self.labels), self.task.classes, numbers).astype(np.intp)

    @cached_property
    def probabilities(self) -> Vector:
        found = self.task.probabilities(self.scores)
        assert found is not None
        return found

    @cached_property
    def label_probabilities(self) -> Vector:
        """The probability that the model gave to the class that the row has."""
        if self.task.classes == 2:
            return np.where(self.labels > 0.0, self.probabilities, 1.0 - self.probabilities)
        return np.asarray(self.probabilities[np.arange(len(self.labels)), self.numbers])

    def total(self, values: NDArray[Any]) -> float:
        """The weighted sum of a value for each row. Not by BLAS, whose threads wait for each other on a busy machine."""
        return float((self.weights * values).sum())


@dataclass(frozen=True)
class Size:
    """How much memory sums over values of rows may take."""

    exact_rows: int = 1 << 21
    """Up to so many rows all values are kept, for all classes together."""
    bins: int = 1 << 17
    """How many bins later rows have, at least."""
    listed_classes: int = 100
    """With more classes, results that list all classes are left out."""

    def of_one(self, parts: int) -> Size:
        """For each of several."""
        return replace(self, exact_rows=max(256, self.exact_rows // parts), bins=max(64, self.bins // parts))


FULL = Size()


class Sums(ABC):
    """The rows of a task that were added so far."""

    takes_unknown = False
    """Whether rows of classes that the model does not know count."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        self.task = task

    @abstractmethod
    def add(self, batch: Batch) -> None: ...


class Mean(Sums):
    """A weighted mean over rows."""

    def __init__(self, task: Task, size: Size, total_of: Callable[[Batch], float]) -> None:
        super().__init__(task, size)
        self._total_of = total_of
        self.weight = self.total = 0.0

    def add(self, batch: Batch) -> None:
        self.weight += float(batch.weights.sum())
        self.total += self._total_of(batch)

    @property
    def value(self) -> float | None:
        return self.total / self.weight if self.weight else None

    @property
    def root(self) -> float | None:
        return None if self.value is None else math.sqrt(self.value)


class Moments(Sums):
    """Mean and spread of the labels, and the squared errors."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self.squares = self.weight = self.mean = self.spread = 0.0

    def add(self, batch: Batch) -> None:
        weights, labels = batch.weights, batch.labels
        weight = float(weights.sum())
        if weight:
            # By means, so that the spread survives labels that are large and close together.
            mean = batch.total(labels) / weight
            total, apart = self.weight + weight, mean - self.mean
            self.spread += batch.total((labels - mean) ** 2) + apart * apart * self.weight * weight / total
            self.mean += apart * weight / total
            self.weight = total
        self.squares += batch.total((labels - batch.predictions) ** 2)

    @property
    def r_squared(self) -> float | None:
        return 1.0 - self.squares / self.spread if self.spread > 0.0 else None


class Histogram:
    """Weights by value. The weights have columns, such as one for each of two classes.

    It is exact up to so many rows. Then the values so far fix bins, so that each column has about equally many rows in
    each of them, and all rows are counted by bin.
    """

    def __init__(self, columns: int, size: Size) -> None:
        self._size = size
        self._waiting: list[tuple[Vector, ...]] = []
        self._waiting_rows = 0
        self._edges: Vector | None = None
        self._bins: list[Vector] = [np.zeros(0)] * columns
        self._found: tuple[Vector, ...] | None = None

    def add(self, values: Vector, *columns: Vector) -> None:
        """The arrays may be overwritten afterwards."""
        self._waiting.append(tuple(array.copy() for array in (values, *columns)))
        self._waiting_rows += len(values)
        self._found = None
        if self._waiting_rows >= self._size.exact_rows:
            self._count_by_bin()

    def columns(self) -> tuple[Vector, ...]:
        """The weights of each column in ascending order of their values."""
        if self._found is None:
            self._found = self._ordered()
        return self._found

    def _ordered(self) -> tuple[Vector, ...]:
        if self._edges is not None:
            self._count_by_bin()
        if self._edges is not None or not self._waiting:
            return tuple(self._bins)
        values, *columns = self._all_waiting()
        _, place = np.unique(values, return_inverse=True)
        return tuple(np.bincount(place, column).astype(np.float64) for column in columns)

    def _all_waiting(self) -> list[Vector]:
        return [np.concatenate(part) for part in zip(*self._waiting, strict=True)]

    def _count_by_bin(self) -> None:
        if not self._waiting:
            return
        values, *columns = self._all_waiting()
        self._waiting, self._waiting_rows = [], 0
        if self._edges is None:
            self._edges = self._edges_of(values, columns)
            self._bins = [np.zeros(len(self._edges) + 1) for _ in columns]
        place = np.searchsorted(self._edges, values, side="right")
        for counts, column in zip(self._bins, columns, strict=True):
            counts += np.bincount(place, column, minlength=len(counts))

    def _edges_of(self, values: Vector, columns: list[Vector]) -> Vector:
        edges = []
        for column in columns:
            ordered = np.sort(values[column != 0.0])
            edges.append(ordered[:: max(1, len(ordered) // self._size.bins)])
        return np.unique(np.concatenate(edges))
