"""Stretches of training: what is summed over the steps since a power of two, for averages and for the certificate.

The average of the iterates over the later part of training is better than the last iterate and than the average of
all. A running sum cannot forget its beginning, so it is restarted whenever the step count reaches a power of two, and
the stretch before is kept whole: the two together always cover between a third and two thirds of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Tallies:
    """Sums over the steps of a stretch, of one lane."""

    steps: int = 0
    regularizer: float = 0.0
    """Σ σ·r(w)"""
    linear: float = 0.0
    """Σ <g, w>"""
    loss: float = 0.0
    correct: float = 0.0
    weight: float = 0.0
    """Σ of the rows' weights, which loss and correct are to be divided by."""


@dataclass
class Stretch:
    """A row for each coordinate, a column for each lane."""

    start_dual: Array
    """λ when the stretch began."""
    iterate_sum: Array
    """Σ w over the stretch, once it is over (no columns where no average is wanted)."""
    steps: int
    sums: Array
    """A row for each of the Tallies behind `steps`, a column for each lane."""

    def grown(self, size: int) -> Stretch:
        return Stretch(grown(self.start_dual, size), grown(self.iterate_sum, size), self.steps, self.sums)


def grown(array: Array, size: int) -> Array:
    """The array with rows of zeros appended."""
    if len(array) >= size:
        return array
    larger = np.zeros((size, array.shape[1]))
    larger[: len(array)] = array
    return larger
