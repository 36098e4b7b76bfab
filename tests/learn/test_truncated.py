"""Truncated gradient reaches the optimum of its problem, and its weights are exactly zero where the optimum's are."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.base.errors import Diverged
from streampgs.learn.fixed_steps import L1StepOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID

from .plain_l1 import objective, optimum
from .windows import Training, window

ROWS, FEATURES = 400, 12


def lane(l1: float, step: float, loss: str = "logistic", layout: str = "dense") -> LaneSpec:
    own = L1StepOptions(l1, step)
    return LaneSpec("truncated-gradient", loss, 0.0, EUCLID, 0.0, Target("label"), 0, 1, 0.5, layout, own)


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_training_reaches_the_optimum(layout):
    rows, l1 = window(ROWS, FEATURES, layout), 0.02
    x = np.array([row.x for row in rows.plain_rows(FEATURES, 0.5)])
    best = optimum(x, rows.labels, l1)
    training = Training([lane(l1, 0.002, layout=layout)], FEATURES)
    visits = np.random.default_rng(0).integers(0, ROWS, 60_000)
    training.advance(rows.visited(visits), 0, len(visits))
    found = training.weights()
    least = objective(best, x, rows.labels, l1)
    assert objective(found, x, rows.labels, l1) < least + 0.01 * (np.log(2.0) - least)


def test_larger_l1_sets_more_weights_to_exactly_zero():
    rows = window(ROWS, FEATURES, "dense")
    training = Training([lane(l1, 0.01) for l1 in (0.0, 0.05, 0.3, 10.0)], FEATURES)
    training.advance(rows, 0, ROWS)
    nonzeros = [np.count_nonzero(training.weights(number)[1:]) for number in range(4)]
    assert nonzeros[0] == FEATURES
    assert nonzeros == sorted(nonzeros, reverse=True)
    assert nonzeros[-1] == 0
    assert training.weights(3)[0] != 0.0, "the intercept does not shrink"


def test_a_step_that_is_too_large_is_reported_with_a_remedy():
    rows = window(ROWS, FEATURES, "dense", classes=False)
    with pytest.raises(Diverged) as raised:
        Training([lane(0.0, 1e3, "squared")], FEATURES).advance(rows, 0, ROWS)
    assert "--step" in raised.value.remedy


def test_truncated_gradient_has_no_certificate():
    assert Training([lane(0.1, 0.1)], FEATURES).certificate(0) is None
