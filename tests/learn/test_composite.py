"""PGS with l1 reaches the optimum of its problem, and its sums stay exact where weights are zero for a long time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

from streampgs.base.errors import OptionError
from streampgs.learn.composite import CompositeCandidates, CompositeOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.learner import StepChange
from streampgs.learn.norms import EUCLID
from streampgs.options.commands import ModelOptions

from .plain_composite import PlainComposite
from .windows import Training, window

ROWS, FEATURES = 300, 12


def lane(
    l1: float, *, loss: str = "logistic", sigma: float = 0.05, t0: float = 50.0, returns: str = "suffix", intercept=0.0
) -> LaneSpec:
    own = CompositeOptions(t0, None, returns, l1=l1)
    return LaneSpec("pgs-l1", loss, 0.0, EUCLID, sigma, Target("label"), 0, 1, intercept, "sparse", own)


def test_the_optimum_of_the_elastic_net_is_that_of_scikit_learn():
    rows, sigma, l1 = window(ROWS, FEATURES, "sparse", classes=False), 0.05, 0.08
    x = np.array([row.x[1:] for row in rows.plain_rows(FEATURES, 0.0)])

    def objective(weights):
        squares = np.mean((x @ weights - rows.labels) ** 2)
        return squares + 0.5 * sigma * weights @ weights + l1 * np.abs(weights).sum()

    alpha = 0.5 * l1 + 0.5 * sigma  # scikit-learn halves the squares
    known = ElasticNet(alpha=alpha, l1_ratio=0.5 * l1 / alpha, fit_intercept=False, tol=1e-12, max_iter=100_000)
    best = known.fit(x, rows.labels).coef_
    training = Training([lane(l1, loss="squared", sigma=sigma, t0=400.0)], FEATURES)
    visits = np.concatenate([np.random.default_rng(k).permutation(ROWS) for k in range(6000)])
    training.advance(rows.visited(visits), 0, len(visits))
    found = training.weights()[1:]
    assert 0 < np.count_nonzero(best) < FEATURES
    np.testing.assert_array_equal(found != 0.0, best != 0.0)
    assert objective(best) <= objective(found) <= objective(best) * (1.0 + 1e-6)


@pytest.mark.parametrize("returns", ["suffix", "average"])
@pytest.mark.parametrize("t0", [0.5, 3e6])
def test_sums_are_exact_for_features_that_come_seldom(returns: str, t0: float):
    """Weights become zero between two visits, also long before the second one."""
    rows = window(1500, 150, "sparse")
    spec = lane(3e-3, sigma=0.01 if t0 < 1.0 else 1e-6, t0=t0, intercept=0.1)
    spec = replace(spec, own=replace(spec.own, returns=returns))
    training, twin = Training([spec], 150), PlainComposite(spec, 150)
    training.advance(rows, 0, 1500)
    for row in rows.plain_rows(150, 0.1):
        twin.step([row])
    np.testing.assert_allclose(training.weights(), twin.average(), rtol=1e-8, atol=1e-12)
    became_zero = (np.array(twin.iterates[:-1]) != 0.0) & (np.array(twin.iterates[1:]) == 0.0)
    assert became_zero.sum() > 150


def test_other_steps_leave_the_weights_as_they_are():
    """When a table grows, λ, its divisor and the threshold are multiplied by the same number."""
    rows, specs = window(ROWS, FEATURES, "sparse"), [lane(0.02, returns="last"), lane(0.005, returns="last")]
    training = Training(specs, FEATURES)
    training.advance(rows, 0, 200)
    before = [training.weights(number) for number in range(2)]
    training.change_steps(StepChange(0.3, 1.0, 2.0))
    for number in range(2):
        np.testing.assert_allclose(training.weights(number), before[number], rtol=1e-12, atol=1e-15)
    assert all(spec.own.l1_steps != 0.0 for spec in training.specs)
    training.advance(rows, 200, ROWS)
    assert not np.array_equal(training.weights(0), before[0])


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"p": 1.5}, "--p out"),
        ({"p": "auto"}, "--p out"),
        ({"ball": 3.0}, "--ball out"),
        ({"returns": "random"}, "last"),
    ],
)
def test_what_would_not_be_exact_is_refused(options, remedy):
    with pytest.raises(OptionError) as raised:
        ModelOptions(l1=1e-3, **options)
    assert "--l1" in raised.value.found
    assert remedy in raised.value.remedy
    ModelOptions(l1=None, **options)


def test_sigma_is_searched_for_with_one_l1_only():
    """With several, all models are kept: they are a path."""
    candidates = CompositeCandidates()
    one, path = ModelOptions(l1=1e-3), ModelOptions(l1=(1e-3, 1e-2))
    assert candidates.searches(one)
    assert candidates.count(one) > 1
    assert not candidates.searches(path)
    assert candidates.count(path) == 2
