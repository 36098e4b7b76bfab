"""Rows as learners take them, and how large they are."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.placing_loop import squared_norms
from streampgs.learn.norms import PNorm
from streampgs.losses import LOSSES
from streampgs.options import ModelOptions

SAMPLE_ROWS = 1 << 14


class Lines(Protocol):
    """A window: rows in visiting order."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    """One of a row, or a column for each label."""
    weights: NDArray[np.float64]
    """Empty: all rows count once."""
    offsets: NDArray[np.float64]
    """Added to the rows' scores; empty: nothing is added."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each row in the table. Computed when asked for."""


class EmptyRow:
    """A window with one row without entries, to compile loops with."""

    starts = stops = np.zeros(1, np.int64)
    indices = np.empty(0, np.uint32)
    values = np.empty(0, np.float32)
    labels = np.ones(1)
    weights = offsets = np.empty(0)
    numbers = np.zeros(1, np.int64)


def labels_of(lines: Lines) -> NDArray[np.float64]:
    """With a column for each label."""
    return lines.labels if lines.labels.ndim == 2 else lines.labels[:, np.newaxis]


class Scale:
    """How large rows, losses and labels are, from a sample of rows in visiting order, which is random."""

    def __init__(self, options: ModelOptions, lines: Lines, loss: str, rows: int, features: int, targets: int) -> None:
        """An epoch has `rows` rows."""
        self._options, self._lines = options, lines
        self.loss, self.rows, self.features, self.targets = LOSSES[loss], rows, features, targets
        cells = (lines.labels, lines.weights, lines.offsets)
        self._labels, self._weights, self._offsets = (array[:SAMPLE_ROWS] for array in cells)
        self.label_unit = self.loss.unit(self._labels)
        """By which steps grow: the spread of the labels for losses whose slopes do not grow with it, else 1."""
        self.shape = self.loss.shape(self._labels, options.loss_parameter(loss))

    def mean_squared_norm(self, norm: PNorm) -> float:
        """‖x‖_q², the constant of the intercept included."""
        starts, stops = self._lines.starts[:SAMPLE_ROWS], self._lines.stops[:SAMPLE_ROWS]
        norms = np.empty(len(starts))
        squared_norms(starts, stops, self._lines.values, norm.q, norms)
        return float(np.mean(norms)) + self._options.intercept**2

    def mean_loss_at_zero(self) -> float:
        """The mean loss of weights that are zero; of several labels the largest."""
        labels = self._labels if self._labels.ndim == 2 else self._labels[:, np.newaxis]
        if self._options.multiclass:
            labels = np.ones_like(labels)  # to each class a row is +1 or -1, and the losses of classes are symmetric
        bases = [
            self.loss.base(column, self._weights, self._offsets, self.shape) if self.loss.starts_at_base else 0.0
            for column in labels.T
        ]
        offsets: Any = self._offsets[:, np.newaxis] if self._offsets.size else 0.0
        values = self.loss.values(offsets + np.array(bases), labels, self.shape)
        weights: Any = self._weights[:, np.newaxis] if self._weights.size else 1.0
        return float(np.mean(values * weights, axis=0).max())
