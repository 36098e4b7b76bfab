"""Algorithms 2 and 3 of the lecture, and PEGASOS, literally: all vectors are dense, and every iterate is kept."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, loss_slope


class PlainDescent(ABC):
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.iterates: list[Vector] = [np.zeros(features + 1)]
        """w_1, w_2, …"""

    def step(self, rows: list[PlainRow]) -> None:
        s, t, w = self.spec, len(self.iterates), self.iterates[-1]
        gradient = s.sigma * w
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, math.fsum(w * row.x), row.y)
            gradient = gradient + slope * row.x / len(rows)
        self.iterates.append(self.projected(w - self.step_size(t) * gradient))

    @abstractmethod
    def step_size(self, t: int) -> float:
        """η_t."""

    def projected(self, w: Vector) -> Vector:
        return w

    def average(self) -> Vector:
        """Of w_1, …, w_T: not the one that the last step made."""
        return np.mean(self.iterates[:-1], axis=0)


class PlainSgd(PlainDescent):
    def step_size(self, t: int) -> float:
        return float(self.spec.own.step)


class PlainOgd(PlainDescent):
    def step_size(self, t: int) -> float:
        return 1.0 / (self.spec.sigma * t)


class PlainPegasos(PlainOgd):
    """Each iterate is projected, and the next step starts from there."""

    def projected(self, w: Vector) -> Vector:
        length, radius = float(np.sqrt(w @ w)), 1.0 / math.sqrt(self.spec.sigma)
        return w * min(1.0, radius / length) if length > 0.0 else w


class PlainLazyPegasos(PlainPegasos):
    """The sum of the gradients is kept, and its projection is the iterate."""

    def __init__(self, spec: LaneSpec, features: int) -> None:
        super().__init__(spec, features)
        self.free: Vector = np.zeros(features + 1)

    def step(self, rows: list[PlainRow]) -> None:
        t, s, w = len(self.iterates), self.spec, self.iterates[-1]
        gradient = np.zeros_like(w)
        for row in rows:
            slope = row.weight * loss_slope(s.loss, s.shape, math.fsum(w * row.x), row.y)
            gradient = gradient + slope * row.x / len(rows)
        self.free = self.free - self.step_size(t) * (s.sigma * self.free + gradient)
        self.iterates.append(self.projected(self.free))
