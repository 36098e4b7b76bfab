"""Averages of a table that grows: the steps so far count less, and none that follow is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from .optimum import Problem
from .windows import last_iterate, settings, started, window

FEATURES = 4


@pytest.mark.parametrize("p", [2.0, 1.5])
@pytest.mark.parametrize("returns", ["suffix", "average"])
@pytest.mark.parametrize("steps", [0, 3, 1000])
@pytest.mark.parametrize("first", [8, 11, 16, 25])
def test_the_iterates_before_count_less(first, steps, returns, p):
    rows = window(60, FEATURES, seed=1)
    solver = started(settings("logistic", p, returns=returns), FEATURES)
    solver.advance(rows, 0, first)
    covered = solver.lanes.groups[0].learner.stretches.steps_covered(solver.lanes.groups[0].state)
    before, weight = solver.weights(), max(covered - steps, covered // 2)
    solver.lanes.fade_averages(steps)
    np.testing.assert_allclose(solver.weights(), before, rtol=1e-12)
    total = before * weight
    for row in range(first, 60):  # across several powers of two, at which stretches end
        total, weight = total + last_iterate(solver), weight + 1
        solver.advance(rows, row, row + 1)
        np.testing.assert_allclose(solver.weights(), total / weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("returns", ["last", "random"])
def test_weights_that_are_no_average_stay(returns):
    rows = window(40, FEATURES, seed=2)
    plain, other = (started(settings("hinge", returns=returns), FEATURES) for _ in range(2))
    for solver in (plain, other):
        solver.advance(rows, 0, 20)
    other.lanes.fade_averages(10)
    for solver in (plain, other):
        solver.advance(rows, 20, 40)
    np.testing.assert_allclose(other.weights(), plain.weights(), rtol=1e-12)


@pytest.mark.parametrize("change", [{"fade_averages": (100,)}, {"restart_averages": ()}], ids=str)
@pytest.mark.parametrize("p", [2.0, 1.8])
def test_the_certificate_stays_a_bound(p, change):
    """On average over independent draws, and small enough to be useful."""
    rows = window(30, FEATURES, seed=6)
    chosen = settings("logistic", p, sigma=0.1, t0=30.0)
    problem = Problem.of(chosen, rows, FEATURES)
    _, least = problem.optimum()
    gaps, excesses = [], []
    for seed in range(40):
        drawn = rows.visited(np.random.default_rng(seed).integers(0, 30, 700))
        solver = started(chosen, FEATURES)
        solver.advance(drawn, 0, 300)
        for name, arguments in change.items():
            getattr(solver.lanes, name)(*arguments)
        solver.advance(drawn, 300, 700)
        gaps.append(solver.gap())
        excesses.append(problem.value(solver.weights()) - least)
    assert np.mean(gaps) >= np.mean(excesses)
    assert np.mean(gaps) < 0.2 * problem.value(np.zeros(FEATURES + 1))
