"""The optimum of coordinate descent agrees with that of other libraries, and Theorem 1 of the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streampgs.base.errors import OptionError, RunError
from streampgs.learn import lanes
from streampgs.learn.coordinate_options import CoordinateOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import EUCLID
from streampgs.order.columns import ColumnVisit
from tests.learn.columns import columns_of, epoch_of_columns
from tests.learn.plain_coordinate import soft
from tests.learn.plain_pgs import loss_value
from tests.learn.windows import Training, Window, window

FEATURES = 30


def spec_of(loss: str, l1: float, layout: str, sigma: float = 0.0, intercept: float = 0.0, **own: Any) -> LaneSpec:
    options = CoordinateOptions(l1, **own)
    return LaneSpec("coordinate", loss, 0.0, EUCLID, sigma, Target("y"), 0, 1, intercept, layout, options)


def started(specs: list[LaneSpec], rows: Window, features: int = FEATURES) -> Training:
    training = Training(specs, features)
    training.engine.access = "columns"
    training.advance(rows, 0, len(rows))
    return training


def train(training: Training, rows: Window, layout: str, epochs: int = 20, blocks: int = 1, first: int = 1) -> None:
    columns = columns_of(rows, layout == "dense")
    for epoch in range(first, first + epochs):
        for one in epoch_of_columns(columns, epoch, blocks):
            training.advance(one, 0, len(one.starts))


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
    training = started([spec], rows)
    train(training, rows, layout)
    own = objective(spec, rows, *training.predictor(0))
    others = objective(spec, rows, *of_others(spec, rows))
    assert own == pytest.approx(others, rel=1e-6)
    assert own <= others * (1.0 + 1e-9)
    assert training.gap(0) <= 1e-8
    assert training.state["objective"][0] == pytest.approx(own, rel=1e-9)


def test_the_optimum_is_that_of_celer() -> None:
    celer = pytest.importorskip("celer")
    rows = window(60, FEATURES, "dense", classes=False)
    spec = spec_of("squared", 0.1, "dense")
    training = started([spec], rows)
    train(training, rows, "dense")
    model = celer.Lasso(alpha=0.05, tol=1e-12, fit_intercept=False).fit(dense_rows(rows), rows.labels)
    assert objective(spec, rows, *training.predictor(0)) == pytest.approx(
        objective(spec, rows, model.coef_, 0.0), rel=1e-9
    )


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_blocks_of_columns_lead_to_the_same_optimum(loss: str) -> None:
    """Every third epoch only measures, so that all partial derivatives are of the same scores."""
    rows, spec = (
        window(100, FEATURES, "sparse", classes=loss != "squared"),
        spec_of(loss, 0.02, "sparse", intercept=1.0),
    )
    whole, cut = started([spec], rows), started([spec], rows)
    train(whole, rows, "sparse")
    train(cut, rows, "sparse", epochs=2, blocks=4)
    assert cut.certificate(0) is None
    train(cut, rows, "sparse", epochs=200, blocks=4, first=3)
    assert cut.state["objective"][0] == pytest.approx(whole.state["objective"][0], rel=1e-7)
    assert cut.gap(0) <= 1e-6
    assert cut.gap(0) >= cut.state["objective"][0] - whole.state["objective"][0] - 1e-12


def test_rows_that_come_later_belong_to_the_problem() -> None:
    rows = window(150, FEATURES, "sparse", weighted=True)
    early, whole = rows.visited(np.arange(100)), started([spec_of("logistic", 0.01, "sparse", intercept=1.0)], rows)
    grown = started([whole.settings], early)
    train(grown, early, "sparse")
    assert grown.gap(0) < 1e-8
    grown.advance(rows.visited(np.arange(100, 150)), 0, 50)
    assert grown.certificate(0) is None, "nothing is known about the new problem yet"
    for training in (grown, whole):
        train(training, rows, "sparse", first=30)
    assert grown.state["objective"][0] == pytest.approx(whole.state["objective"][0], rel=1e-9)
    np.testing.assert_allclose(grown.weights(0), whole.weights(0), rtol=1e-5, atol=1e-7)


def test_rows_that_are_held_out_take_no_part_until_they_are_released() -> None:
    rows = window(300, FEATURES, "sparse", weighted=True)
    spec = spec_of("logistic", 0.01, "sparse", intercept=1.0, holds_out=True)
    training = started([spec], rows)
    train(training, rows, "sparse")
    held = training.state["row_weights"][:300] < 0.0
    assert 15 <= held.sum() <= 50
    alone = started([replace(spec, own=replace(spec.own, holds_out=False))], rows.visited(np.flatnonzero(~held)))
    train(alone, rows.visited(np.flatnonzero(~held)), "sparse")
    np.testing.assert_allclose(training.weights(0), alone.weights(0), rtol=1e-4, atol=1e-6)
    w, constant = training.predictor(0)
    scores = dense_rows(rows)[held] @ w + constant
    losses = np.logaddexp(0.0, -rows.labels[held] * scores)
    assert lanes.held_out_loss(training.lanes, 0) == pytest.approx(
        np.average(losses, weights=rows.weights[held]), rel=1e-9
    )
    assert lanes.holds_out(training.lanes)
    before = lanes.held_out_loss(training.lanes, 0)
    lanes.release_rows(training.lanes)
    assert not lanes.holds_out(training.lanes)
    train(training, rows, "sparse", first=40)
    assert lanes.held_out_loss(training.lanes, 0) == before, "later they are trained on"
    everything = started([replace(spec, own=replace(spec.own, holds_out=False))], rows)
    train(everything, rows, "sparse")
    np.testing.assert_allclose(training.weights(0), everything.weights(0), rtol=1e-4, atol=1e-6)


def test_columns_of_other_rows_are_refused() -> None:
    few, many = window(20, FEATURES, "sparse"), window(40, FEATURES, "sparse")
    training = started([spec_of("logistic", 0.01, "sparse")], few)
    with pytest.raises(RunError, match="the model has 20 rows"):
        train(training, many, "sparse")


def test_greedy_descent_needs_all_columns_together() -> None:
    rows = window(20, FEATURES, "sparse")
    training = started([replace(spec_of("logistic", 0.01, "sparse"), learner="greedy-coordinate")], rows)
    with pytest.raises(OptionError) as raised:
        train(training, rows, "sparse", blocks=2)
    assert "--memory" in raised.value.remedy


# Theorem 1: E[P(w_T)] - P(w*) ≤ d·(β/2·‖w*‖² + P(0)) / (T + 1), for columns that are drawn uniformly and independently.


def drawn(rows: Window, chosen: NDArray[np.int64]) -> Any:
    """A window of these columns, which may come several times."""
    columns = columns_of(rows, True)
    (one,) = epoch_of_columns(columns, 1, sweeps=1)
    place = {int(column): n for n, column in enumerate(one.columns)}
    order = np.array([place[int(column)] for column in chosen])
    one.starts, one.stops, one.columns = one.starts[order], one.stops[order], one.columns[order]
    one.visit = ColumnVisit(1, 0, 1, 0, 1)
    return one


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("l1", [0.01, 0.2])
def test_uniform_draws_keep_the_bound_of_theorem_1(loss: str, l1: float) -> None:
    features, runs, steps = 8, 60, (10, 40, 160)
    rows = window(40, features, "dense", classes=loss == "logistic")
    spec = spec_of(loss, l1, "dense", beta="global")
    best = started([replace(spec, own=replace(spec.own, beta="column"))], rows, features)
    train(best, rows, "dense", epochs=60)
    optimum, w = float(best.state["objective"][0]), best.weights(0)[1:]
    at_zero = objective(spec, rows, np.zeros(features), 0.0, features)
    beta = (2.0 if loss == "squared" else 0.25) * float(np.abs(rows.values).max()) ** 2
    excess = np.zeros(len(steps))
    for run in range(runs):
        training, draws = (
            started([spec], rows, features),
            np.random.default_rng([run, 7]).integers(0, features, max(steps)),
        )
        for number, (first, stop) in enumerate(zip((0, *steps), steps, strict=False)):
            one = drawn(rows, draws[first:stop])
            training.advance(one, 0, stop - first)
            excess[number] += (float(training.state["objective"][0]) - optimum) / runs
    bounds = features * (0.5 * beta * float(w @ w) + at_zero) / (np.array(steps) + 1.0)
    assert (excess >= -1e-12).all()
    assert (excess <= bounds).all()
    assert excess[-1] < 0.5 * excess[0], "no progress, so the test shows nothing"


def test_a_uniform_draw_is_a_step_of_the_paper() -> None:
    """Algorithm 1, with the bound of all second derivatives."""
    rows, chosen = window(30, 6, "dense", classes=False), np.array([3, 0, 3, 5, 1, 0])
    spec = spec_of("squared", 0.1, "dense", beta="global")
    training = started([spec], rows, 6)
    training.advance(drawn(rows, chosen), 0, len(chosen))
    w, x, beta = np.zeros(6), dense_rows(rows, 6), 2.0 * float(np.abs(rows.values).max()) ** 2
    for j in chosen:
        slope = float(2.0 * (x @ w - rows.labels) @ x[:, j]) / 30
        w[j] = soft(w[j] - slope / beta, 0.1 / beta)
    np.testing.assert_allclose(training.weights(0)[1:], w, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_labels_and_offsets_far_from_zero_hide_no_gap(loss: str) -> None:
    rows = window(120, FEATURES, "dense", classes=False)
    spec = replace(spec_of(loss, 0.05, "dense", intercept=1.0), shape=1.0)
    near = started([spec], rows)
    train(near, rows, "dense", 5)
    moved = replace(rows, labels=rows.labels + 3e8, offsets=np.full(len(rows), 1e8))
    far = started([replace(spec, base=2e8)], moved)
    train(far, moved, "dense", 5)
    assert far.gap(0) <= 1e-9
    assert far.state["objective"][0] == pytest.approx(near.state["objective"][0], rel=1e-6)


def test_a_column_of_a_feature_that_the_model_does_not_have_is_refused() -> None:
    rows = window(20, FEATURES, "sparse")
    training = started([spec_of("logistic", 0.05, "sparse")], rows)
    (one, *_) = epoch_of_columns(columns_of(rows))
    one.columns += FEATURES
    with pytest.raises(RunError, match=f"{FEATURES} features"):
        training.advance(one, 0, len(one.starts))
