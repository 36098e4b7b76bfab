"""SMIDAS keeps the numbers of its link in range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streampgs.learn.fixed_steps import SmidasOptions, norm_for
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import PNorm

from .plain_smidas import PlainSmidas
from .windows import Training, window

ROWS, FEATURES = 400, 12


def lane(
    l1: float, step: float, every: int = 1, layout: str = "dense", features: int = FEATURES, loss: str = "logistic"
) -> LaneSpec:
    own = SmidasOptions(l1, step, every)
    return LaneSpec("smidas", loss, 0.0, norm_for(features), 0.0, Target("label"), 0, 1, 0.5, layout, own)


@pytest.mark.parametrize(("features", "q"), [(1, 2), (2, 2), (12, 5), (1010, 14), (7129, 18), (10_000, 19)])
def test_q_is_twice_the_logarithm_of_the_number_of_features_rounded_up(features: int, q: int) -> None:
    assert norm_for(features).q == q


@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("every", [1, 7])
def test_numbers_of_any_size_and_many_features_agree_with_the_slow_twin(layout: str, every: int) -> None:
    """Features whose values are a million times as large as others, and more of them than powers are taken at once."""
    features = 1300
    rows = window(150, features, layout)
    sizes = 10.0 ** np.random.default_rng(1).uniform(-3.0, 3.0, features)
    places = rows.indices if layout == "sparse" else np.tile(np.arange(features), len(rows))
    rows = replace(rows, values=(rows.values * sizes[places]).astype(np.float32))
    specs = [lane(1e-3, step, every, layout, features) for step in (1e-8, 1e-4, 1.0)]
    training, twins = Training(specs, features), [PlainSmidas(spec, features) for spec in specs]
    plain = rows.plain_rows(features, 0.5)
    for first in range(0, len(rows), 10):
        training.advance(rows, first, first + 10)
        for number, twin in enumerate(twins):
            for row in plain[first : first + 10]:
                twin.step([row])
            np.testing.assert_allclose(training.weights(number), twin.weights, rtol=1e-6, atol=1e-12)


def test_shrinking_often_and_at_once_differ_little() -> None:
    rows = window(ROWS, FEATURES, "sparse")
    often, seldom = (Training([lane(0.02, 0.002, every, "sparse")], FEATURES) for every in (1, 10))
    for training in (often, seldom):
        training.advance(rows, 0, ROWS)
    difference = np.abs(often.weights() - seldom.weights()).max()
    assert 0.0 < difference < 0.02 * np.abs(often.weights()).max()


def test_a_norm_whose_power_is_not_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="whole"):
        Training([replace(lane(0.1, 0.1), norm=PNorm(1.7))], FEATURES)
