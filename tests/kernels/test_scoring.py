"""Sums of losses agree with sums in plain Python, and the logistic loss at the best scale agrees with scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from streampgs.kernels.judge_loop import loss_sum_for, scaled_logistic_loss
from streampgs.losses import LOSSES

SCORES = np.array([0.0, 0.5, -2.0, 1e6, 3.0])
LABELS = np.array([1.0, -1.0, 1.0, -1.0, 1.0])


@pytest.mark.parametrize("weights", [np.empty(0), np.array([1.0, 0.5, 0.0, 2.0, 3.0])], ids=["ones", "weighted"])
def test_loss_sum_is_the_weighted_sum_of_values(weights):
    value = LOSSES["logistic"].value
    expected = math.fsum(
        w * value(s, y, 0.0) for w, s, y in zip(weights if weights.size else np.ones(5), SCORES, LABELS, strict=True)
    )
    assert loss_sum_for(LOSSES["logistic"])(SCORES, LABELS, weights, 0.0) == pytest.approx(expected, rel=1e-14)


# The logistic loss at the best scale.


def slow_scaled_loss(scores, labels, weights):
    """By scipy, over the logarithm of the scale. The loss is convex in the scale, so a grid gives a good start."""
    margins = scores * labels
    size = np.abs(scores).mean()
    if size == 0.0:
        return math.log(2.0) * weights.sum()

    def loss(log_scale):
        return float(weights @ np.logaddexp(0.0, -np.exp(log_scale) * margins / size))

    net = np.linspace(-14.0, math.log(64.0), 200)
    best = net[np.argmin([loss(x) for x in net])]
    found = minimize_scalar(loss, bounds=(best - 0.2, min(best + 0.2, math.log(64.0))), method="bounded")
    return min(float(found.fun), loss(best), math.log(2.0) * float(weights.sum()))


def noisy_scores(seed, rows=400, signal=1.0):
    random = np.random.default_rng(seed)
    labels = np.where(random.uniform(size=rows) < 0.4, 1.0, -1.0)
    return signal * labels + random.normal(size=rows), labels, random.uniform(0.0, 3.0, size=rows)


SCALED = pytest.mark.parametrize("seed", range(6))


@SCALED
@pytest.mark.parametrize("signal", [1.0, 0.5, 0.1, 0.02])
def test_scaled_loss_is_the_minimum_over_all_scales(seed, signal):
    """To the sixth digit; comparing candidates needs only the third."""
    scores, labels, weights = noisy_scores(seed, signal=signal)
    expected = slow_scaled_loss(scores, labels, weights)
    assert scaled_logistic_loss(scores, labels, weights) == pytest.approx(expected, rel=2e-6)
    ones = np.ones(len(scores))
    assert scaled_logistic_loss(scores, labels, ones) == pytest.approx(slow_scaled_loss(scores, labels, ones), rel=2e-6)


@SCALED
@pytest.mark.parametrize("factor", [1e-200, 1e-7, 1e-3, 10.0, 1e9, 1e200])
def test_scaled_loss_does_not_depend_on_the_scale_of_the_scores(seed, factor):
    scores, labels, weights = noisy_scores(seed)
    found = scaled_logistic_loss(factor * scores, labels, weights)
    assert found == pytest.approx(scaled_logistic_loss(scores, labels, weights), rel=1e-9)


@SCALED
def test_scaled_loss_is_proportional_to_the_weights_and_a_weight_counts_like_copies_of_the_row(seed):
    scores, labels, weights = noisy_scores(seed)
    least = scaled_logistic_loss(scores, labels, weights)
    assert scaled_logistic_loss(scores, labels, 7.0 * weights) == pytest.approx(7.0 * least, rel=1e-6)
    copies = np.random.default_rng(seed).integers(1, 4, len(scores))
    weighted = scaled_logistic_loss(scores, labels, copies.astype(float))
    repeated = scaled_logistic_loss(np.repeat(scores, copies), np.repeat(labels, copies), np.ones(copies.sum()))
    assert weighted == pytest.approx(repeated, rel=2e-6)


@given(
    rows=st.lists(
        st.tuples(st.floats(-10.0, 10.0), st.sampled_from([-1.0, 1.0]), st.floats(0.1, 5.0)), min_size=2, max_size=40
    )
)
def test_scaled_loss_is_never_above_the_loss_of_zero_scores(rows):
    scores, labels, weights = (np.array(column) for column in zip(*rows, strict=True))
    found = scaled_logistic_loss(scores, labels, weights)
    assert 0.0 <= found <= math.log(2.0) * weights.sum() * (1.0 + 1e-12)
    assert found <= slow_scaled_loss(scores, labels, weights) + 1e-5 * weights.sum()


@SCALED
def test_scores_of_the_wrong_sign_have_the_loss_of_zero_scores(seed):
    scores, labels, weights = noisy_scores(seed)
    nothing = math.log(2.0) * weights.sum()
    assert scaled_logistic_loss(-scores, labels, weights) == pytest.approx(nothing, rel=1e-6)
    assert scaled_logistic_loss(-np.abs(scores) * labels, labels, weights) == pytest.approx(nothing, rel=1e-6)


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_have_an_infinite_loss(lost):
    assert scaled_logistic_loss(np.array([1.0, lost]), np.array([1.0, -1.0]), np.ones(2)) == math.inf
