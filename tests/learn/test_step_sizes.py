"""Lanes whose steps of a fixed size are too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streampgs.base.errors import Diverged
from streampgs.learn.fixed_steps import L1StepOptions, SmidasOptions, norm_for
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import learner_named
from streampgs.learn.norms import EUCLID
from streampgs.options.commands import ModelOptions

from .windows import Training, bits, window

FEATURES, ROWS = 12, 300
KINDS: dict[str, Any] = {
    "truncated-gradient": lambda step: (EUCLID, L1StepOptions(0.01, step)),
    "smidas": lambda step: (norm_for(FEATURES), SmidasOptions(0.01, step, 3)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def lane(kind: str, step: float, target: str = "y") -> LaneSpec:
    norm, own = KINDS[kind](step)
    return LaneSpec(kind, "squared", 0.0, norm, 0.0, Target(target), 0, 1, 0.5, "sparse", own)


@every_kind
def test_a_lane_that_diverges_does_not_stop_the_others(kind: str) -> None:
    rows = window(ROWS, FEATURES, "sparse", classes=False)
    together = Training([lane(kind, 1e6), lane(kind, 0.001)], FEATURES)
    alone = Training([lane(kind, 0.001)], FEATURES)
    for training in (together, alone):
        training.advance(rows, 0, ROWS)
    assert np.isnan(together.weights(0)).all()
    np.testing.assert_allclose(together.weights(1), alone.weights(0), rtol=1e-9)
    paused = Training(together.specs, FEATURES)
    for first in range(0, ROWS, 20):
        paused.advance(rows, first, first + 20)
        paused = paused.again()
    assert bits(paused) == bits(together)


@every_kind
def test_training_ends_with_an_error_if_all_candidates_for_a_target_have_diverged(kind: str) -> None:
    rows = window(ROWS, FEATURES, "sparse", classes=False)
    specs = [lane(kind, 1e6), lane(kind, 1e7), lane(kind, 1e6, "z"), lane(kind, 0.001, "z")]
    training = Training(specs, FEATURES)
    with pytest.raises(Diverged) as raised:
        training.advance(rows, 0, ROWS)
    assert "--step" in raised.value.remedy
    Training(specs[1:], FEATURES).keeping([1, 2]).advance(rows, 0, 1)


NEEDED: dict[str, Any] = {
    "truncated-gradient": {"l1": 1e-3},
    "smidas": {"l1": 1e-3},
    "sgd": {},
    "entropic": {"ball": 10.0},
    "gradient-descent": {},
}


@pytest.mark.parametrize("solver", NEEDED)
def test_solvers_of_the_papers_take_sigma_and_the_step_from_the_rows(solver: str) -> None:
    options = ModelOptions(solver=solver, **NEEDED[solver])
    candidates = learner_named(solver).candidates
    assert not candidates.searches(options)
    assert candidates.count(options) == 1
