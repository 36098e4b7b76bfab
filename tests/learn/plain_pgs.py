"""Figure 1 of the PGS paper, literal and slow: all vectors are dense, and every iterate is kept.

It shares no code with streampgs: losses, norms and the link function are implemented again, scaled so that they stay in
range for every p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.lane_spec import LaneSpec

Vector = NDArray[np.float64]


def loss_value(name: str, shape: float, s: float, y: float) -> float:
    m = y * s
    match name:
        case "hinge":
            return max(0.0, 1.0 - m)
        case "squared-hinge":
            return max(0.0, 1.0 - m) ** 2
        case "modified-huber":
            return max(0.0, 1.0 - m) ** 2 if m >= -1.0 else -4.0 * m
        case "logistic":
            return float(np.logaddexp(0.0, -m))
        case "squared":
            return (s - y) ** 2
        case "huber":
            return 0.5 * (s - y) ** 2 if abs(s - y) <= shape else shape * abs(s - y) - 0.5 * shape**2
        case "absolute":
            return abs(s - y)
        case "quantile":
            return shape * (y - s) if y >= s else (1.0 - shape) * (s - y)
        case "poisson":
            bound = math.log(shape + y)
            rate = math.exp(s) if s <= bound else (shape + y) * (1.0 + s - bound)
            return rate - y * s + (y * math.log(y) if y > 0.0 else 0.0) - y
    raise AssertionError(name)


def loss_slope(name: str, shape: float, s: float, y: float) -> float:
    m = y * s
    match name:
        case "hinge":
            return -y if m < 1.0 else 0.0
        case "squared-hinge":
            return -2.0 * y * (1.0 - m) if m < 1.0 else 0.0
        case "modified-huber":
            return -4.0 * y if m < -1.0 else -2.0 * y * (1.0 - m) if m < 1.0 else 0.0
        case "logistic":
            return -y / (1.0 + math.exp(m)) if m < 700.0 else 0.0
        case "squared":
            return 2.0 * (s - y)
        case "huber":
            return float(np.clip(s - y, -shape, shape))
        case "absolute":
            return float(np.sign(s - y))
        case "quantile":
            return 1.0 - shape if s > y else -shape if s < y else 0.0
        case "poisson":
            return math.exp(min(s, math.log(shape + y))) - y
    raise AssertionError(name)


def norm(vector: Vector, exponent: float) -> float:
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest * float(np.sum((np.abs(vector) / largest) ** exponent)) ** (1.0 / exponent)


def link(dual: Vector, p: float) -> Vector:
    """∇r*(θ)_i = (p-1)·‖θ‖_q^{2-q}·|θ_i|^{q-1}·sgn θ_i, as ‖θ‖_q·(|θ_i|/‖θ‖_q)^{q-1} to stay in range."""
    q = p / (p - 1.0)
    size = norm(dual, q)
    if size == 0.0:
        return np.zeros_like(dual)
    return (p - 1.0) * size * (np.abs(dual) / size) ** (q - 1.0) * np.sign(dual)


def conjugate(dual: Vector, p: float, radius: float) -> float:
    """r*(θ) = max over ‖w‖_p ≤ B of <θ, w> - ‖w‖_p²/(2(p-1)); the maximizing w has the direction of the link."""
    size = norm(dual, p / (p - 1.0))
    length = min(radius, (p - 1.0) * size)
    return length * size - length**2 / (2.0 * (p - 1.0))


@dataclass
class PlainRow:
    x: Vector
    """The constant of the intercept is the first value."""
    y: float
    weight: float = 1.0


@dataclass
class Step:
    """The contribution of one step to the tallies."""

    regularizer: float
    linear: float
    loss: float
    correct: float
    weight: float


@dataclass
class PlainPgs:
    settings: LaneSpec
    features: int
    duals: list[Vector] = field(default_factory=list)
    """λ_0, λ_1, …"""
    iterates: list[Vector] = field(default_factory=list)
    """w_0, w_1, …"""
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.duals = [np.zeros(self.features + 1)]
        self.iterates = [np.zeros(self.features + 1)]

    @property
    def radius(self) -> float:
        return math.inf if self.settings.own.ball is None else self.settings.own.ball

    def step(self, rows: list[PlainRow]) -> None:
        s = self.settings
        w = self.iterates[-1]
        gradient = np.zeros_like(w)
        here = Step(s.sigma * norm(w, s.norm.p) ** 2 / (2.0 * (s.norm.p - 1.0)), 0.0, 0.0, 0.0, 0.0)
        for row in rows:
            score = math.fsum(w * row.x)
            slope = row.weight * loss_slope(s.loss, s.shape, score, row.y)
            gradient += slope * row.x / len(rows)
            here.linear += slope * score / len(rows)
            here.loss += row.weight * loss_value(s.loss, s.shape, score, row.y)
            here.correct += row.weight * ((score > 0.0) == (row.y > 0.0))
            here.weight += row.weight
        self.steps.append(here)
        self.duals.append(self.duals[-1] - gradient)
        t = len(self.steps)
        w = link(self.duals[-1] / ((t + s.own.t0) * s.sigma), s.norm.p)
        length = norm(w, s.norm.p)
        self.iterates.append(w * (self.radius / length) if length > self.radius else w)

    def first_covered(self) -> int:
        """The first step, counted from 0, that the averages and the certificate cover."""
        t = len(self.steps)
        if self.settings.own.returns == "average":
            return 0
        power_of_two = 1 << (t.bit_length() - 1)
        return power_of_two // 2 if t < 1.5 * power_of_two else power_of_two

    def average(self) -> Vector:
        """The mean of the w from which the covered steps started."""
        return np.mean(self.iterates[self.first_covered() : -1], axis=0)

    def tallies(self) -> list[float]:
        covered = self.steps[self.first_covered() :]
        names = ("regularizer", "linear", "loss", "correct", "weight")
        return [len(covered), *(math.fsum(getattr(step, name) for step in covered) for name in names)]

    def gap(self) -> float:
        s, first = self.settings, self.first_covered()
        covered = self.steps[first:]
        mean = math.fsum(step.regularizer + step.linear for step in covered) / len(covered)
        change = (self.duals[-1] - self.duals[first]) / (len(covered) * s.sigma)
        return mean + s.sigma * conjugate(change, s.norm.p, self.radius)
