"""Estimators train with every solver: on rows in memory, and in runs where they need one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streampgs import StreamClassifier
from streampgs.base.errors import InvalidInput
from streampgs.options.solvers import SOLVERS

OWN: dict[str, dict[str, Any]] = {
    "entropic": {"ball": 10.0, "sigma": 1e-3},
    "truncated-gradient": {"l1": 1e-3, "step": 0.1},
    "coordinate": {"l1": 1e-3},
    "greedy-coordinate": {"l1": 1e-2},
    "kernel": {"kernel": "rbf", "supports": 100, "sigma": 1e-2},
    "smidas": {"l1": 1e-3, "step": 0.1},
    "gradient-descent": {"sigma": 1e-2},
    "sgd": {"sigma": 1e-2, "step": 0.1},
}


def table() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    chance = np.random.default_rng(0)
    matrix = chance.normal(size=(300, 6))
    return matrix, (matrix[:, 0] - matrix[:, 1] > 0.0).astype(int)


@pytest.mark.parametrize("solver", SOLVERS)
def test_each_solver_fits_rows_in_memory(solver: str) -> None:
    matrix, labels = table()
    model = StreamClassifier(solver=solver, **OWN.get(solver, {"sigma": 1e-2})).fit(matrix, labels)
    assert model.score(matrix, labels) > 0.93


@pytest.mark.parametrize("solver", ["coordinate", "l-bfgs", "kernel"])
def test_solvers_that_need_all_rows_refuse_partial_fit(solver: str) -> None:
    matrix, labels = table()
    model = StreamClassifier(solver=solver, **OWN.get(solver, {}))
    with pytest.raises(InvalidInput, match="partial_fit with solver"):
        model.partial_fit(matrix, labels, classes=[0, 1])


def test_an_option_of_another_solver_is_refused() -> None:
    with pytest.raises(ValueError, match="step"):
        StreamClassifier(step=0.1).fit(*table())
