"""The compiled loop equals its slow plain twin for every loss, norm, layout, ball and choice of returned weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from streampgs.learn.lane_spec import LaneSpec
from streampgs.losses import LOSSES

from .plain_pgs import PlainPgs
from .windows import last_iterate, settings, started, tallies_of, window

FEATURES = 12
ROWS = 300
STEP_COUNTS_LOOKED_AT = {1, 2, 3, 5, 6, 8, 11, 47, 48, 64, 95, 96, 100}


@dataclass(frozen=True)
class Case:
    settings: LaneSpec
    classes: bool = True
    weighted: bool = False

    def __str__(self) -> str:
        s = self.settings
        ball = "whole-space" if s.own.ball is None else "ball"
        return f"{s.loss}-{s.norm.p}-{s.layout}-{ball}-{s.own.returns}-batch{s.batch}"


# These cover each value of every option and the likely pairs, not the product: each line is a compilation.
CASES = [
    Case(settings("hinge", 2.0, "sparse", "suffix")),
    Case(settings("logistic", 2.0, "sparse", "average", radius=0.8, batch=7, intercept=0.0), weighted=True),
    Case(settings("modified-huber", 2.0, "dense", "average", radius=0.5, t0=1.0)),
    Case(settings("absolute", 2.0, "sparse", "last", batch=3), classes=False),
    Case(settings("squared", 1.8, "dense", "suffix", radius=2.0, t0=1.0), classes=False),
    Case(settings("hinge", 1.8, "sparse", "suffix", batch=7), weighted=True),
    Case(settings("logistic", 1.5, "dense", "average", intercept=1.0), weighted=True),
    Case(settings("quantile", 1.3, "sparse", "suffix", shape=0.3, radius=0.7), classes=False),
    Case(settings("squared-hinge", 1.3, "dense", "last", radius=1.5, batch=3)),
    Case(settings("logistic", 1.1, "sparse", "suffix", radius=0.3, batch=3)),
    Case(settings("huber", 1.1, "dense", "last", shape=0.5), classes=False, weighted=True),
    Case(settings("poisson", 2.0, "dense", "suffix", shape=4.0), classes=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pgs_equals_its_plain_twin(case):
    s = case.settings
    rows = window(ROWS, FEATURES, s.layout, classes=case.classes, weighted=case.weighted)
    rows.labels[:] = np.abs(rows.labels) if LOSSES[s.loss].lowest_label == 0.0 else rows.labels
    plain_rows = rows.plain_rows(FEATURES, s.intercept)
    solver, plain = started(s, FEATURES), PlainPgs(s, FEATURES)
    for first in range(0, ROWS, s.batch):  # with batches of 7, the last one is shorter
        stop = min(first + s.batch, ROWS)
        solver.advance(rows, first, stop)
        plain.step(plain_rows[first:stop])
        if solver.steps in STEP_COUNTS_LOOKED_AT or stop == ROWS:
            assert_same(solver, plain)
    assert solver.steps == len(plain.steps) == -(-ROWS // s.batch)
    if s.own.ball is not None:
        lengths = [np.linalg.norm(w, s.norm.p) for w in plain.iterates]
        assert max(lengths) == pytest.approx(s.own.ball), "the ball was never reached: the case does not test it"


def assert_same(solver, plain):
    assert_close(solver.dual(), plain.duals[-1])
    assert_close(last_iterate(solver), plain.iterates[-1])
    assert tallies_of(solver) == pytest.approx(plain.tallies(), rel=1e-9, abs=1e-9)
    # The certificate is a difference of nearly equal sums.
    assert solver.gap() == pytest.approx(plain.gap(), rel=1e-9, abs=1e-9)
    expected = plain.iterates[-1] if solver.settings.own.returns == "last" else plain.average()
    assert_close(solver.weights(), expected)


def assert_close(found, expected):
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-13 + 1e-9 * float(np.abs(expected).max()))
