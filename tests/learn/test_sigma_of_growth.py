"""Sigma becomes smaller when a table grows: the weights stay, steps become longer, and nothing else is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.learn.learner import StepChange, learner_named
from streampgs.learn.pgs_options import divisor

from .optimum import Problem
from .windows import last_iterate, settings, started, window

FEATURES = 4


@pytest.mark.parametrize("returns", ["suffix", "average", "last", "random"])
@pytest.mark.parametrize("p", [2.0, 1.5])
@pytest.mark.parametrize("factor", [0.5, 0.1])
def test_the_weights_stay(factor, p, returns):
    rows = window(60, FEATURES, seed=1)
    solver = started(settings("logistic", p, returns=returns), FEATURES)
    solver.advance(rows, 0, 40)
    before, last = solver.weights(), last_iterate(solver)
    solver.lanes.change_steps(StepChange(factor))
    np.testing.assert_allclose(solver.weights(), before, rtol=1e-9)
    np.testing.assert_allclose(last_iterate(solver), last, rtol=1e-9)
    assert solver.settings.sigma == pytest.approx(0.02 * factor)


@pytest.mark.parametrize("changes", [(0.5,), (0.5, 0.3), (3.0, 0.1)])
def test_no_step_is_longer_than_the_first(changes):
    rows = window(200, FEATURES, seed=2)
    solver = started(settings("logistic", sigma=0.02, t0=3.0), FEATURES)
    for number, factor in enumerate(changes):
        solver.advance(rows, 40 * number, 40 * (number + 1))
        solver.lanes.change_steps(StepChange(factor))
        spec = solver.settings
        assert (solver.steps + spec.own.t0) * spec.sigma >= 3.0 * 0.02 * (1.0 - 1e-12)
        assert divisor(spec, StepChange(1.0), solver.steps) == pytest.approx((solver.steps + spec.own.t0) * spec.sigma)
    again = learner_named("pgs").continuation.from_zero(solver.settings, 1.0)
    assert again.own.t0 * again.sigma == pytest.approx(3.0 * 0.02)


def test_steps_are_shorter_while_rows_are_longer():
    rows = window(200, FEATURES, seed=2)
    solver, other = (started(settings("logistic", sigma=0.02, t0=3.0), FEATURES) for _ in range(2))
    for training in (solver, other):
        training.advance(rows, 0, 40)
    before = last_iterate(solver)
    solver.lanes.change_steps(StepChange(1.0, 1.0, 5.0))
    np.testing.assert_allclose(last_iterate(solver), before, rtol=1e-9)
    assert (40 + solver.settings.own.t0) * 0.02 == pytest.approx((40 + 3.0) * 0.02 + 4.0 * 3.0 * 0.02)
    assert learner_named("pgs").continuation.from_zero(solver.settings, 5.0).own.t0 == pytest.approx(15.0)
    solver.lanes.change_steps(StepChange(1.0, 5.0, 1.0))
    for training in (solver, other):
        training.advance(rows, 40, 80)
    np.testing.assert_allclose(last_iterate(solver), last_iterate(other), rtol=1e-9)


def test_the_certificate_is_about_the_new_objective():
    rows = window(30, FEATURES, seed=6)
    problem = Problem.of(settings("logistic", sigma=0.05, t0=30.0), rows, FEATURES)
    _, least = problem.optimum()
    gaps, excesses = [], []
    for seed in range(40):
        drawn = rows.visited(np.random.default_rng(seed).integers(0, 30, 900))
        solver = started(settings("logistic", sigma=0.1, t0=30.0), FEATURES)
        solver.advance(drawn, 0, 300)
        solver.lanes.change_steps(StepChange(0.5))
        solver.advance(drawn, 300, 900)
        gaps.append(solver.gap())
        excesses.append(problem.value(solver.weights()) - least)
    assert np.mean(gaps) >= np.mean(excesses)
    assert np.mean(gaps) < 0.2 * problem.value(np.zeros(FEATURES + 1))
