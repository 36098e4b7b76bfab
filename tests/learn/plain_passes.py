"""Gradient descent and L-BFGS, slow: all rows of an epoch are kept, and matrices are multiplied."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.passes import PAIRS
from streampgs.losses import LOSSES

from .plain_pgs import PlainRow, Vector, loss_slope, loss_value

EPOCH = 40
"""Rows of an epoch in the tests of learners."""


class PlainPasses(ABC):
    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.w: Vector = np.zeros(features + 1)
        self.rows: list[PlainRow] = []

    def step(self, rows: list[PlainRow]) -> None:
        for row in rows:
            self.rows.append(row)
            if len(self.rows) == EPOCH:
                self.finish()
                self.rows = []

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        s = self.spec
        value, gradient = 0.5 * s.sigma * float(w @ w), s.sigma * w
        for row in self.rows:
            score = float(w @ row.x)
            value += row.weight * loss_value(s.loss, s.shape, score, row.y) / len(self.rows)
            gradient = gradient + row.weight * loss_slope(s.loss, s.shape, score, row.y) * row.x / len(self.rows)
        return value, gradient

    @abstractmethod
    def finish(self) -> None:
        """All rows of an epoch have come."""


class PlainDescent(PlainPasses):
    def __init__(self, spec: LaneSpec, features: int) -> None:
        super().__init__(spec, features)
        self.iterates: list[Vector] = []

    def finish(self) -> None:
        self.iterates.append(self.w)
        self.w = self.w - self.spec.own.step * self.value_and_gradient(self.w)[1]

    def average(self) -> Vector:
        return np.mean(self.iterates, axis=0) if self.iterates else self.w


class PlainLbfgs(PlainPasses):
    """For epochs with different rows."""

    def __init__(self, spec: LaneSpec, features: int) -> None:
        super().__init__(spec, features)
        self.gradient: Vector | None = None
        self.value = 0.0
        self.direction = np.zeros_like(self.w)
        self.step_length = 0.0
        self.pairs: list[tuple[Vector, Vector]] = []

    def finish(self) -> None:
        trial = self.w + self.step_length * self.direction
        before, _ = self.value_and_gradient(self.w)
        after, gradient = self.value_and_gradient(trial)
        if self.step_length and self.is_known(before):
            assert self.gradient is not None
            slope = float(self.gradient @ self.direction)
            if after <= before + 1e-4 * self.step_length * slope:
                self.pairs.append((trial - self.w, gradient - self.gradient))
            else:
                slope_after = float(gradient @ self.direction)
                self.step_length = self.minimum_of_cubic(before, after, slope, slope_after)
                return
        elif self.step_length and after >= before:
            self.gradient, self.step_length = None, 0.0
            return
        self.w, self.gradient, self.value = trial, gradient, after
        self.turn()

    def is_known(self, before: float) -> bool:
        """Whether value and gradient at w are those of the same rows."""
        return self.gradient is not None and abs(before - self.value) <= 1e-9 * before

    def minimum_of_cubic(self, before: float, after: float, slope: float, slope_after: float) -> float:
        a = self.step_length
        matrix = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, a, a**2, a**3], [0.0, 1.0, 2 * a, 3 * a**2]]
        cubic = np.polynomial.Polynomial(np.linalg.solve(matrix, [before, slope, after, slope_after]))
        inside = [x.real for x in cubic.deriv().roots() if abs(x.imag) < 1e-12 and cubic.deriv(2)(x.real) > 0.0]
        return float(np.clip(inside[0], 0.05 * a, 0.6 * a))

    def turn(self) -> None:
        """H·∇F, with H written out: the BFGS update, by the last pairs, of a diagonal matrix."""
        self.pairs = self.pairs[-PAIRS:]
        inverse = self.diagonal()
        if self.pairs:
            s, y = self.pairs[-1]
            inverse *= (s @ y) / (y @ inverse @ y)
        for s, y in self.pairs:
            left = np.eye(len(s)) - np.outer(s, y) / (s @ y)
            inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
        self.direction = -inverse @ self.gradient
        self.step_length = 1.0 if self.pairs else 0.1

    def diagonal(self) -> NDArray[np.float64]:
        squares = sum(row.weight * row.x**2 for row in self.rows) / len(self.rows)
        curvature = 0.25 * LOSSES[self.spec.loss].curvature
        known = np.where(squares > 0.0, squares, np.sum(squares))
        return np.diag(1.0 / (curvature * known + self.spec.sigma))
