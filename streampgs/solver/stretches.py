"""Stretches of training: what is summed over the steps since a power of two, for averages and for the certificate.

The average of the iterates over the later part of training is better than the last iterate and than the average of
all. A running sum cannot forget its beginning, so it is restarted whenever the step count reaches a power of two, and
the stretch before is kept whole: the two together always cover between a third and two thirds of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass
class Tallies:
    """Sums over the steps of a stretch."""

    steps: int = 0
    regularizer: float = 0.0
    """Σ σ·r(w)"""
    linear: float = 0.0
    """Σ <g, w>"""
    loss: float = 0.0
    correct: float = 0.0
    weight: float = 0.0
    """Σ of the rows' weights, which loss and correct are to be divided by."""

    def plus(self, other: Tallies) -> Tallies:
        return Tallies(
            self.steps + other.steps,
            self.regularizer + other.regularizer,
            self.linear + other.linear,
            self.loss + other.loss,
            self.correct + other.correct,
            self.weight + other.weight,
        )


@dataclass
class Stretch:
    start_dual: Vector
    """λ when the stretch began."""
    iterate_sum: Vector
    """Σ w over the stretch, once it is over (empty where no average is wanted)."""
    tallies: Tallies = field(default_factory=Tallies)

    def grown(self, size: int) -> Stretch:
        return Stretch(grown(self.start_dual, size), grown(self.iterate_sum, size), self.tallies)


def grown(vector: Vector, size: int) -> Vector:
    """The vector with zeros appended; an empty one, which stands for 'not kept', stays empty."""
    if vector.size == 0 or vector.size >= size:
        return vector
    return np.concatenate([vector, np.zeros(size - vector.size)])
