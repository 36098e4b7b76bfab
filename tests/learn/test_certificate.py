"""The mean certificate over independent draws of the rows is never below the mean excess."""

from __future__ import annotations

import numpy as np
import pytest

from .optimum import Problem
from .plain_pgs import norm
from .windows import changed, settings, started, window

FEATURES = 3
ROWS = 30
SEEDS = 40


@pytest.mark.parametrize("returns", ["suffix", "average"])
@pytest.mark.parametrize("ball", [False, True], ids=["whole-space", "ball"])
@pytest.mark.parametrize("p", [2.0, 1.8])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_the_mean_gap_is_at_least_the_mean_excess(loss, p, ball, returns):
    rows = window(ROWS, FEATURES, classes=loss != "squared", seed=6)
    chosen = settings(loss, p, returns=returns, sigma=0.1, t0=30.0)
    best, least = Problem.of(chosen, rows, FEATURES).optimum()
    if ball:
        chosen = changed(chosen, ball=0.6 * norm(best, p))
        best, least = Problem.of(chosen, rows, FEATURES).optimum()
    problem = Problem.of(chosen, rows, FEATURES)

    looks = (10, 100, 700)
    gaps, excesses = np.empty((SEEDS, len(looks))), np.empty((SEEDS, len(looks)))
    for seed in range(SEEDS):
        draws = np.random.default_rng(seed).integers(0, ROWS, max(looks))
        solver, drawn, step = started(chosen, FEATURES), rows.visited(draws), 0
        for place, look in enumerate(looks):
            solver.advance(drawn, step, look)
            gaps[seed, place] = solver.gap()
            excesses[seed, place] = problem.value(solver.weights()) - least
            step = look
    assert (excesses > -1e-7).all()
    assert (gaps.mean(axis=0) >= excesses.mean(axis=0)).all()
    # The bound must also shrink: one that stays large is valid but useless.
    assert (np.diff(gaps.mean(axis=0)) < 0.0).all()
    assert gaps.mean(axis=0)[-1] < 0.2 * problem.value(np.zeros(FEATURES + 1))


@pytest.mark.parametrize("returns", ["last", "random"])
@pytest.mark.parametrize(("loss", "p", "layout"), [("hinge", 2.0, "sparse"), ("huber", 1.1, "dense")])
def test_the_certificate_does_not_depend_on_which_weights_are_returned(loss, p, layout, returns):
    rows = window(600, FEATURES, layout, seed=7)
    suffix, other = (started(settings(loss, p, layout, way, shape=0.5), FEATURES) for way in ("suffix", returns))
    for solver in (suffix, other):
        solver.advance(rows, 0, 600)
    assert other.gap() == pytest.approx(suffix.gap(), rel=1e-12)
