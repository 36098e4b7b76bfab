"""PGS with the entropy keeps Σ|w| below the radius, reaches the best weights there, and does not overflow."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from streampgs.base.errors import OptionError
from streampgs.learn.entropic import EntropicOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import StepChange
from streampgs.learn.norms import EUCLID
from streampgs.options.commands import ModelOptions

from .windows import Training, window

ROWS, FEATURES = 300, 12


def lane(radius: float, sigma: float = 0.01, t0: float = 100.0) -> LaneSpec:
    own = EntropicOptions(t0, radius, "suffix")
    return LaneSpec("entropic", "logistic", 0.0, EUCLID, sigma, Target("label"), 0, 1, 0.0, "sparse", own)


def test_training_reaches_the_best_weights_of_the_ball():
    rows, radius = window(ROWS, FEATURES, "sparse"), 2.0
    x = np.array([row.x[1:] for row in rows.plain_rows(FEATURES, 0.0)])

    def loss(weights):
        return float(np.logaddexp(0.0, -rows.labels * (x @ weights)).mean())

    def of_parts(parts):  # positive and negative parts, whose sum is limited
        slopes = -rows.labels / (1.0 + np.exp(rows.labels * (x @ (parts[:FEATURES] - parts[FEATURES:])))) @ x / ROWS
        return loss(parts[:FEATURES] - parts[FEATURES:]), np.concatenate([slopes, -slopes])

    limit = {"type": "ineq", "fun": lambda parts: radius - parts.sum()}
    bounds, precise = [(0.0, None)] * (2 * FEATURES), {"ftol": 1e-14, "maxiter": 1000}
    start = np.full(2 * FEATURES, 0.01)
    best = minimize(of_parts, start, jac=True, bounds=bounds, constraints=[limit], options=precise)
    training = Training([lane(radius, 1e-4, 3e4)], FEATURES)
    visits = np.concatenate([np.random.default_rng(k).permutation(ROWS) for k in range(1000)])
    training.advance(rows.visited(visits), 0, len(visits))
    weights = training.weights()[1:]
    assert np.abs(weights).sum() <= radius
    assert best.fun <= loss(weights) + 1e-9
    assert loss(weights) <= best.fun + 0.002 * (np.log(2.0) - best.fun)


@pytest.mark.parametrize("sigma", [1e-300, 1e-6, 1.0])
def test_no_power_overflows(sigma: float):
    rows = window(ROWS, FEATURES, "sparse")
    training = Training([lane(3.0, sigma, 1.0)], FEATURES)
    training.advance(rows, 0, ROWS)
    weights = training.weights()
    assert np.isfinite(weights).all()
    assert np.abs(weights[1:]).sum() <= 3.0 * (1.0 + 1e-12)


def test_other_steps_leave_the_weights_as_they_are():
    training = Training([lane(3.0)], FEATURES)
    training.advance(window(ROWS, FEATURES, "sparse"), 0, 200)
    training.restart_averages()
    before = training.weights()
    training.change_steps(StepChange(0.3, 1.0, 2.0))
    np.testing.assert_allclose(training.weights(), before, rtol=1e-9)
    assert before.any()


@pytest.mark.parametrize("ball", [None, "auto", "none"])
def test_the_radius_must_be_given(ball):
    with pytest.raises(OptionError) as raised:
        ModelOptions(solver="entropic", ball=ball)
    assert "--ball 10" in raised.value.remedy
