"""A grid has every combination of options once, in the order of the lists, and `auto` options get valid values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import PgsCandidates, automatic_t0
from streampgs.losses import LOSSES
from streampgs.options.commands import ModelOptions
from streampgs.reading.window import Window
from streampgs.selection.grid import candidates_of, lanes_of, targets_of

ROWS, FEATURES = 300, 6
LADDER_LENGTH = 8


def window_of(scale: float = 1.0, labels: Any = None, weights: Any = ()) -> Window:
    window = Window()
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    window.starts = np.arange(ROWS) * FEATURES
    window.stops = window.starts + FEATURES
    window.values = (np.float32(scale) * x).ravel()
    window.labels = np.where(x[:, 0] > 0.0, 1.0, -1.0) if labels is None else np.asarray(labels, float)
    window.weights = np.asarray(weights, float)
    return window


def window_for(loss: str) -> Window:
    """A window with labels that the loss accepts."""
    return window_of(labels=np.abs(window_of().labels)) if LOSSES[loss].lowest_label == 0.0 else window_of()


def candidates(options: ModelOptions, window: Window | None = None, rows: int = 10_000, features: int = FEATURES):
    return candidates_of(options, window or window_of(), "dense", rows, features)


# Lists of options.


def test_a_grid_has_every_combination_in_the_order_of_the_lists():
    options = ModelOptions(loss=("logistic", "hinge"), p=(1.8, 2.0), sigma=(1e-5, 1e-3, 1e-4), ball=(10.0, "none", 1.0))
    found = [(one.loss, one.norm.p, one.sigma, one.own.ball) for one in candidates(options)]
    expected = [
        (loss, p, sigma, ball)
        for loss in ("logistic", "hinge")
        for p in (1.8, 2.0)
        for sigma in (1e-5, 1e-3, 1e-4)
        for ball in (10.0, None, 1.0)
    ]
    assert found == expected


@given(
    losses=st.lists(st.sampled_from(["logistic", "hinge", "squared-hinge"]), min_size=1, max_size=3, unique=True),
    powers=st.lists(st.sampled_from([1.1, 1.5, 1.8, 2.0]), min_size=1, max_size=3, unique=True),
    sigmas=st.lists(st.floats(1e-8, 1e2), min_size=1, max_size=3, unique=True),
    balls=st.lists(st.sampled_from([0.1, 1.0, "none"]), min_size=1, max_size=2, unique=True),
)
@hypothesis_settings(max_examples=20)
def test_a_grid_has_each_combination_once(losses, powers, sigmas, balls):
    found = candidates(ModelOptions(loss=losses, p=powers, sigma=sigmas, ball=balls))
    assert len(set(found)) == len(found) == len(losses) * len(powers) * len(sigmas) * len(balls)


@pytest.mark.parametrize("loss", LOSSES)
def test_numbers_that_are_not_given_are_computed_from_the_rows(loss):
    window = window_for(loss)
    options = ModelOptions(loss=loss, sigma=1e-3, intercept=0.5, returns="average", batch=3, seed=7)
    (one,) = candidates(options, window)
    norms = (window.values.astype(float).reshape(ROWS, FEATURES) ** 2).sum(axis=1)
    spread = np.abs(window.labels - np.median(window.labels)).mean()
    stretch = LOSSES[loss].unit(window.labels)
    assert loss == "poisson" or stretch == 1.0
    assert one.own.t0 == pytest.approx(automatic_t0(LOSSES[loss], 1e-3 * stretch, norms.mean() + 0.25), rel=1e-9)
    shape = spread if loss == "huber" else LOSSES[loss].shape(window.labels)
    if LOSSES[loss].lipschitz:
        assert one.own.ball is None
    else:
        labels = window.labels if LOSSES[loss].classifies else window.labels / window.labels.std()
        at_base = np.mean([LOSSES[loss].value(labels.mean(), y, shape) for y in labels])
        assert one.own.ball == pytest.approx(PNorm(2.0).radius_of_optimum(at_base, 1e-3), rel=1e-9)
    told = (one.loss, one.shape, one.norm.p, one.sigma, one.batch, one.intercept, one.own.returns, one.seed, one.layout)
    assert told == (loss, shape, 2.0, 1e-3, 3, 0.5, "average", 7, "dense")


def test_the_ball_of_several_labels_does_not_depend_on_their_units():
    labels = np.random.default_rng(1).normal(size=(ROWS, 3)) * [1.0, 10.0, 0.1]
    options = ModelOptions(loss="squared", sigma=1e-3, label=("a", "b", "c"))
    (one,) = candidates(options, window_of(labels=labels))
    assert one.own.ball == pytest.approx(PNorm(2.0).radius_of_optimum(1.0, 1e-3), rel=1e-9)


# Automatic σ.


def sigmas(options: ModelOptions | None = None, **given: Any) -> list[float]:
    return [one.sigma for one in candidates(options or ModelOptions(intercept=0.0), **given)]


def test_the_ladder_descends_by_factors_of_root_ten_around_its_unit():
    found = sigmas()
    assert len(found) == LADDER_LENGTH
    assert found == sorted(found, reverse=True)
    np.testing.assert_allclose(np.divide(found[:-1], found[1:]), math.sqrt(10.0), rtol=1e-12)
    norms = (window_of().values.astype(float).reshape(ROWS, FEATURES) ** 2).sum(axis=1)
    unit = LOSSES["logistic"].curvature * norms.mean() / 10_000
    assert min(abs(sigma / unit - 1.0) for sigma in found) < 1e-9
    assert found[0] > 50 * unit
    assert found[-1] < 0.05 * unit


@pytest.mark.parametrize("loss", LOSSES)
def test_the_ladder_is_proportional_to_the_curvature_of_the_loss(loss):
    """It is also inversely proportional to the unit of the labels."""
    window = window_for(loss)
    curvature = LOSSES[loss].curvature / LOSSES["logistic"].curvature / LOSSES[loss].unit(window.labels)
    found = sigmas(ModelOptions(loss=loss, intercept=0.0), window=window)
    np.testing.assert_allclose(found, np.multiply(sigmas(), curvature), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "others"),
    [
        (ModelOptions(), 1),
        (ModelOptions(loss=("logistic", "hinge"), ball=(1.0, 10.0, 100.0)), 6),
        (ModelOptions(p="auto"), 5),
        (ModelOptions(p=(2.0, 1.5), loss=("logistic", "hinge")), 4),
    ],
    ids=["one", "losses and balls", "p", "listed p and losses"],
)
def test_each_combination_has_the_whole_ladder(options, others):
    found = candidates(options)
    assert len(found) == others * LADDER_LENGTH == others * PgsCandidates().count(options)
    assert len({(one.loss, one.norm.p, one.own.ball, one.sigma) for one in found}) == len(found)


# Targets and lanes.


def test_lanes_are_ordered_by_candidate_and_then_by_target():
    options = ModelOptions(sigma=(1e-3, 1e-4), classes=(3.0, 7.0, 20.0))
    lanes = lanes_of(candidates(options), targets_of(options))
    assert [(lane.sigma, lane.target.positive) for lane in lanes] == [
        (1e-3, 0.0), (1e-3, 1.0), (1e-3, 2.0), (1e-4, 0.0), (1e-4, 1.0), (1e-4, 2.0),
    ]  # fmt: skip
    options = ModelOptions(sigma=1e-3, label=("a", "b"))
    labels = np.ones((ROWS, 2))
    lanes = lanes_of(candidates(options, window_of(labels=labels)), targets_of(options))
    assert [(lane.target.column, lane.target.positive) for lane in lanes] == [(0, None), (1, None)]
