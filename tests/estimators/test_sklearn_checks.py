"""The checks that scikit-learn has for estimators, without a list of expected failures."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from streampgs import StreamClassifier, StreamRegressor

ESTIMATORS = [
    StreamClassifier(),
    StreamClassifier(loss="hinge"),
    StreamRegressor(),
    StreamRegressor(loss="huber"),
]


@pytest.mark.filterwarnings("ignore")  # checks give NaN on purpose
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
