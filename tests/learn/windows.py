"""Small windows of rows, and how to run a solver over them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streampgs.learn.pgs import Pgs, PgsSettings

from .plain_pgs import PlainRow


@dataclass
class Window:
    """The arrays that the loop reads."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.starts)

    def visited(self, order: ArrayLike) -> Window:
        """The same rows in another order, any of them as often as you like."""
        order = np.asarray(order)
        weights = self.weights[order] if self.weights.size else self.weights
        return replace(
            self, starts=self.starts[order], stops=self.stops[order], labels=self.labels[order], weights=weights
        )

    def plain_rows(self, features: int, intercept: float) -> list[PlainRow]:
        rows = []
        for r, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            x = np.zeros(features + 1)
            x[0] = intercept
            places = self.indices[start:stop].astype(int) if self.indices.size else np.arange(stop - start)
            x[places + 1] = self.values[start:stop]
            rows.append(PlainRow(x, float(self.labels[r]), float(self.weights[r]) if self.weights.size else 1.0))
        return rows


def settings(
    loss: str = "logistic",
    p: float = 2.0,
    layout: str = "dense",
    returns: str = "suffix",
    *,
    shape: float = 0.0,
    sigma: float = 0.02,
    t0: float = 3.0,
    radius: float = math.inf,
    batch: int = 1,
    intercept: float = 0.1,
    seed: int = 0,
) -> PgsSettings:
    return PgsSettings(loss, shape, p, sigma, t0, radius, batch, intercept, returns, seed, layout)


def window(
    rows: int, features: int, layout: str = "dense", *, classes: bool = True, weighted: bool = False, seed: int = 0
) -> Window:
    """Rows with something to learn in them; sparse ones have 0 to 5 entries, in no order."""
    rng = np.random.default_rng([rows, features, seed])
    x = rng.normal(size=(rows, features)).astype(np.float32)
    if layout == "sparse":
        x[rng.random(x.shape) >= rng.uniform(0.0, 5.0 / features, size=(rows, 1))] = 0.0
    wished = x @ rng.normal(size=features) + 0.3 * rng.normal(size=rows)
    labels = np.where(wished > 0.0, 1.0, -1.0) if classes else wished
    weights = rng.uniform(0.0, 2.0, size=rows) if weighted else np.empty(0)
    if layout == "dense":
        return dense_window(x, labels, weights)
    places = [rng.permutation(np.flatnonzero(row)) for row in x]
    ends = np.cumsum([0, *(len(row) for row in places)])
    values = [row[kept] for row, kept in zip(x, places, strict=True)]
    return Window(
        ends[:-1], ends[1:], np.concatenate(places).astype(np.uint32), np.concatenate(values), labels, weights
    )


def dense_window(x: ArrayLike, labels: ArrayLike, weights: ArrayLike = ()) -> Window:
    x = np.asarray(x, np.float32)
    starts = np.arange(len(x)) * x.shape[1]
    no_indices = np.empty(0, np.uint32)
    return Window(
        starts, starts + x.shape[1], no_indices, x.ravel(), np.asarray(labels, float), np.asarray(weights, float)
    )


def started(chosen: PgsSettings, features: int) -> Pgs:
    solver = Pgs(chosen)
    solver.grow(features)
    return solver


def advance_in_pieces(solver: Pgs, rows: Window, first: int, stop: int, cuts: Iterable[int] = ()) -> None:
    """Over rows [first, stop), the calls cut at those of `cuts` that lie within."""
    edges = [first, *sorted(cut for cut in set(cuts) if first < cut < stop), stop]
    for piece_first, piece_stop in pairwise(edges):
        solver.advance(rows, piece_first, piece_stop)


def through_a_checkpoint(solver: Pgs) -> Pgs:
    vectors, numbers = solver.to_record()
    chosen = PgsSettings.from_json(json.loads(json.dumps(solver.settings.to_json())))
    copies = {name: np.frombuffer(vector.tobytes()) for name, vector in vectors.items()}
    return Pgs.from_record(chosen, copies, json.loads(json.dumps(numbers)))


def last_iterate(solver: Pgs) -> NDArray[np.float64]:
    """w_T, whatever the solver is to return."""
    return Pgs.from_record(replace(solver.settings, returns="last"), *solver.to_record()).weights()


def tallies_of(solver: Pgs) -> list[float]:
    return list(astuple(solver.tallies()))


def bits(solver: Pgs) -> dict[str, object]:
    """All that a solver knows and says, to be compared for equality."""
    vectors, numbers = solver.to_record()
    return {
        **{name: vector.tobytes() for name, vector in vectors.items()},
        **{name: repr(number) for name, number in numbers.items()},
        "settings": solver.settings,
        "weights": solver.weights().tobytes(),
        "gap": repr(solver.gap()),
        "tallies": repr(tallies_of(solver)),
        "digest": solver.dual_sha256(),
    }
