"""The solvers of rows that take l1: their optimum, weights that are exactly zero, and steps that are too large."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.base.errors import Diverged
from streampgs.learn.composite import CompositeOptions
from streampgs.learn.fixed_steps import L1StepOptions, SmidasOptions, norm_for
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID

from .plain_l1 import objective, optimum
from .windows import Training, window

ROWS, FEATURES = 400, 12
FIXED_STEPS = ["truncated-gradient", "smidas"]


def lane(name: str, l1: float, step: float = 0.01, every: int = 1, layout: str = "dense", loss: str = "logistic"):
    own, norm, sigma = {
        "truncated-gradient": (L1StepOptions(l1, step), EUCLID, 0.0),
        "smidas": (SmidasOptions(l1, step, every), norm_for(FEATURES), 0.0),
        "pgs-l1": (CompositeOptions(50.0, None, "suffix", l1=l1), EUCLID, 0.05),
    }[name]
    return LaneSpec(name, loss, 0.0, norm, sigma, Target("label"), 0, 1, 0.5, layout, own)


@pytest.mark.parametrize(
    ("name", "step", "every"), [("truncated-gradient", 0.002, 1), ("smidas", 0.01, 1), ("smidas", 0.01, 20)]
)
@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_training_reaches_the_optimum(name, step, every, layout):
    rows, l1 = window(ROWS, FEATURES, layout), 0.02
    x = np.array([row.x for row in rows.plain_rows(FEATURES, 0.5)])
    training = Training([lane(name, l1, step, every, layout)], FEATURES)
    visits = np.random.default_rng(0).integers(0, ROWS, 60_000)
    training.advance(rows.visited(visits), 0, len(visits))
    least = objective(optimum(x, rows.labels, l1), x, rows.labels, l1)
    allowed = 0.01 if name == "truncated-gradient" else 0.02
    assert objective(training.weights(), x, rows.labels, l1) < least + allowed * (np.log(2.0) - least)


@pytest.mark.parametrize("name", [*FIXED_STEPS, "pgs-l1"])
def test_larger_l1_sets_more_weights_to_exactly_zero(name):
    training = Training([lane(name, l1) for l1 in (0.0, 0.05, 0.3, 10.0)], FEATURES)
    training.advance(window(ROWS, FEATURES, "dense"), 0, ROWS)
    nonzeros = [np.count_nonzero(training.weights(number)[1:]) for number in range(4)]
    assert nonzeros[0] == FEATURES
    assert nonzeros == sorted(nonzeros, reverse=True)
    assert nonzeros[-1] == 0
    assert training.weights(3)[0] != 0.0, "the intercept has no l1"
    assert training.certificate(0) is None


@pytest.mark.parametrize("name", FIXED_STEPS)
def test_a_step_that_is_too_large_is_reported_with_a_remedy(name):
    rows = window(ROWS, FEATURES, "dense", classes=False)
    with pytest.raises(Diverged) as raised:
        Training([lane(name, 0.0, 1e3, loss="squared")], FEATURES).advance(rows, 0, ROWS)
    assert "--step" in raised.value.remedy
