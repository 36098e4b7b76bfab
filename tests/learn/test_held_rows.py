"""Rows that solvers of whole passes hold out: they do not train, and they come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streampgs.learn.held_rows import held_rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID
from streampgs.learn.passes import DescentOptions, PassOptions
from tests.learn.plain_passes import EPOCH
from tests.learn.windows import Training, window

FEATURES = 9
OWN: dict[str, Any] = {
    "l-bfgs": PassOptions(0.7, holds_out=True),
    "gradient-descent": DescentOptions(loss_at_zero=0.7, step=0.5, holds_out=True),
}


def spec(solver: str, own: Any) -> LaneSpec:
    return LaneSpec(solver, "logistic", 0.0, EUCLID, 0.02, Target("y"), 0, 1, 0.1, "sparse", own)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("solver", OWN)
def test_they_are_left_out_until_they_are_released(solver: str, workers: int) -> None:
    own, rows = OWN[solver], window(4 * EPOCH, FEATURES, "sparse")
    held = held_rows(0, rows)
    assert 0 < held.sum() < len(held) / 4
    others = replace(rows, labels=np.where(held, -rows.labels, rows.labels))
    first = [Training([spec(solver, own)] * 2, FEATURES, workers) for _ in range(2)]
    for training, read in zip(first, (rows, others), strict=True):
        training.advance(read, 0, 3 * EPOCH)
        assert training.lanes.hold_out()
    np.testing.assert_array_equal(first[0].weights(), first[1].weights())
    assert np.abs(first[0].weights()).max() > 0.0
    for training, read in zip(first, (rows, others), strict=True):
        training.lanes.release_rows()
        assert not training.lanes.hold_out()
        training.advance(read, 3 * EPOCH, 4 * EPOCH)
    training = Training([spec(solver, replace(own, holds_out=False))], FEATURES)
    training.advance(rows, 0, 3 * EPOCH)
    assert not np.array_equal(training.weights(), first[0].weights())


def test_they_depend_on_the_number_of_the_row_and_on_the_seed() -> None:
    rows = window(1000, FEATURES, "sparse")
    assert 60 < held_rows(0, rows).sum() < 140
    assert (held_rows(0, rows) != held_rows(1, rows)).any()
    np.testing.assert_array_equal(held_rows(0, window(500, FEATURES, "sparse")), held_rows(0, rows)[:500])
