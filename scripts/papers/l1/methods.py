"""The solvers of the figures, and the step sizes of the paper's Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scripts.papers.l1.curves import Method, spec
from scripts.papers.l1.problems import Problem
from streampgs.learn.composite import CompositeOptions
from streampgs.learn.coordinate import CoordinateOptions
from streampgs.learn.fixed_steps import L1StepOptions, SmidasOptions, norm_for
from streampgs.learn.lane_spec import LaneSpec

_CURVATURE = 0.25  # of the logistic loss
_STEPS = [10.0 ** (power / 2.0) for power in range(-10, 5)]

TABLE_1 = {
    ("duke", 1e-6): {"SMIDAS": 50.0, "TRUNCGRAD": 1e-1},
    ("duke", 1e-2): {"SMIDAS": 1e-1, "TRUNCGRAD": 1e-2},
    ("arcene", 1e-6): {"SMIDAS": 50.0, "TRUNCGRAD": 1e-1},
    ("arcene", 1e-2): {"SMIDAS": 1e-2, "TRUNCGRAD": 5e-5},
    ("magic04s", 1e-6): {"SMIDAS": 1e-2, "TRUNCGRAD": 5e-4},
    ("magic04s", 1e-2): {"SMIDAS": 1e-4, "TRUNCGRAD": 5e-5},
    ("magic04d", 1e-6): {"SMIDAS": 5e-3, "TRUNCGRAD": 1e-4},
    ("magic04d", 1e-2): {"SMIDAS": 1e-3, "TRUNCGRAD": 1e-5},
}


def _steps(problem: Problem, l1: float) -> Sequence[float]:
    return _STEPS


def _truncated(problem: Problem, l1: float, steps: Sequence[float]) -> list[LaneSpec]:
    return [spec(problem, "truncated-gradient", L1StepOptions(l1, step)) for step in steps]


def _smidas(problem: Problem, l1: float, steps: Sequence[float]) -> list[LaneSpec]:
    norm = norm_for(problem.features)
    return [spec(problem, "smidas", SmidasOptions(l1, step, shrink_every=1), norm) for step in steps]


def _by_columns(learner: str, beta: str) -> Any:
    def specs(problem: Problem, l1: float, steps: Sequence[float]) -> list[LaneSpec]:
        return [spec(problem, learner, CoordinateOptions(l1, beta))]

    return specs


def _sigmas(problem: Problem, l1: float) -> Sequence[float]:
    """As shares of the curvature."""
    return [_CURVATURE * problem.mean_squared_norm * 10.0 ** (-power / 2.0) for power in range(2, 20)]


def _averaging(problem: Problem, l1: float, sigmas: Sequence[float]) -> list[LaneSpec]:
    return [
        spec(
            problem,
            "pgs-l1",
            CompositeOptions(_CURVATURE * problem.mean_squared_norm / sigma, None, "suffix", l1=l1),
            sigma=sigma,
        )
        for sigma in sigmas
    ]


METHODS = {
    method.name: method
    for method in [
        Method("SCD", _by_columns("coordinate", "global"), "columns"),
        Method("GCD", _by_columns("greedy-coordinate", "global"), "columns", draws=False),
        Method("SMIDAS", _smidas, numbers=_steps),
        Method("TRUNCGRAD", _truncated, numbers=_steps),
        Method("dual averaging", _averaging, numbers=_sigmas),
        Method("coordinate", _by_columns("coordinate", "column"), "columns", draws=False),
    ]
}
