"""The promises of the theory of PGS, measured: the rate, and the stop at a certified gap."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import streampgs
from streampgs.learn.pgs_options import automatic_t0
from streampgs.losses import LOSSES
from streampgs.packing.synth import write_dataset

from .optimum import Problem
from .plain_pgs import norm
from .windows import Window, changed, settings, started, window

ROWS, FEATURES = 30, 3


def draws(rows: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, rows]).integers(0, rows, count)


def with_automatic_t0(problem: Problem) -> Problem:
    spec = problem.settings
    length = float(np.mean([norm(x, spec.norm.q) ** 2 for x in problem.x]))
    return replace(problem, settings=changed(spec, t0=automatic_t0(LOSSES[spec.loss], spec.sigma, length)))


@cache
def solved(loss: str, p: float, number: int) -> tuple[Window, Problem, float]:
    rows = window(ROWS, FEATURES, classes=loss != "squared", seed=number)
    problem = with_automatic_t0(Problem.of(settings(loss, p, returns="average", sigma=0.3), rows, FEATURES))
    return rows, problem, problem.optimum()[1]


def excesses(loss: str, p: float, number: int, seed: int, looks: list[int]) -> list[float]:
    """F(average) − min F of one problem after so many steps, with independent draws."""
    rows, problem, least = solved(loss, p, number)
    solver, drawn, step, found = started(problem.settings, FEATURES), rows.visited(draws(ROWS, looks[-1], seed)), 0, []
    for look in looks:
        solver.advance(drawn, step, look)
        found.append(problem.value(solver.weights()) - least)
        step = look
    return found


@pytest.mark.parametrize("p", [2.0, 1.8, 1.5])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_the_excess_of_the_average_falls_with_the_inverse_of_the_steps(loss, p):
    looks = [1 << power for power in range(10, 16)]
    found = np.array([excesses(loss, p, problem, seed, looks) for problem in (1, 2, 3) for seed in range(8)])
    assert (found > -1e-7).all()
    slope, _ = np.polyfit(np.log(looks), np.log(found.mean(axis=0)), 1)
    assert -1.2 <= slope <= -0.8


def test_training_stops_where_the_certificate_first_is_small_enough(tmp_path: Path) -> None:
    """It is looked at after each window: of 2,000 rows here."""
    table, target = tmp_path / "table", 0.0006
    write_dataset(table, rows=2000, kind="gaussian", shards=1, seed=3, features=4)

    def trained(name: str, **limits: float) -> streampgs.Report:
        options = {"sigma": 0.1, "intercept": 0.0, **limits}
        return streampgs.train(table, run=tmp_path / name, progress=False, **options)

    report = trained("run", target_gap=target)
    assert report.stopped_by == "target-gap"
    assert report.gap is not None
    assert report.gap <= target
    assert report.rows > 2000
    before = trained("before", rows=report.rows - 2000).gap
    assert before is not None
    assert before > target
