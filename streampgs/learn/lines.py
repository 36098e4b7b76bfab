"""Rows as learners take them, and how large they are."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.placing_loop import squared_norms
from streampgs.kernels.row_steps import RowArrays
from streampgs.kernels.rows import Rows
from streampgs.learn.norms import PNorm
from streampgs.losses import LOSSES, Loss, Vector
from streampgs.options.commands import ModelOptions

SAMPLE_ROWS = 1 << 14
# For the largest eigenvalue: it is found from below.
_POWER_ROWS, _POWER_STEPS, _POWER_SPARE = 1 << 11, 30, 1.1
# The constant of the intercept, as a share of the rows' root mean square norm. With many epochs over few rows the average
# evens out the moves of single rows, and the regularizer is larger.
_INTERCEPT, _INTERCEPT_OF_WHOLE = 0.3, 1.0


def labels_of(lines: Rows) -> NDArray[np.float64]:
    """With a column for each label."""
    return lines.labels if lines.labels.ndim == 2 else lines.labels[:, np.newaxis]


def rows_of(lines: Rows) -> RowArrays:
    """The rows as compiled loops take them."""
    return RowArrays(
        lines.starts, lines.stops, lines.indices, lines.values, labels_of(lines), lines.weights, lines.offsets
    )


NOTHING = np.zeros(1)
"""For arrays of a loop that a solver does not use."""

JudgedOn = Literal["table", "sample", "nothing"]
"""Where candidates are judged before the first step: on the folds of a small table, on a sample of a large one, or nowhere."""


class Scale:
    """How large rows, losses and labels are, from a sample of rows in visiting order, which is random."""

    def __init__(
        self, options: ModelOptions, lines: Rows, loss: str, rows: int, features: int, judged_on: JudgedOn
    ) -> None:
        """An epoch has `rows` rows."""
        self._options, self._lines = options, lines
        self.loss, self.rows, self.features = LOSSES[loss], rows, features
        self.whole = judged_on == "table"
        """Whether the lines are all rows, which are visited many times."""
        self.sample = LabelSample(lines)
        self.unit = self.loss.unit(self.sample.labels)
        """By which steps grow."""
        self.shape = self.loss.shape(self.sample.labels, options.loss_parameter(loss))
        """The parameter of the loss, in the unit of the labels."""
        self._squares: dict[float, float] = {}

    def mean_squared_norm(self, norm: PNorm, averaged: bool = True) -> float:
        """‖x‖_q², the constant of the intercept included."""
        return self._mean_squared_norm(norm) + self.intercept(norm, averaged) ** 2

    def intercept(self, norm: PNorm, averaged: bool = True) -> float:
        """The constant feature of the intercept: large enough that the regularizer hardly holds the intercept, small
        enough that single rows hardly move it. `averaged`: whether the model is an average of iterates."""
        return self.share_for_intercept(self._mean_squared_norm(norm), averaged)

    def share_for_intercept(self, square: float, averaged: bool = True) -> float:
        """The same for rows of this mean squared length."""
        if self._options.intercept != "auto":
            return float(self._options.intercept)
        share = _INTERCEPT_OF_WHOLE if self.whole and averaged else _INTERCEPT
        return share * math.sqrt(square) or share

    def mean_largest_square(self) -> float:
        """The mean square of the largest entry of a row."""
        starts, stops = self._lines.starts[:SAMPLE_ROWS], self._lines.stops[:SAMPLE_ROWS]
        squares = np.empty(len(starts))
        squared_norms(starts, stops, self._lines.values, math.inf, squares)
        return float(np.mean(squares))

    @property
    def mean_entries(self) -> float:
        """The numbers of a row."""
        starts, stops = self._lines.starts[:SAMPLE_ROWS], self._lines.stops[:SAMPLE_ROWS]
        return float(np.mean(stops - starts))

    def largest_square(self, norm: PNorm) -> float:
        """The largest eigenvalue of the mean of x·xᵀ, the constant of the intercept included, by the power method on some
        rows: a little more than it finds."""
        lines, constant = self._lines, self.intercept(norm)
        starts, lengths = lines.starts[:_POWER_ROWS], (lines.stops - lines.starts)[:_POWER_ROWS]
        weights = lines.weights[:_POWER_ROWS] if lines.weights.size else np.ones(len(starts))
        rows = np.repeat(np.arange(len(starts)), lengths)
        entries = np.arange(len(rows)) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        values = lines.values[entries].astype(np.float64)
        names, features = np.unique(
            lines.indices[entries] if lines.indices.size else entries - starts[rows], return_inverse=True
        )
        direction, largest = np.ones(len(names) + 1), 0.0
        for _ in range(_POWER_STEPS):
            direction /= max(float(np.linalg.norm(direction)), 1e-300)
            scores = np.bincount(rows, values * direction[1:][features], len(starts)) + constant * direction[0]
            scores *= weights / len(starts)
            sums = np.bincount(features, values * scores[rows], len(names))
            direction = np.concatenate([[constant * scores.sum()], sums])
            largest = float(np.linalg.norm(direction))
        return _POWER_SPARE * largest

    def _mean_squared_norm(self, norm: PNorm) -> float:
        if norm.q not in self._squares:
            starts, stops = self._lines.starts[:SAMPLE_ROWS], self._lines.stops[:SAMPLE_ROWS]
            norms = np.empty(len(starts))
            squared_norms(starts, stops, self._lines.values, norm.q, norms)
            self._squares[norm.q] = float(np.mean(norms))
        return self._squares[norm.q]

    def mean_loss_at_zero(self) -> float:
        """The mean loss of weights that are zero, in the unit of scaled labels; of several labels the largest."""
        if self._options.multiclass:  # to each class a row is +1 or -1; the loss at the base is at most the loss at 0
            return float(self.loss.value(0.0, 1.0, self.shape))
        constant = self._options.intercept != 0.0
        return max(self.sample.at_constant(self.loss, column, self.shape, constant) for column in self.sample.columns)


class LabelSample:
    """Labels of the first rows."""

    def __init__(self, lines: Rows) -> None:
        cells = lines.labels, lines.weights, lines.offsets
        self.labels, weights, offsets = (array[:SAMPLE_ROWS] for array in cells)
        self._weights = weights if weights.size else np.ones(len(self.labels))
        self._offsets = offsets if offsets.size else np.zeros(len(self.labels))

    @property
    def columns(self) -> list[Vector]:
        """The labels, column by column."""
        return list(self.labels.T) if self.labels.ndim == 2 else [self.labels]

    def scale_and_base(self, loss: Loss, labels: Vector, shape: float, constant: bool = True) -> tuple[float, float]:
        """The unit of the labels and, if the model has a constant, the best one; both in the unit of the table."""
        scale = loss.scale(labels - self._offsets, self._weights) if loss.degree else 1.0
        return scale, loss.base(labels, self._weights, self._offsets, shape) if constant else 0.0

    def at_constant(self, loss: Loss, labels: Vector, shape: float, constant: bool) -> float:
        """The mean loss of the best constant, in the unit of scaled labels."""
        scale, base = self.scale_and_base(loss, labels, shape, constant)
        values = loss.values((self._offsets + base) / scale, labels / scale, loss.scaled_shape(shape, scale))
        return float(np.mean(values * self._weights))
