"""Sigma becomes smaller when a table grows: the weights stay, steps become longer, and nothing else is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.learn.learner import learner_named
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
    solver.lanes.change_sigma(factor)
    np.testing.assert_allclose(solver.weights(), before, rtol=1e-9)
    np.testing.assert_allclose(last_iterate(solver), last, rtol=1e-9)
    assert solver.settings.sigma == pytest.approx(0.02 * factor)


@pytest.mark.parametrize("changes", [(0.5,), (0.5, 0.3), (3.0, 0.1)])
def test_no_step_is_longer_than_the_first(changes):
    rows = window(200, FEATURES, seed=2)
    solver = started(settings("logistic", sigma=0.02, t0=3.0), FEATURES)
    for number, factor in enumerate(changes):
        solver.advance(rows, 40 * number, 40 * (number + 1))
        solver.lanes.change_sigma(factor)
        spec = solver.settings
        assert (solver.steps + spec.own.t0) * spec.sigma >= 3.0 * 0.02 * (1.0 - 1e-12)
        assert divisor(spec, 1.0, solver.steps) == pytest.approx((solver.steps + spec.own.t0) * spec.sigma)
    again = learner_named("pgs").candidates.from_zero(solver.settings)
    assert again.own.t0 * again.sigma == pytest.approx(3.0 * 0.02)


def test_the_certificate_is_about_the_new_objective():
    rows = window(30, FEATURES, seed=6)
    problem = Problem.of(settings("logistic", sigma=0.05, t0=30.0), rows, FEATURES)
    _, least = problem.optimum()
    gaps, excesses = [], []
    for seed in range(40):
        drawn = rows.visited(np.random.default_rng(seed).integers(0, 30, 900))
        solver = started(settings("logistic", sigma=0.1, t0=30.0), FEATURES)
        solver.advance(drawn, 0, 300)
        solver.lanes.change_sigma(0.5)
        solver.advance(drawn, 300, 900)
        gaps.append(solver.gap())
        excesses.append(problem.value(solver.weights()) - least)
    assert np.mean(gaps) >= np.mean(excesses)
    assert np.mean(gaps) < 0.2 * problem.value(np.zeros(FEATURES + 1))
