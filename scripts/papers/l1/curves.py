"""Objective and density of each solver against the entries of the table that it reads, and against seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.papers.l1.problems import Problem
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import step
from streampgs.learn.norms import EUCLID, PNorm

POINTS_PER_DECADE = 8
_MOST_AT_ONCE = 1 << 22
"""Entries that are drawn at once: they are all that a call of the engine cannot be stopped in."""


@dataclass
class Curve:
    problem: str
    l1: float
    solver: str
    number: float | None = None
    """The size of the steps, or sigma; None: the solver has none."""
    accesses: list[int] = field(default_factory=list)
    """Entries of the table that were read."""
    seconds: list[float] = field(default_factory=list)
    objectives: list[float] = field(default_factory=list)
    densities: list[int] = field(default_factory=list)
    """Weights that are not zero."""

    def add(self, problem: Problem, weights: NDArray[np.float64], accesses: int, seconds: float) -> None:
        self.accesses.append(accesses)
        self.seconds.append(seconds)
        self.objectives.append(problem.objective(weights, self.l1))
        self.densities.append(int(np.count_nonzero(weights)))

    @property
    def last(self) -> float:
        return self.objectives[-1]


def spec(problem: Problem, learner: str, own: Any, norm: PNorm = EUCLID, sigma: float = 0.0) -> LaneSpec:
    return LaneSpec(learner, "logistic", 0.0, norm, sigma, Target("label"), 0, 1, 0.0, problem.layout, own)


@dataclass(frozen=True)
class Method:
    """How to run a solver on a problem."""

    name: str
    specs: Callable[[Problem, float, Sequence[float]], list[LaneSpec]]
    """By problem, l1 and the numbers to try."""
    access: str = "rows"
    numbers: Callable[[Problem, float], Sequence[float]] | None = None
    """The numbers to choose from; None: it has none."""
    draws: bool = True
    """Whether lines are drawn uniformly with replacement; else all lines come together, in random order."""


def curves(
    method: Method,
    problem: Problem,
    l1: float,
    numbers: Sequence[float],
    accesses: float,
    seconds: float,
    seed: int = 0,
) -> list[Curve]:
    """A curve for each number; all step on the same lines. They end after so many seconds or accesses."""
    specs = method.specs(problem, l1, numbers)
    known: Sequence[float | None] = numbers or [None]
    found = [Curve(problem.name, l1, method.name, number) for number in known]
    lanes = Lanes(specs, problem.features)
    spent, read = 0.0, 0
    if method.access == "columns":
        spent += _timed(lambda: problem.table.columns(problem.layout == "dense"))
    rng = np.random.default_rng(seed)
    for point in _points(problem, accesses):
        while read < point:
            order = _order(method, problem, rng, point - read)
            if method.access == "columns":
                spent += _timed(lambda order=order: _sweep(lanes, problem, order))  # type: ignore[misc]
                read = int(lanes.groups[0].state["entries"])
            else:
                rows = problem.visited_rows(order)
                spent += _timed(lambda rows=rows: _step(lanes, rows))  # type: ignore[misc]
                read += int((rows.stops - rows.starts).sum())
        for lane, curve in enumerate(found):
            curve.add(problem, lanes.weights(lane)[1:], read, spent)
        if spent > seconds:
            break
    return found


def _timed(work: Callable[[], object]) -> float:
    """Seconds of processor time, which depend little on other processes of the machine."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _step(lanes: Lanes, rows: Rows) -> None:
    for group in lanes.groups:
        step(group.learner, group.state, rows, 0, len(rows))


def _sweep(lanes: Lanes, problem: Problem, order: NDArray[np.int64]) -> None:
    for group in lanes.groups:
        learner: Any = group.learner
        group.state["epoch"][...] = 1  # no certificate, which reads the whole table
        learner.sweep(group.state, problem.table, order)


def _points(problem: Problem, accesses: float) -> list[float]:
    """The numbers of entries at which the model is judged."""
    first = min(problem.entries / 4.0, accesses)
    count = int(np.ceil(POINTS_PER_DECADE * np.log10(accesses / first))) + 1
    return [float(point) for point in np.geomspace(first, accesses, max(2, count))]


def _order(method: Method, problem: Problem, rng: np.random.Generator, entries: float) -> NDArray[np.int64]:
    """Lines in the order of their visits, with about so many entries."""
    lines = problem.rows if method.access == "rows" else problem.features
    if not method.draws:
        return rng.permutation(lines)
    return rng.integers(0, lines, max(1, int(min(entries, _MOST_AT_ONCE) * lines / problem.entries)))
