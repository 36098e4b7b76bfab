"""Training converges: with enough passes over the rows the objective gets close to its optimum."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import automatic_t0
from streampgs.losses import LOSSES

from .optimum import Problem
from .plain_pgs import norm
from .windows import changed, settings, started, window

FEATURES = 4
ROWS = 50
PASSES = 2000
CLOSE = 1e-3


@pytest.mark.parametrize("ball", [False, True], ids=["whole-space", "ball"])
@pytest.mark.parametrize("p", [2.0, 1.8, 1.5])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_training_reaches_the_optimum(loss, p, ball):
    rows = window(ROWS, FEATURES, classes=loss != "squared", seed=4)
    chosen = settings(loss, p, sigma=0.05, t0=1.0)
    best, least = Problem.of(chosen, rows, FEATURES).optimum()
    at_zero = Problem.of(chosen, rows, FEATURES).value(np.zeros(FEATURES + 1))
    # The default ball contains the optimum. A ball of half that radius makes it a different problem.
    radius = PNorm(p).radius_of_optimum(at_zero, chosen.sigma)
    assert norm(best, p) <= radius
    if ball:
        radius = 0.5 * norm(best, p)
        chosen = changed(chosen, ball=radius)
        best, least = Problem.of(chosen, rows, FEATURES).optimum()
        assert norm(best, p) == pytest.approx(radius, rel=1e-6)
    elif loss == "squared":
        chosen = changed(chosen, ball=radius)

    problem = Problem.of(chosen, rows, FEATURES)
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(ROWS) for _ in range(PASSES)])
    q = p / (p - 1.0)
    chosen = changed(
        chosen, t0=automatic_t0(LOSSES[loss], chosen.sigma, float(np.mean([norm(x, q) ** 2 for x in problem.x])))
    )
    solver = started(chosen, FEATURES)
    solver.advance(rows.visited(order), 0, len(order))

    excess = problem.value(solver.weights()) - least
    assert -1e-6 * least <= excess <= CLOSE * least
    assert at_zero - least > 0.05 * at_zero, "zero weights are already close to the optimum: the case tests nothing"
    assert norm(solver.weights(), p) <= radius * (1.0 + 1e-9) or chosen.own.ball is None
