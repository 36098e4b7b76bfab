"""Sums for classes: which are taken for which, how well probabilities fit, and how scores order the rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.losses import Vector
from streampgs.model.metrics.sums import FULL, Batch, Histogram, Size, Sums, Task

CALIBRATION_BINS = 15


class Confusion(Sums):
    """The weight of the rows of each class, of each predicted class, and of both together."""

    takes_unknown = True

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        classes = task.classes
        self.labelled = np.zeros(classes + 1)
        """The last one is the weight of rows of classes that the model does not know."""
        self.predicted = np.zeros(classes)
        self.hits = np.zeros(classes)
        self._counts = np.zeros((classes + 1) * classes if classes <= FULL.listed_classes else 0)

    def add(self, batch: Batch) -> None:
        classes, numbers, chosen, weights = self.task.classes, batch.numbers, batch.chosen, batch.weights
        self.labelled += np.bincount(numbers, weights, minlength=classes + 1)
        self.predicted += np.bincount(chosen, weights, minlength=classes)
        self.hits += np.bincount(chosen, np.where(numbers == chosen, weights, 0.0), minlength=classes)
        if self._counts.size:
            self._counts += np.bincount(numbers * classes + chosen, weights, minlength=self._counts.size)

    @property
    def weight(self) -> float:
        return float(self.labelled.sum())

    @property
    def accuracy(self) -> float | None:
        return float(self.hits.sum()) / self.weight if self.weight else None

    @property
    def largest_share(self) -> float | None:
        """The share of the rows that have the largest class that the model knows."""
        return float(self.labelled[:-1].max()) / self.weight if self.weight else None

    @property
    def positive_share(self) -> float | None:
        known = float(self.labelled[:-1].sum())
        return float(self.labelled[1]) / known if known else None

    def _by_class(self) -> dict[str, NDArray[Any]]:
        """NaN where a share of nothing is asked for."""
        labelled = self.labelled[:-1]
        return {
            "precision": _shares(self.hits, self.predicted),
            "recall": _shares(self.hits, labelled),
            "f1": _shares(2.0 * self.hits, labelled + self.predicted),
        }

    @property
    def positive(self) -> SimpleNamespace:
        """Precision, recall and F1 of the positive class."""
        return SimpleNamespace(**{name: number_or_none(each[1]) for name, each in self._by_class().items()})

    @property
    def mean(self) -> SimpleNamespace:
        """Over the classes that rows have or that are predicted; a share of nothing counts as 0."""
        present = (self.labelled[:-1] + self.predicted) > 0.0
        means = {name: np.nan_to_num(each[present]) for name, each in self._by_class().items()}
        return SimpleNamespace(**{name: float(each.mean()) if each.size else None for name, each in means.items()})

    @property
    def matrix(self) -> list[list[float]] | None:
        """A line for each class of rows, a column for each predicted class."""
        classes = self.task.classes
        if not self.weight:
            return None
        return [[whole_or_float(value) for value in line] for line in self._counts.reshape(-1, classes)[:classes]]

    @property
    def per_class(self) -> list[dict[str, float | None]] | None:
        if not self.weight:
            return None
        shares = self._by_class()
        return [
            {name: number_or_none(each[number]) for name, each in shares.items()} | {"support": whole_or_float(support)}
            for number, support in enumerate(self.labelled[:-1])
        ]


class Calibration(Sums):
    """The mean distance between probabilities and what happened, over bins of equal width: for two classes between the
    probability of the positive class and its share, for several between the probability of the predicted class and the
    accuracy."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self._weights, self._probabilities, self._happened = np.zeros((3, CALIBRATION_BINS))

    def add(self, batch: Batch) -> None:
        if self.task.classes == 2:
            probabilities, happened = batch.probabilities, batch.labels > 0.0
        else:
            probabilities, happened = batch.probabilities.max(axis=1), batch.chosen == batch.numbers
        bins = np.minimum((probabilities * CALIBRATION_BINS).astype(np.intp), CALIBRATION_BINS - 1)
        for sums, values in (
            (self._weights, batch.weights),
            (self._probabilities, batch.weights * probabilities),
            (self._happened, batch.weights * happened),
        ):
            sums += np.bincount(bins, values, minlength=CALIBRATION_BINS)

    @property
    def error(self) -> float | None:
        weight = float(self._weights.sum())
        return float(np.abs(self._probabilities - self._happened).sum()) / weight if weight else None


def _shares(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[Any]:
    return np.where(whole > 0.0, part / np.where(whole > 0.0, whole, 1.0), np.nan)


def number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def whole_or_float(value: float) -> float:
    """Counts of rows as integers."""
    return int(value) if value == int(value) else float(value)


class Ranks(Sums):
    """The ranks of two classes. Rows in the same bin count as rows of the same score: an area is wrong by at most half of the
    share of pairs (a positive and a negative row) that are in the same bin."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self.histogram = Histogram(2, size)

    def add(self, batch: Batch) -> None:
        self.add_rows(batch.scores, batch.labels > 0.0, batch.weights)

    def add_rows(self, scores: Vector, positive: NDArray[np.bool_], weights: Vector) -> None:
        self.histogram.add(scores, np.where(positive, weights, 0.0), np.where(positive, 0.0, weights))

    @property
    def area(self) -> float | None:
        """The probability that a positive row has a higher score than a negative one; ties count as one half."""
        positive, negative = self.histogram.columns()
        pairs = positive.sum() * negative.sum()
        if pairs == 0.0:
            return None
        below = np.cumsum(negative) - negative
        return float((positive * (below + 0.5 * negative)).sum() / pairs)

    @property
    def average_precision(self) -> float | None:
        """The mean precision among rows of at least the score of a positive row."""
        positive, negative = (column[::-1] for column in self.histogram.columns())
        if not positive.sum():
            return None
        hits = np.cumsum(positive)
        found = hits + np.cumsum(negative)
        return float(positive @ (hits / np.where(found > 0.0, found, 1.0)) / positive.sum())


class ClassRanks(Sums):
    """The ranks of several classes, each against all others: by its probability, or by its score if the loss has none."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self.each = [Ranks(task, size.of_one(task.classes)) for _ in range(task.classes)]

    def add(self, batch: Batch) -> None:
        values = batch.probabilities if batch.task.estimates else batch.scores
        for number, ranks in enumerate(self.each):
            ranks.add_rows(values[:, number], batch.labels == number, batch.weights)

    @property
    def areas(self) -> list[float | None] | None:
        """None if no class has an area."""
        found = [ranks.area for ranks in self.each]
        return None if all(area is None for area in found) else found

    @property
    def mean_area(self) -> float | None:
        """Over the classes that have an area."""
        return None if self.areas is None else float(np.mean([area for area in self.areas if area is not None]))
