"""Training runs over rows in memory that stop again and again to be judged.

Seconds are those of the processor in the one thread that trains, so that other processes of the machine hardly change them.
The clock does not run while a model is judged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scripts.bench.bare_loop import lanes_for
from scripts.papers.pgs.rows import Floats, Numbers, Rows
from streampgs.engine.engine import Engine
from streampgs.options.commands import ModelOptions

_CALL_ROWS = 1 << 16
_SAMPLE_ROWS = 1 << 14

Look = tuple[int, float, list[float]]
"""Row visits, seconds of training, and the figure of each model."""
Judge = Callable[[Floats, float], float]
"""A figure of weights and the constant of the intercept."""


@dataclass(frozen=True)
class Method:
    """A way to train with PGS."""

    loss: str = "logistic"
    p: float = 2.0
    batch: int = 1
    paper: bool = False
    """Figure 1 of the paper as it stands: t0 = 1, the last iterate, independent draws, no intercept."""
    changes: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        loss = {"logistic": "logistic", "squared": "least squares"}[self.loss]
        return f"{loss}, p = {self.p:g}, k = {self.batch}" + (", as printed" if self.paper else "")

    def options(self, sigmas: tuple[float, ...], seed: int) -> ModelOptions:
        chosen = ModelOptions(loss=self.loss, p=self.p, batch=self.batch, sigma=sigmas, seed=seed)
        if self.paper:
            chosen = replace(chosen, t0=1.0, returns="last", intercept=0.0)
        return replace(chosen, **self.changes)


def unit_of(rows: Rows, method: Method, used: int) -> float:
    """curvature · mean ‖x‖² / rows, the unit in which sigma is searched."""
    from streampgs.losses import LOSSES

    values, bounds = rows.values[: rows.bounds[min(len(rows), _SAMPLE_ROWS)]], min(len(rows), _SAMPLE_ROWS)
    return LOSSES[method.loss].curvature * float(np.sum(values.astype(np.float64) ** 2)) / bounds / used


def looks_until(first: int, last: int, growth: float, multiple: int = 1) -> list[int]:
    """Counts of visits in a geometric sequence, each a multiple of the rows of a step."""
    count = max(1, math.ceil(math.log(last / first) / math.log(growth)))
    visits = {first * (last / first) ** (place / count) for place in range(count + 1)}
    return sorted({max(1, round(each / multiple)) * multiple for each in visits})


def visits(subset: Numbers, seed: int, independent: bool) -> Iterator[Numbers]:
    """Endlessly: independent draws, or epoch after epoch in a new order. The first epoch has that of `subset`, which is
    random: permuting all rows before the first step would cost more than the steps if the rows are many."""
    random = np.random.default_rng([seed, 1])
    order = subset
    while True:
        if independent:
            yield subset[random.integers(0, len(subset), _CALL_ROWS)]
            continue
        for first in range(0, len(order), _CALL_ROWS):
            yield order[first : first + _CALL_ROWS]
        order = random.permutation(subset)


def pieces(parts: Iterator[Numbers], looks: list[int]) -> Iterator[tuple[list[Numbers], int]]:
    """The visits between two looks, and the visits so far."""
    left = np.empty(0, np.int64)
    done = 0
    for look in looks:
        taken = []
        while done < look:
            if not left.size:
                left = next(parts)
            taken.append(left[: look - done])
            left = left[look - done :]
            done += len(taken[-1])
        yield taken, look


def climb(
    rows: Rows,
    subset: Numbers,
    method: Method,
    sigmas: tuple[float, ...],
    looks: list[int],
    judge: Judge,
    seed: int,
    enough: Callable[[list[float]], bool] = lambda figures: False,
) -> list[Look]:
    """Train a lane for each sigma on these rows until the last look, or until it is enough."""
    options = method.options(sigmas, seed)
    sample = rows.visited(subset[:_SAMPLE_ROWS])
    sample.features = rows.features
    lanes = lanes_for(options, sample, "sparse" if rows.sparse else "dense")
    Engine(lanes_for(options, sample, "sparse" if rows.sparse else "dense")).advance(sample, 0, 1)  # load the loops
    engine = Engine(lanes)
    constants = [spec.intercept for spec in lanes.specs]
    parts = visits(subset, seed, method.paper)
    found: list[Look] = []
    seconds, began = 0.0, time.thread_time()
    for taken, look in pieces(parts, looks):
        for numbers in _whole_steps(taken, method.batch):
            engine.advance(rows.visited(numbers), 0, len(numbers))
        seconds += time.thread_time() - began
        figures = [judge(lanes.weights(lane), constants[lane]) for lane in range(len(lanes))]
        found.append((look, seconds, figures))
        if enough(figures):
            break
        began = time.thread_time()
    return found


def _whole_steps(taken: list[Numbers], batch: int) -> list[Numbers]:
    """The rows of a step must be in one window."""
    return taken if batch == 1 else [np.concatenate(taken)]
