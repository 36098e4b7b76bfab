"""The loops over mixed scores agree with sums in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streampgs.kernels.judge_loop import add_losses_for, mixed_loss_for
from streampgs.losses import LOSSES

RANDOM = np.random.default_rng(4)
SCORES = RANDOM.normal(size=(7, 3))
FIXED, WEIGHTS, SHARES = RANDOM.normal(size=7), RANDOM.uniform(0.0, 2.0, 7), np.array([0.5, 0.3, 0.2])
LABELS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0])

some_losses = pytest.mark.parametrize("name", ["logistic", "quantile"])


@some_losses
def test_the_loss_of_mixed_scores_and_its_slopes(name):
    loss, slopes = LOSSES[name], np.array([1.0, 2.0, 3.0])
    found = mixed_loss_for(loss)(SCORES, FIXED, LABELS, WEIGHTS, 0.3, SHARES, slopes)
    mixed = [math.fsum(SHARES * SCORES[r]) + FIXED[r] for r in range(7)]
    assert found == pytest.approx(sum(WEIGHTS[r] * loss.value(mixed[r], LABELS[r], 0.3) for r in range(7)), rel=1e-12)
    for k in range(3):
        slope = sum(WEIGHTS[r] * loss.slope(mixed[r], LABELS[r], 0.3) * SCORES[r, k] for r in range(7))
        assert slopes[k] == pytest.approx(k + 1.0 + slope, rel=1e-12)


@some_losses
def test_the_losses_of_rows_are_added_in_their_unit(name):
    loss, losses = LOSSES[name], np.ones(7)
    add_losses_for(loss)(FIXED, LABELS, 0.3, 2.5, losses)
    expected = [1.0 + 2.5 * loss.value(FIXED[r], LABELS[r], 0.3) for r in range(7)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-12)
