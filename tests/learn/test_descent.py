"""The lecture's algorithms: their iterates and averages, and which runs of PGS are the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from streampgs.learn.fixed_steps import SgdOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs import OgdOptions

from .plain_descent import PlainLazyPegasos, PlainOgd, PlainPegasos, PlainSgd
from .windows import Training, last_iterate, settings, window

FEATURES, ROWS, INTERCEPT = 12, 200, 0.1


def spec(solver: str, own: Any, sigma: float, loss: str = "logistic", layout: str = "sparse") -> LaneSpec:
    return LaneSpec(solver, loss, 0.0, EUCLID, sigma, Target("y"), 0, 1, INTERCEPT, layout, own)


def ogd(sigma: float, loss: str = "logistic", ball: float | None = None, layout: str = "sparse") -> LaneSpec:
    return spec("ogd", OgdOptions(t0=0.0, ball=ball, returns="average"), sigma, loss, layout)


def compare(training: Training, twin: Any, layout: str = "sparse", classes: bool = True) -> None:
    """Iterate by iterate, and the average."""
    rows = window(ROWS, FEATURES, layout, classes=classes)
    for number, row in enumerate(rows.plain_rows(FEATURES, INTERCEPT)):
        training.advance(rows, number, number + 1)
        twin.step([row])
        np.testing.assert_allclose(last_iterate(training), twin.iterates[-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(training.weights(), twin.average(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_ogd_takes_the_steps_of_the_lecture(loss: str, layout: str) -> None:
    chosen = ogd(0.05, loss, layout=layout)
    compare(Training([chosen], FEATURES), PlainOgd(chosen, FEATURES), layout)


def test_ogd_with_a_ball_is_pegasos_with_lazy_projections() -> None:
    """PEGASOS continues from the projected iterate, PGS and OGD from the sum of the gradients: they are the same until the
    ball is reached."""
    chosen = ogd(0.02, "hinge", ball=1.0 / math.sqrt(0.02))
    lazy, pegasos = PlainLazyPegasos(chosen, FEATURES), PlainPegasos(chosen, FEATURES)
    compare(Training([chosen], FEATURES), lazy)
    for row in window(ROWS, FEATURES, "sparse").plain_rows(FEATURES, INTERCEPT):
        pegasos.step([row])
    equal = [np.allclose(mine, other) for mine, other in zip(lazy.iterates, pegasos.iterates, strict=True)]
    reached = [float(np.linalg.norm(w)) > 0.999 / math.sqrt(0.02) for w in pegasos.iterates]
    assert reached.index(True) < equal.index(False) == reached.index(True) + 1


def test_ogd_without_projections_is_pegasos_without_a_ball_that_binds() -> None:
    chosen = ogd(5.0, "hinge")
    twin = PlainPegasos(chosen, FEATURES)
    compare(Training([chosen], FEATURES), twin)
    assert max(float(np.linalg.norm(w)) for w in twin.iterates) < 0.999 / math.sqrt(5.0), "the ball was reached"


def test_pgs_with_the_t0_of_its_paper_is_ogd_that_begins_with_the_second_step() -> None:
    """PGS divides by (t + t0)σ after t steps, and its paper has t0 = 1; the lecture divides by tσ."""

    class Later(PlainOgd):
        def step_size(self, t: int) -> float:
            return super().step_size(t + 1)

    chosen = settings("logistic", 2.0, "sparse", "average", sigma=0.05, t0=1.0, intercept=INTERCEPT)
    compare(Training([chosen], FEATURES), Later(chosen, FEATURES))


@pytest.mark.parametrize(("step", "sigma"), [(0.1, 0.01), (0.3, 1.0), (0.9, 1.1), (0.5, 1e-9)])
def test_averages_of_sgd_survive_a_regularizer_of_any_strength(step: float, sigma: float) -> None:
    """With η·σ near 1 the scale of the weights is folded into them every few steps."""
    chosen = spec("sgd", SgdOptions(step), sigma)
    rows, training, twin = window(ROWS, FEATURES, "sparse"), Training([chosen], FEATURES), PlainSgd(chosen, FEATURES)
    for number, row in enumerate(rows.plain_rows(FEATURES, INTERCEPT)):
        training.advance(rows, number, number + 1)
        twin.step([row])
        if number % 17 == 0:
            np.testing.assert_allclose(training.weights(), twin.average(), rtol=1e-8, atol=1e-11)
            state = training.state
            np.testing.assert_allclose(state["scale"] * state["dual"].T, [twin.iterates[-1]], rtol=1e-8, atol=1e-11)


def test_sgd_refuses_a_spec_whose_steps_change_signs() -> None:
    training = Training([spec("sgd", SgdOptions(0.5), 1.0)], FEATURES)
    learner = training.groups[0].learner
    learner.specs = (spec("sgd", SgdOptions(0.5), 3.0),)
    with pytest.raises(ValueError, match="too large"):
        learner.check(training.state)
