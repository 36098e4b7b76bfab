"""Theorem 3 and Proposition 4 of the ℓ1 paper: bound and measurement on random problems, with rows drawn independently.

The theorem is about an iterate drawn from w_0, …, w_{T-1}. Its expectation is the mean of P over all of them; the mean
over several sequences of draws is compared with the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from streampgs.learn.fixed_steps import SmidasOptions, norm_for
from streampgs.learn.lane_spec import LaneSpec, Target

from .plain_pgs import loss_value
from .windows import Training, dense_window

FEATURES, ROWS, STEPS, SEQUENCES, PROBLEMS = 24, 40, 4000, 2, 2
L1 = 0.1
Q = round(norm_for(FEATURES).q)  # p in the paper
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Assumption:
    """|L'| ≤ ρ for (13), and |L'|² ≤ ρL for (14)."""

    lipschitz: float | None
    self_bounded: float | None


LOSSES = {"logistic": Assumption(1.0, 0.5), "hinge": Assumption(1.0, None), "squared": Assumption(None, 4.0)}


@dataclass(frozen=True, eq=False)
class Problem:
    loss: str
    x: Vector
    labels: Vector

    def objectives(self, weights: Vector) -> Vector:
        """Of each row of weights."""
        scores = weights @ self.x.T
        match self.loss:
            case "logistic":
                losses = np.logaddexp(0.0, -self.labels * scores)
            case "hinge":
                losses = np.maximum(0.0, 1.0 - self.labels * scores)
            case _:
                losses = (scores - self.labels) ** 2
        return np.asarray(losses.mean(axis=-1) + L1 * np.abs(weights).sum(axis=-1))

    @property
    def at_zero(self) -> float:
        return float(self.objectives(np.zeros(FEATURES)))


@cache
def problem(loss: str, number: int) -> tuple[Problem, float, float]:
    """A random problem, its least objective, and the ℓ1 norm of its optimum."""
    chance = np.random.default_rng([number, len(loss)])
    x = chance.uniform(-1.0, 1.0, (ROWS, FEATURES)).astype(np.float32).astype(float)
    truth = chance.normal(size=FEATURES) * (np.arange(FEATURES) < 4)
    labels = x @ truth + 0.3 * chance.normal(size=ROWS)
    found = Problem(loss, x, labels if loss == "squared" else np.where(labels > 0.0, 1.0, -1.0))
    best = optimum_of_hinge(found) if loss == "hinge" else optimum_of_smooth(found)
    return found, float(found.objectives(best)), float(np.abs(best).sum())


def optimum_of_smooth(found: Problem) -> Vector:
    """By proximal gradient steps over all rows."""
    x, y, weights = found.x, found.labels, np.zeros(FEATURES)
    squared = found.loss == "squared"
    step = (0.5 if squared else 4.0) / np.linalg.eigvalsh(x.T @ x / ROWS)[-1]
    for _ in range(5000):
        scores = x @ weights
        slopes = 2.0 * (scores - y) if squared else -y / (1.0 + np.exp(y * scores))
        moved = weights - step * (slopes @ x) / ROWS
        weights = np.sign(moved) * np.maximum(0.0, np.abs(moved) - step * L1)
    return weights


def optimum_of_hinge(found: Problem) -> Vector:
    """As a linear program: w = u - v, and a loss for each row."""
    margins = found.labels[:, np.newaxis] * found.x
    cost = np.concatenate([np.full(2 * FEATURES, L1), np.full(ROWS, 1.0 / ROWS)])
    solved = linprog(cost, A_ub=np.hstack([-margins, margins, -np.eye(ROWS)]), b_ub=np.full(ROWS, -1.0))
    return np.asarray(solved.x[:FEATURES] - solved.x[FEATURES : 2 * FEATURES])


@cache
def measured(loss: str, number: int, steps: tuple[float, ...]) -> Vector:
    """For each size of the steps: the mean of P over the iterates and over several sequences of draws."""
    found, _, _ = problem(loss, number)
    rows = dense_window(found.x, found.labels)
    total = np.zeros(len(steps))
    for sequence in range(SEQUENCES):
        specs = [
            LaneSpec("smidas", loss, 0.0, norm_for(FEATURES), 0.0, Target("y"), 0, 1, 0.0, "dense",
                     SmidasOptions(L1, step, 1)) for step in steps
        ]  # fmt: skip
        training = Training(specs, FEATURES)
        drawn = rows.visited(np.random.default_rng([number, sequence]).integers(0, ROWS, STEPS))
        iterates = np.empty((len(steps), STEPS, FEATURES))
        for t in range(STEPS):
            for lane in range(len(steps)):
                iterates[lane, t] = training.weights(lane)[1:]
            training.advance(drawn, t, t + 1)
        total += found.objectives(iterates).mean(axis=1)
    return total / SEQUENCES


def bound_of_lipschitz(step: float, rho: float, size: float) -> float:
    return step * (Q - 1) * rho**2 * math.e / 2.0 + size**2 / (step * STEPS)


def bound_of_self_bounded(step: float, rho: float, size: float, at_zero: float) -> float:
    left = 1.0 - step * (Q - 1) * rho * math.e / 2.0
    return (1.0 / left - 1.0) * at_zero + size**2 / (step * STEPS * left)


@pytest.mark.parametrize("number", range(PROBLEMS))
@pytest.mark.parametrize("loss", [name for name, known in LOSSES.items() if known.lipschitz])
def test_the_first_part_of_theorem_3_holds(loss: str, number: int) -> None:
    rho = LOSSES[loss].lipschitz
    assert rho is not None
    found, best, size = problem(loss, number)
    optimal = size / rho * math.sqrt(2.0 / ((Q - 1) * math.e * STEPS))
    steps = (0.3 * optimal, optimal, 3.0 * optimal)
    excess = measured(loss, number, steps) - best
    bounds = [bound_of_lipschitz(step, rho, size) for step in steps]
    assert (excess <= bounds).all(), (excess, bounds)
    assert bounds[1] <= rho * size * math.sqrt(12.0 * math.log(FEATURES) / STEPS), "the step of the theorem"
    if loss != "logistic":  # which is nearly flat
        assert bounds[1] < found.at_zero - best, "the weights 0 would fulfil the bound, too"


@pytest.mark.parametrize("number", range(PROBLEMS))
@pytest.mark.parametrize("loss", [name for name, known in LOSSES.items() if known.self_bounded])
def test_the_second_part_of_theorem_3_and_proposition_4_hold(loss: str, number: int) -> None:
    rho = LOSSES[loss].self_bounded
    assert rho is not None
    found, best, size = problem(loss, number)
    longest = 2.0 / ((Q - 1) * rho * math.e)
    optimal = (size**2 / (found.at_zero * STEPS)) * (
        math.sqrt(1.0 + 2.0 * found.at_zero * STEPS / ((Q - 1) * rho * math.e * size**2)) - 1.0
    )
    ratios = (0.1, 0.5, 2.0)
    steps = (0.3 * optimal, optimal, *(longest * ratio / (1.0 + ratio) for ratio in ratios))
    means = measured(loss, number, steps)
    bounds = [bound_of_self_bounded(step, rho, size, found.at_zero) for step in steps]
    assert (means - best <= bounds).all(), (means - best, bounds)
    for ratio, mean in zip(ratios, means[2:], strict=True):
        bound = (1.0 + ratio) * best + (1.0 + ratio) ** 2 / ratio * 3.0 * rho * math.log(FEATURES) * size**2 / STEPS
        assert mean <= bound
    if loss != "logistic":  # which is nearly flat
        assert bounds[1] < found.at_zero - best, "the weights 0 would fulfil the bound, too"


@pytest.mark.parametrize("loss", LOSSES)
def test_the_losses_fulfil_the_assumptions(loss: str) -> None:
    """By differences of their values."""
    known, step = LOSSES[loss], 1e-6
    for score in np.linspace(-8.0, 8.0, 161):
        slope = (loss_value(loss, 0.0, score + step, 1.0) - loss_value(loss, 0.0, score - step, 1.0)) / (2.0 * step)
        if known.lipschitz:
            assert abs(slope) <= known.lipschitz + 1e-8
        if known.self_bounded:
            assert slope**2 <= known.self_bounded * loss_value(loss, 0.0, score, 1.0) * (1.0 + 1e-8) + 1e-8
