"""Coordinate descent, slow: a dense matrix, and scores that are computed again for each step."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.lane_spec import LaneSpec

from .plain_pgs import PlainRow, Vector, loss_slope, loss_value

CURVATURE = {"squared": 2.0, "logistic": 0.25, "squared-hinge": 2.0, "modified-huber": 2.0, "huber": 1.0}


def soft(value: float, threshold: float) -> float:
    return math.copysign(max(0.0, abs(value) - threshold), value)


class PlainCoordinate:
    """Rows first, then windows that are whole epochs of one block."""

    def __init__(self, spec: LaneSpec, features: int) -> None:
        self.spec = spec
        self.weights: Vector = np.zeros(features + 1)
        self.x: NDArray[np.float64] = np.empty((0, features))
        self.labels = self.row_weights = np.empty(0)

    def add(self, rows: list[PlainRow]) -> None:
        self.x = np.concatenate([self.x, [row.x[1:] for row in rows]])
        self.labels = np.concatenate([self.labels, [row.y for row in rows]])
        self.row_weights = np.concatenate([self.row_weights, [row.weight for row in rows]])

    @property
    def total(self) -> float:
        return float(self.row_weights.sum())

    @property
    def scores(self) -> Vector:
        return np.asarray(self.x @ self.weights[1:] + self.weights[0] * self.spec.intercept)

    @property
    def slopes(self) -> Vector:
        pairs = zip(self.scores, self.labels, strict=True)
        return self.row_weights * [loss_slope(self.spec.loss, self.spec.shape, s, y) for s, y in pairs]

    @property
    def partials(self) -> Vector:
        return np.asarray(self.x.T @ self.slopes)

    @property
    def l1(self) -> float:
        return self.spec.own.l1 * self.total

    @property
    def sigma(self) -> float:
        return self.spec.sigma * self.total

    def loss(self) -> float:
        pairs = zip(self.scores, self.labels, strict=True)
        return (
            float(self.row_weights @ [loss_value(self.spec.loss, self.spec.shape, s, y) for s, y in pairs]) / self.total
        )

    def objective(self) -> float:
        w = self.weights[1:]
        return self.loss() + self.spec.own.l1 * float(np.abs(w).sum()) + 0.5 * self.spec.sigma * float(w @ w)

    def curvatures(self) -> Vector:
        """The second derivative at each row, times its weight."""
        share = np.abs(self.slopes / np.where(self.row_weights > 0.0, self.row_weights, 1.0))
        return np.asarray(self.row_weights * share * (1.0 - share))

    def bound(self, squares: float, bent: float, step_at: float) -> float:
        """An upper bound of the second derivative along a direction, as far as the step with the second derivative goes."""
        bound = CURVATURE[self.spec.loss] * squares
        if self.spec.loss == "logistic" and bent > 0.0:
            bound = min(bound, bent * math.exp(min(step_at, 40.0)))
        return bound

    def step(self, j: int) -> None:
        column, weight, slope = self.x[:, j], self.weights[j + 1], float(self.partials[j])
        bent = float(self.curvatures() @ column**2)
        tried = soft(bent * weight - slope, self.l1) / (bent + self.sigma) if bent + self.sigma > 0.0 else 0.0
        squares = float(self.row_weights @ column**2)
        bound = self.bound(squares, bent, abs(tried - weight) * float(np.abs(column).max()))
        if self.spec.own.beta == "global":
            bound = CURVATURE[self.spec.loss] * self.total * float(np.abs(self.x).max()) ** 2
        if bound + self.sigma > 0.0:
            self.weights[j + 1] = soft(bound * weight - slope, self.l1) / (bound + self.sigma)

    def shift(self) -> None:
        """A step of the intercept."""
        if self.spec.intercept:
            slope, bent = float(self.slopes.sum()), float(self.curvatures().sum())
            bound = self.bound(self.total, bent, abs(slope) / max(bent, 1e-300))
            self.weights[0] -= slope / bound / self.spec.intercept

    def centre(self) -> None:
        """The best intercept, by bisection."""
        if not self.spec.intercept:
            return
        low, high = -100.0, 100.0
        for _ in range(200):
            self.weights[0] = 0.5 * (low + high)
            low, high = (low, self.weights[0]) if self.slopes.sum() > 0.0 else (self.weights[0], high)

    def violations(self) -> Vector:
        w, partials = self.weights[1:], self.partials
        moving = np.abs(partials + self.sigma * w + np.copysign(self.l1, w))
        return np.where(w == 0.0, np.maximum(0.0, np.abs(partials) - self.l1), moving)

    def window(self, columns: NDArray[np.int64], passes: int) -> None:
        self.centre()
        if self.spec.own.beta == "global":
            for j in columns:
                self.step(int(j))
            return
        violations = self.violations()
        if not violations.max() > 1e-13 * self.l1:
            return
        used = self.weights[1:] != 0.0
        others = np.where(used, -1.0, violations)
        least = np.sort(others)[-min(max(10, int(used.sum())), len(others))]
        chosen = used | ((others >= least) & (others > 0.0))
        tolerance = 0.1 * violations.max()
        iterates: list[Vector] = []
        for number in range(passes):
            iterates = [*iterates, self.weights.copy()] if number % 5 else [self.weights.copy()]
            worst = 0.0
            for j in columns:
                if chosen[j]:
                    worst = max(worst, float(self.violations()[j]))
                    self.step(int(j))
            worst = max(worst, abs(float(self.slopes.sum()))) if self.spec.intercept else worst
            self.shift()
            if worst <= tolerance:
                return
            if number % 5 == 4:
                self.extrapolate([*iterates, self.weights.copy()])

    def extrapolate(self, iterates: list[Vector]) -> None:
        """To the mean of the iterates whose steps nearly cancel, if the objective is smaller there."""
        steps = np.diff(iterates, axis=0)
        shares = np.linalg.solve(steps @ steps.T, np.ones(len(steps)))
        before = self.objective(), self.weights
        self.weights = shares / shares.sum() @ iterates[1:]
        if not self.objective() < before[0]:
            self.weights = before[1]

    def best_step(self, columns: NDArray[np.int64]) -> None:
        """The window of greedy descent."""
        self.centre()
        before = self.weights.copy()
        decreases = []
        for j in columns:
            bound = CURVATURE[self.spec.loss] * float(self.row_weights @ self.x[:, j] ** 2)
            if self.spec.own.beta == "global":
                bound = CURVATURE[self.spec.loss] * self.total * float(np.abs(self.x).max()) ** 2
            w, slope = before[j + 1], float(self.partials[j])
            v = soft(bound * w - slope, self.l1) / (bound + self.sigma)
            penalty = self.l1 * (abs(w) - abs(v)) + 0.5 * self.sigma * (w * w - v * v)
            decreases.append(penalty - (v - w) * (slope + 0.5 * bound * (v - w)))
        best = int(np.argmax(decreases))
        if decreases[best] > 0.0:
            self.step(int(columns[best]))
            self.shift()
