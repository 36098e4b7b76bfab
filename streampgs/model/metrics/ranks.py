"""Metrics that depend on the order of the scores only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streampgs.losses import Vector
from streampgs.model.metrics.batch import Batch, Task
from streampgs.model.metrics.sums import FULL, Histogram, Size, Sums


class Ranks(Sums):
    """Of two classes. Rows in the same bin count as rows of the same score: an area is wrong by at most half of the
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
    """Of several classes, each against all others: by its probability, or by its score if the loss has none."""

    def __init__(self, task: Task, size: Size = FULL) -> None:
        super().__init__(task, size)
        self.each = [Ranks(task, size.of_one(task.classes)) for _ in range(task.classes)]

    def add(self, batch: Batch) -> None:
        values = batch.probabilities if batch.task.estimates else batch.scores
        for number, ranks in enumerate(self.each):
            ranks.add_rows(values[:, number], batch.labels == number, batch.weights)

    @property
    def areas(self) -> list[float | None]:
        return [ranks.area for ranks in self.each]

    @property
    def mean_area(self) -> float | None:
        """Over the classes that have an area."""
        known = [area for area in self.areas if area is not None]
        return float(np.mean(known)) if known else None
