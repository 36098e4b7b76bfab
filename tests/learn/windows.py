"""Windows of rows made in memory, and lanes that train on them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streampgs.base.stage import Bundle
from streampgs.engine.engine import Engine
from streampgs.kernels.rows import Rows
from streampgs.learn.averaging import Tallies
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import learned
from streampgs.learn.norms import PNorm
from streampgs.learn.passes import PassLearner
from streampgs.learn.pgs_options import PgsOptions

from .plain_passes import EPOCH
from .plain_pgs import PlainRow


@dataclass(frozen=True)
class Window:
    """Rows in the form that a learner accepts."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    offsets: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def table(self) -> Rows:
        features = int(self.indices.max(initial=0)) + 1
        return Rows(
            self.starts,
            self.stops,
            self.indices,
            self.values,
            self.labels,
            self.weights,
            self.offsets,
            features=features,
        )

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(len(self.starts))

    def visited(self, order: ArrayLike) -> Window:
        """The same rows in this order. A row may be repeated."""
        order = np.asarray(order)
        weights = self.weights[order] if self.weights.size else self.weights
        offsets = self.offsets[order] if self.offsets.size else self.offsets
        return replace(
            self,
            starts=self.starts[order],
            stops=self.stops[order],
            labels=self.labels[order],
            weights=weights,
            offsets=offsets,
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
) -> LaneSpec:
    own = PgsOptions(t0, None if math.isinf(radius) else radius, returns)
    return LaneSpec("pgs", loss, shape, PNorm(p), sigma, Target("label"), seed, batch, intercept, layout, own)


def radius_of(spec: LaneSpec) -> float:
    return math.inf if spec.own.ball is None else spec.own.ball


def changed(spec: LaneSpec, **changes: Any) -> LaneSpec:
    """A copy with changes. Options of the learner and of the target are given by name, like the others."""
    own = {name: changes.pop(name) for name in list(changes) if name in asdict(spec.own)}
    target = {name: changes.pop(name) for name in list(changes) if name in ("column", "positive", "joined")}
    norm = PNorm(changes.pop("p")) if "p" in changes else spec.norm
    return replace(spec, own=replace(spec.own, **own), target=replace(spec.target, **target), norm=norm, **changes)


def window(
    rows: int, features: int, layout: str = "dense", *, classes: bool = True, weighted: bool = False, seed: int = 0
) -> Window:
    """Rows with labels that can be learned. Sparse rows have 0 to 5 entries in random order."""
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


class Training:
    """Lanes and the engine that trains them."""

    def __init__(self, specs: Sequence[LaneSpec], features: int = 0, workers: int = 1) -> None:
        self.lanes = Lanes(specs, features)
        self.workers = workers
        self.engine = Engine(self.lanes, workers)

    def __len__(self) -> int:
        return len(self.lanes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lanes, name)

    def advance(self, rows: Any, first: int, stop: int, end: int | None = None) -> int:
        """Learners that need passes get epochs of a fixed number of rows."""
        if not any(isinstance(group.learner, PassLearner) for group in self.lanes.groups):
            return self.engine.advance(rows, first, stop, end)
        row = first
        while row < stop:
            epoch_end = (row // EPOCH + 1) * EPOCH
            row = self.engine.advance(rows, row, min(stop, epoch_end), min(end or stop, epoch_end))
            self.engine.reach_epoch(row // EPOCH)
        return row

    @property
    def settings(self) -> LaneSpec:
        return self.specs[0]

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        return self.groups[0].state

    def dual(self, lane: int = 0) -> NDArray[np.float64]:
        group, column = self._places[lane]
        return learned(self.groups[group].learner, self.groups[group].state, column)

    def weights(self, lane: int = 0, at: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        return self.lanes.weights(lane, at)

    def gap(self, lane: int = 0) -> float:
        """Infinite as long as it is not known."""
        found = self.lanes.certificate(lane)
        return math.inf if found is None else found

    def tallies(self, lane: int = 0) -> Tallies:
        return self.lanes.tallies(lane)

    def again(self) -> Training:
        """Another object with the same state, as read back from a checkpoint."""
        other = Training([], 0, self.workers)
        other.lanes.restore(saved(self.lanes))
        return other

    def keeping(self, kept: Sequence[int]) -> Training:
        other = self.again()
        other.lanes.keep(kept)
        return other


def saved(lanes: Lanes) -> Bundle:
    """The lanes' section of a checkpoint, written and read back."""
    bundle = lanes.state()
    arrays = {
        name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape).copy()
        for name, array in bundle.arrays.items()
    }
    return Bundle(json.loads(json.dumps(bundle.values)), arrays)


def started(chosen: LaneSpec, features: int, workers: int = 1) -> Training:
    return Training([chosen], features, workers)


def last_iterate(solver: Training, lane: int = 0) -> NDArray[np.float64]:
    """w_T, even if the solver returns other weights."""
    group, column = solver._places[lane]
    learner: Any = solver.groups[group].learner
    iterate: NDArray[np.float64] = learner._iterate(solver.groups[group].state, column)
    return iterate


def tallies_of(solver: Training) -> list[float]:
    return list(astuple(solver.tallies()))


def bits(solver: Training) -> dict[str, object]:
    """The state and all results of lanes, to be compared for equality."""
    section = solver.lanes.state()
    lanes = range(len(solver))
    return {
        **{name: array.tobytes() for name, array in section.arrays.items()},
        "values": repr(section.values),
        "weights": [solver.weights(lane).tobytes() for lane in lanes],
        "certificates": [repr(solver.certificate(lane)) for lane in lanes],
        "tallies": [repr(solver.tallies(lane)) for lane in lanes],
        "digest": solver.digest(),
    }
