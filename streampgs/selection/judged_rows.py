"""Rows with the scores that several models gave them before they were trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from streampgs.base.checks import Positive, decode, encode, require
from streampgs.base.stage import Bundle
from streampgs.kernels.judge_loop import mixed_loss_for
from streampgs.losses import LOSSES
from streampgs.selection.shares import Array, Objective

LARGEST_SCORE = 1e60
"""Larger scores are cut: their squares and the squares of these are in range."""
MOST_NUMBERS = 1 << 21
_FULL_MEMORY = 4  # so many batches of the largest size have recencies that count
_MOST_ROWS = 3000
_SHORTEST_MEMORY, _ROWS_REMEMBERED = 1.0 / 3.0, 2000
_LEAST_RECENCY = 0.02


class LossShape(NamedTuple):
    name: str
    """Of the loss, in LOSSES."""
    shape: float
    unit: float = 1.0
    """By which losses are multiplied in reports: see LaneSpec.in_label_units."""


@dataclass(frozen=True)
class Batch:
    """The rows that were judged together."""

    rows: Positive
    recency: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
    """By which the weights of the rows are multiplied."""


def rows_to_judge(targets: int, lineages: int) -> int:
    """How many rows are judged in an update at most, so that those of earlier updates can be kept."""
    return max(1, min(_MOST_ROWS, MOST_NUMBERS // (_FULL_MEMORY * _numbers_of_a_row(targets, lineages))))


def _numbers_of_a_row(targets: int, lineages: int) -> int:
    return targets * (lineages + 2) + 1


def evidence(weights: Array) -> Array:
    """The weights, scaled so that their sum is the number of rows of one weight that would tell as much."""
    shares = weights / weights.max(initial=0.0)  # so that no square overflows
    return np.asarray(shares * (shares.sum() / (shares * shares).sum()) if len(shares) else shares)


def within_range(scores: Array, labels: Array) -> Array:
    """The scores, cut to a range in which no loss overflows. NaN becomes the worst score."""
    worst = np.where(labels > 0.0, -LARGEST_SCORE, LARGEST_SCORE)
    return np.clip(np.where(np.isnan(scores), worst, scores), -LARGEST_SCORE, LARGEST_SCORE)


class JudgedRows:
    """The judged rows of this update and of earlier ones, in batches; the first is the oldest."""

    def __init__(self, lineages: int) -> None:
        self.lineages = lineages
        self.clear()

    def clear(self) -> None:
        self.batches: list[Batch] = []
        self.scores = np.empty((0, 0, self.lineages))
        """(targets, rows, lineages): loops read all scores of a row for one target."""
        self.fixed = np.empty((0, 0))
        """(targets, rows), like the labels."""
        self.labels = np.empty((0, 0))
        self.weights = np.empty(0)
        """Without the recency."""

    @property
    def targets(self) -> int:
        return len(self.scores)

    def age(self, new_rows: int) -> None:
        """So many rows have arrived: older ones count less."""
        factor = max(_SHORTEST_MEMORY, 1.0 - new_rows / _ROWS_REMEMBERED)
        aged = [Batch(batch.rows, batch.recency * factor) for batch in self.batches]
        dropped = sum(batch.rows for batch in aged if batch.recency < _LEAST_RECENCY)
        self.batches = aged
        self._drop(dropped)

    def add(self, scores: Array, fixed: Array, labels: Array, weights: Array) -> None:
        """Rows as in the attributes."""
        if not len(weights):
            return
        if not self.batches:
            self.clear()
            self.scores, self.fixed, self.labels = scores[:, :0], fixed[:, :0], labels[:, :0]
        require(len(scores) == self.targets, f"{len(scores)} targets after {self.targets}")
        self.scores, self.fixed = np.concatenate([self.scores, scores], 1), np.concatenate([self.fixed, fixed], 1)
        self.labels, self.weights = np.concatenate([self.labels, labels], 1), np.concatenate([self.weights, weights])
        self.batches = [*self.batches, Batch(len(weights), 1.0)]
        self._drop(len(self.weights) - max(1, MOST_NUMBERS // _numbers_of_a_row(self.targets, self.lineages)))

    def _drop(self, rows: int) -> None:
        """The oldest rows."""
        if rows <= 0:
            return
        self.scores, self.fixed = self.scores[:, rows:].copy(), self.fixed[:, rows:].copy()
        self.labels, self.weights = self.labels[:, rows:].copy(), self.weights[rows:].copy()
        kept = []
        for batch in self.batches:
            gone = min(rows, batch.rows)
            rows -= gone
            if batch.rows > gone:
                kept.append(Batch(batch.rows - gone, batch.recency))
        self.batches = kept

    def grow(self, targets: int) -> None:
        """There are so many targets now: these rows have label -1 and score 0 of those that joined."""
        more = ((0, targets - self.targets), (0, 0))
        self.scores, self.fixed = np.pad(self.scores, (*more, (0, 0))), np.pad(self.fixed, more)
        self.labels = np.pad(self.labels, more, constant_values=-1.0)

    def counted_weights(self) -> Array:
        recencies = [np.full(batch.rows, batch.recency) for batch in self.batches]
        return np.asarray(self.weights * np.concatenate([np.empty(0), *recencies]))

    def mean_loss(self, losses: Sequence[LossShape]) -> Objective:
        """Of mixed scores: the sum over targets, as a function of the shares."""
        weights = self.counted_weights()
        sum_of_weights = float(weights.sum())
        loops = [mixed_loss_for(LOSSES[loss.name]) for loss in losses]

        def mean(shares: Array) -> tuple[float, Array]:
            total, slopes = 0.0, np.zeros(len(shares))
            for scores, fixed, labels, loop, loss in zip(
                self.scores, self.fixed, self.labels, loops, losses, strict=True
            ):
                total += loop(scores, fixed, labels, weights, loss.shape, shares, slopes)
            return total / sum_of_weights, slopes / sum_of_weights

        return mean

    # The section of the checkpoint.

    def state(self) -> Bundle:
        arrays = {"scores": self.scores, "fixed": self.fixed, "labels": self.labels, "weights": self.weights}
        return Bundle({"batches": [encode(batch) for batch in self.batches]}, dict(arrays))

    def restore(self, bundle: Bundle) -> None:
        batches = [decode(Batch, record) for record in bundle.values["batches"]]
        rows, shape = sum(batch.rows for batch in batches), bundle.arrays["scores"].shape
        require(len(shape) == 3 and shape[1:] == (rows, self.lineages), f"scores of judged rows of shape {shape}")
        numbers = rows * _numbers_of_a_row(shape[0], self.lineages)
        require(numbers <= MOST_NUMBERS or rows == 1, f"{rows} judged rows of {shape[0]} targets")
        shapes = {"scores": shape, "fixed": shape[:2], "labels": shape[:2], "weights": (rows,)}
        require(bundle.arrays.keys() == shapes.keys(), f"arrays {sorted(bundle.arrays)} of judged rows")
        for name, array in bundle.arrays.items():
            right = array.dtype == np.float64 and array.shape == shapes[name] and bool(np.isfinite(array).all())
            require(right, f"{name} of judged rows of type {array.dtype} and shape {array.shape}")
        scores, weights = bundle.arrays["scores"], bundle.arrays["weights"]
        require(bool((np.abs(scores) <= LARGEST_SCORE).all()), "scores of judged rows that are out of range")
        require(bool((weights > 0.0).all()), "weights of judged rows that are not positive")
        self.batches, self.weights = batches, weights
        self.scores, self.fixed, self.labels = scores, bundle.arrays["fixed"], bundle.arrays["labels"]
