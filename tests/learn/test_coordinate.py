"""The optimum of coordinate descent agrees with that of other libraries, and Theorem 1 of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streampgs.learn.coordinate import CoordinateOptions
from streampgs.learn.held_rows import held_rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID
from tests.learn.plain_coordinate import soft
from tests.learn.plain_pgs import loss_value
from tests.learn.windows import Training, Window, window

FEATURES = 30


def spec_of(loss: str, l1: float, layout: str, sigma: float = 0.0, intercept: float = 0.0, **own: Any) -> LaneSpec:
    options = CoordinateOptions(l1, **own)
    return LaneSpec("coordinate", loss, 0.0, EUCLID, sigma, Target("y"), 0, 1, intercept, layout, options)


def trained(specs: list[LaneSpec], rows: Window, epochs: int = 100, features: int = FEATURES) -> Training:
    training = Training(specs, features)
    train(training, rows, epochs)
    return training


def train(training: Training, rows: Window, epochs: int = 100) -> None:
    first = int(training.state["epoch"]) + 1
    for epoch in range(first, first + epochs):
        training.engine.advance(rows, 0, len(rows))
        training.engine.reach_epoch(epoch)


def dense_rows(rows: Window, features: int = FEATURES) -> NDArray[np.float64]:
    return np.array([row.x[1:] for row in rows.plain_rows(features, 0.0)])


def objective(spec: LaneSpec, rows: Window, w: NDArray[np.float64], constant: float, features: int = FEATURES) -> float:
    """The problem as the documentation states it."""
    weights = rows.weights if rows.weights.size else np.ones(len(rows))
    scores = dense_rows(rows, features) @ w + constant
    losses = [loss_value(spec.loss, spec.shape, s, y) for s, y in zip(scores, rows.labels, strict=True)]
    return float(weights @ losses / weights.sum() + spec.own.l1 * np.abs(w).sum() + 0.5 * spec.sigma * w @ w)


def of_others(spec: LaneSpec, rows: Window) -> tuple[NDArray[np.float64], float]:
    """The weights and the constant that scikit-learn finds. Its squared loss has a factor ½, and it takes sums or means."""
    from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
    from sklearn.svm import LinearSVC

    weights = rows.weights if rows.weights.size else np.ones(len(rows))
    x, total, constant = dense_rows(rows), float(weights.sum()), spec.intercept > 0.0
    l1, sigma = spec.own.l1, spec.sigma
    if spec.loss == "squared":
        both = l1 + sigma
        own = {"fit_intercept": constant, "tol": 1e-12, "max_iter": 100_000}
        model = ElasticNet(alpha=both / 2, l1_ratio=l1 / both, **own) if sigma else Lasso(alpha=l1 / 2, **own)
    elif spec.loss == "logistic":
        ratio = l1 / (l1 + sigma)
        model = LogisticRegression(
            l1_ratio=ratio, solver="saga", C=1 / (total * (l1 + sigma)), tol=1e-9, max_iter=100_000,
            fit_intercept=constant,
        )  # fmt: skip
    else:
        model = LinearSVC(
            penalty="l1", dual=False, C=1 / (total * l1), tol=1e-9, max_iter=1_000_000, fit_intercept=False
        )
    model.fit(x, rows.labels, sample_weight=weights)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]) if constant else 0.0


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "l1", "sigma", "intercept"),
    [
        ("squared", 0.05, 0.0, 1.0),
        ("squared", 0.3, 0.0, 0.0),
        ("squared", 0.05, 0.1, 1.0),
        ("logistic", 0.02, 0.0, 0.0),
        ("logistic", 0.01, 0.01, 1.0),
        ("squared-hinge", 0.03, 0.0, 0.0),
    ],
)
def test_the_optimum_is_that_of_scikit_learn(
    loss: str, l1: float, sigma: float, intercept: float, weighted: bool, layout: str
) -> None:
    spec = spec_of(loss, l1, layout, sigma, intercept)
    rows = window(120, FEATURES, layout, classes=loss != "squared", weighted=weighted)
    training = trained([spec], rows)
    own = objective(spec, rows, *training.predictor(0))
    others = objective(spec, rows, *of_others(spec, rows))
    assert own == pytest.approx(others, rel=1e-6)
    assert own <= others * (1.0 + 1e-9)
    assert training.gap(0) <= 1e-8
    assert training.state["objective"][0] == pytest.approx(own, rel=1e-9)


def test_rows_that_come_later_belong_to_the_problem() -> None:
    rows = window(150, FEATURES, "sparse", weighted=True)
    early, whole = rows.visited(np.arange(100)), trained([spec_of("logistic", 0.01, "sparse", intercept=1.0)], rows)
    grown = trained([whole.settings], early)
    assert grown.gap(0) < 1e-8
    train(grown, rows, 1)
    assert grown.gap(0) > 1e-8, "the bound of the earlier problem does not count"
    train(grown, rows)
    assert grown.state["objective"][0] == pytest.approx(whole.state["objective"][0], rel=1e-9)
    np.testing.assert_allclose(grown.weights(0), whole.weights(0), rtol=1e-5, atol=1e-7)


def test_rows_that_are_held_out_take_no_part_until_they_are_released() -> None:
    rows = window(300, FEATURES, "sparse", weighted=True)
    spec = spec_of("logistic", 0.01, "sparse", intercept=1.0, holds_out=True)
    alone = replace(spec, own=replace(spec.own, holds_out=False))
    training, held = trained([spec], rows), held_rows(spec.seed, rows)
    assert 15 <= held.sum() <= 50
    others = trained([alone], rows.visited(np.flatnonzero(~held)))
    np.testing.assert_allclose(training.weights(0), others.weights(0), rtol=1e-4, atol=1e-6)
    assert training.lanes.hold_out()
    training.lanes.release_rows()
    assert not training.lanes.hold_out()
    train(training, rows)
    np.testing.assert_allclose(training.weights(0), trained([alone], rows).weights(0), rtol=1e-4, atol=1e-6)


# Theorem 1: E[P(w_T)] - P(w*) ≤ d·(β/2·‖w*‖² + P(0)) / (T + 1), for columns that are drawn uniformly and independently.


def visit(training: Training, rows: Window, columns: NDArray[np.int64]) -> None:
    """A sweep over these columns, which may come several times."""
    learner: Any = training.groups[0].learner
    learner.sweep(training.state, rows.table, columns)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("l1", [0.01, 0.2])
def test_uniform_draws_keep_the_bound_of_theorem_1(loss: str, l1: float) -> None:
    features, runs, steps = 8, 60, (10, 40, 160)
    rows = window(40, features, "dense", classes=loss == "logistic")
    spec = spec_of(loss, l1, "dense", beta="global")
    best = trained([replace(spec, own=replace(spec.own, beta="column"))], rows, 300, features)
    optimum, w = float(best.state["objective"][0]), best.weights(0)[1:]
    at_zero = objective(spec, rows, np.zeros(features), 0.0, features)
    beta = (2.0 if loss == "squared" else 0.25) * float(np.abs(rows.values).max()) ** 2
    excess = np.zeros(len(steps))
    for run in range(runs):
        training = Training([spec], features)
        draws = np.random.default_rng([run, 7]).integers(0, features, max(steps))
        for number, (first, stop) in enumerate(zip((0, *steps), steps, strict=False)):
            visit(training, rows, draws[first:stop])
            excess[number] += (float(training.state["objective"][0]) - optimum) / runs
    bounds = features * (0.5 * beta * float(w @ w) + at_zero) / (np.array(steps) + 1.0)
    assert (excess >= -1e-12).all()
    assert (excess <= bounds).all()
    assert excess[-1] < 0.5 * excess[0], "no progress, so the test shows nothing"


def test_a_uniform_draw_is_a_step_of_the_paper() -> None:
    """Algorithm 1, with the bound of all second derivatives."""
    rows, chosen = window(30, 6, "dense", classes=False), np.array([3, 0, 3, 5, 1, 0])
    spec = spec_of("squared", 0.1, "dense", beta="global")
    training = Training([spec], 6)
    visit(training, rows, chosen)
    w, x, beta = np.zeros(6), dense_rows(rows, 6), 2.0 * float(np.abs(rows.values).max()) ** 2
    for j in chosen:
        slope = float(2.0 * (x @ w - rows.labels) @ x[:, j]) / 30
        w[j] = soft(w[j] - slope / beta, 0.1 / beta)
    np.testing.assert_allclose(training.weights(0)[1:], w, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_labels_and_offsets_far_from_zero_hide_no_gap(loss: str) -> None:
    rows = window(120, FEATURES, "dense", classes=False)
    spec = replace(spec_of(loss, 0.05, "dense", intercept=1.0), shape=1.0)
    near = trained([spec], rows, 25)
    moved = replace(rows, labels=rows.labels + 3e8, offsets=np.full(len(rows), 1e8))
    far = trained([replace(spec, base=2e8)], moved, 25)
    assert far.gap(0) <= 1e-9
    assert far.state["objective"][0] == pytest.approx(near.state["objective"][0], rel=1e-6)
