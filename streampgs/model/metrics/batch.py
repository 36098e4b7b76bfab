"""Scored rows, and the prediction that their scores stand for."""

from __future__ import annotations

from dataclasses import dataclass
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
    """Of two classes: the least probability at which the positive one is predicted; None: a score above 0."""

    @property
    def estimates(self) -> bool:
        """Whether the loss estimates probabilities."""
        return self.loss.probability is not None

    def probabilities(self, scores: Vector) -> Vector | None:
        """Of the positive class, or of each of several classes, so that they add up to 1; None if the loss has none."""
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
