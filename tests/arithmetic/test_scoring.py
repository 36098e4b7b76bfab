"""Sums of losses over scores, against the same sum in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streampgs.arithmetic.losses import LOSSES
from streampgs.arithmetic.scoring import loss_sum_for

SCORES = np.array([0.0, 0.5, -2.0, 1e6, 3.0])
LABELS = np.array([1.0, -1.0, 1.0, -1.0, 1.0])


@pytest.mark.parametrize("weights", [np.empty(0), np.array([1.0, 0.5, 0.0, 2.0, 3.0])], ids=["ones", "weighted"])
def test_loss_sum_is_the_weighted_sum_of_values(weights):
    value = LOSSES["logistic"].value
    expected = math.fsum(
        w * value(s, y, 0.0) for w, s, y in zip(weights if weights.size else np.ones(5), SCORES, LABELS, strict=True)
    )
    assert loss_sum_for("logistic")(SCORES, LABELS, weights, 0.0) == pytest.approx(expected, rel=1e-14)


def test_loss_sum_of_nothing_is_zero():
    nothing = np.empty(0)
    assert loss_sum_for("logistic")(nothing, nothing, nothing, 0.0) == 0.0
