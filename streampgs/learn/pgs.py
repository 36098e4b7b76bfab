"""The Primal Gradient Solver: its state, its steps, its certificate, and the weights that it returns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.errors import Diverged
from streampgs.kernels import pgs_loop as loops
from streampgs.kernels.powers import dual_exponent
from streampgs.kernels.randomness import key_of, random_fractions
from streampgs.learn.averaging import Array, Stretch, Tallies, grown
from streampgs.learn.rounds import Rounds, first_round, share_of
from streampgs.losses import LOSSES

SUFFIX, AVERAGE, LAST, RANDOM = "suffix", "average", "last", "random"
RETURNS = (SUFFIX, AVERAGE, LAST, RANDOM)

# Q and all else that is derived from λ is made afresh at fixed step numbers: never when a checkpoint happens to be
# written, for a pause must not change anything.
_REBUILD_STEPS = 1 << 18

_PART = 1 << 18  # features looked at together
_LINE_BYTES = 64

# What growing, saving and reading out take for a while beside the state itself.
TRANSIENT_FEATURE_BYTES = 24

MOST_LANES = loops.LANE_WIDTHS[-1]
"""In one group; p < 2 allows one only."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PgsSettings:
    """All that defines the sequence of iterates of one model, given the rows."""

    loss: str
    shape: float
    p: float
    sigma: float
    t0: float
    radius: float
    """B of the ball; infinite for none."""
    batch: int
    intercept: float
    """The constant feature of the intercept's coordinate; 0 for none."""
    returns: str
    seed: int
    layout: str
    column: int = 0
    """Which of the rows' labels it learns."""
    positive: float | None = None
    """The label that is +1 to it, all others being -1; None: labels are meant as they are."""
    workers: int = 1
    joined: int = 0
    """In which lot it joined those that were in training before: lanes of one lot have taken the same steps."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "radius": None if math.isinf(self.radius) else self.radius}

    @staticmethod
    def from_json(record: dict[str, Any]) -> PgsSettings:
        return PgsSettings(**{**record, "radius": math.inf if record["radius"] is None else record["radius"]})

    @property
    def kind(self) -> tuple[object, ...]:
        """What lanes of one group have in common."""
        return (
            self.loss,
            self.p,
            self.batch,
            self.intercept,
            self.returns,
            self.seed,
            self.layout,
            self.workers,
            self.joined,
        )


class Rows(Protocol):
    """What the loop needs of a window."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    """One of a row, or a column for each label."""
    weights: NDArray[np.float64]


class _NoRows:
    starts = stops = np.empty(0, np.int64)
    indices = np.empty(0, np.uint32)
    values = np.empty(0, np.float32)
    labels = weights = np.empty(0)


class Pgs:
    """One model, or several ("lanes") that step on each row together and differ in numbers only.

    Coordinate 0 is the intercept's; feature j is coordinate j + 1. Arrays have a column for each lane, and a few more
    where there are fewer lanes than the loop is wide: these repeat the last lane and are never looked at.
    """

    def __init__(self, *lanes: PgsSettings) -> None:
        if len({lane.kind for lane in lanes}) != 1 or len(lanes) > most_lanes(lanes[0].p):
            raise ValueError(f"{len(lanes)} lanes that do not belong together")
        self.lanes = lanes
        self.settings = lanes[0]
        """For what all lanes have in common."""
        self.width = next(width for width in loops.LANE_WIDTHS if width >= len(lanes))
        self.averaging = self.settings.returns in (SUFFIX, AVERAGE)
        self.steps = 0
        self.scalars = np.zeros((loops.SCALARS, self.width))
        self.scalars[loops.SCALE] = 1.0 if self._euclidean else 0.0
        self.coordinates = self._state_array(1)
        self.earlier = Stretch(
            np.zeros((1, self.width)), np.zeros((1, self.width if self.averaging else 0)), 0, self._no_sums()
        )
        self.stretch_start = np.zeros((1, self.width))
        self.stretch_began = 0
        self.kept = np.zeros((1, self.width if self.settings.returns == RANDOM else 0))
        self.kept_count = 0
        self.next_kept = 1
        self._parameters = self._lane_parameters()
        s = self.settings
        self._advance = loops.advance_for(LOSSES[s.loss], s.p, s.layout, self.width, self.averaging)
        self._rebuild = loops.rebuild_for(s.p, self.width, self.averaging)
        self._rounds = Rounds(s.workers, s.p, self.width, self.averaging) if s.workers > 1 else None

    @staticmethod
    def warm_up(loss: str, p: float, layout: str, returns: str, lanes: int = 1) -> None:
        """Compile, or load from the cache, what the first step will need."""
        settings = PgsSettings(loss, 0.0, p, 1.0, 1.0, math.inf, 1, 0.0, returns, 0, layout)
        solver = Pgs(*[settings] * lanes)
        solver._step_over(solver.coordinates, solver.scalars, _NoRows(), 0, 0)
        solver._rebuild(solver.coordinates, solver.scalars)

    # The shape of the state.

    @property
    def _euclidean(self) -> bool:
        return self.settings.p == 2.0

    @property
    def _slots(self) -> int:
        return (1 if self._euclidean else 2) + self.averaging

    def _state_array(self, size: int) -> Array:
        """Zeros, beginning with a cache line. One lane of dense rows has its columns in one piece each, so that the
        loops over all features go over neighbours; else a feature's numbers are neighbours."""
        columns = self._slots * self.width
        by_column = self.settings.layout == "dense" and self.width == 1 and self._euclidean
        if by_column:
            columns = max(2, columns)  # of one column alone the compiler could not tell how it lies
        count = size * columns
        # Not numpy's zeros: memory that is asked for without them comes in large pages, and a row's features lie in many.
        room = np.empty(count + _LINE_BYTES // 8)
        room.fill(0.0)
        first = -room.ctypes.data % _LINE_BYTES // 8
        return room[first : first + count].reshape((size, columns), order="F" if by_column else "C")

    def _slot(self, slot: int) -> Array:
        return self.coordinates[:, slot * self.width : (slot + 1) * self.width]

    @property
    def duals(self) -> Array:
        return self._slot(0)

    @property
    def _raised(self) -> Array:
        return self._slot(0 if self._euclidean else 1)

    @property
    def _running_sum(self) -> Array:
        """u"""
        return self._slot(self._slots - 1)

    def _no_sums(self) -> Array:
        return np.zeros((loops.SCALARS - loops.REGULARIZER_TALLY, self.width))

    def _lane_parameters(self) -> Array:
        parameters = np.empty((loops.PARAMETERS, self.width))
        for column in range(self.width):
            lane = self.lanes[min(column, len(self.lanes) - 1)]
            parameters[loops.SIGMA, column] = lane.sigma
            parameters[loops.T0, column] = lane.t0
            parameters[loops.RADIUS, column] = lane.radius
            parameters[loops.SHAPE, column] = lane.shape
            parameters[loops.LABEL, column] = lane.column
            parameters[loops.CLASS, column] = math.nan if lane.positive is None else lane.positive
        return parameters

    @property
    def features(self) -> int:
        return len(self.coordinates) - 1

    @property
    def nbytes(self) -> int:
        arrays = (self.coordinates, self.earlier.start_dual, self.earlier.iterate_sum, self.stretch_start, self.kept)
        return sum(array.nbytes for array in arrays)

    def grow(self, features: int) -> None:
        """Room for more features; those never seen have λ_i = 0, so nothing else changes."""
        size = features + 1
        if size <= len(self.coordinates):
            return
        coordinates = self._state_array(size)
        coordinates[: len(self.coordinates)] = self.coordinates
        self.coordinates = coordinates
        self.earlier = self.earlier.grown(size)
        self.stretch_start = grown(self.stretch_start, size)
        self.kept = grown(self.kept, size)

    # Steps.

    def advance(self, rows: Rows, first: int, stop: int, end: int | None = None) -> int:
        """Step over rows from `first`, where a step or a round begins, to `stop`; gives the row that was reached. The last
        step, or the last round of several workers, is finished: it may reach beyond, but not beyond `end`."""
        end = stop if end is None else end
        batch = self.settings.batch
        while first < stop:
            before = self.steps
            share = self._share(end - first)
            if share:
                first += self._run_round(rows, first, share)
            else:
                steps = min(-(-(stop - first) // batch), self._next_event() - self.steps)
                until = min(end, first + steps * batch)
                self.steps = self._step_over(self.coordinates, self.scalars, rows, first, until)
                first = until
                if self._rounds is not None:
                    self._rounds.forget()
            self._check_finite()
            self._handle_events(before)
        return first

    def _share(self, rows: int) -> int:
        """The steps of each worker in the next round; 0: one worker goes alone. A function of what is reached, never of
        where a call ends."""
        workers, batch = self.settings.workers, self.settings.batch
        if self._rounds is None or self.steps < first_round(workers, self.features):
            return 0
        return min(share_of(self.steps, workers, self.features), rows // (workers * batch))

    def _run_round(self, rows: Rows, first: int, share: int) -> int:
        """How many rows the round has taken."""
        assert self._rounds is not None
        workers, batch = self.settings.workers, self.settings.batch

        def step(coordinates: Array, scalars: Array, its_first: int, its_stop: int) -> None:
            self._step_over(coordinates, scalars, rows, its_first, its_stop, workers)

        self._rounds.run(
            self.coordinates, self.scalars, first, share * batch, step,
            lambda: self._rebuild(self.coordinates, self.scalars),
        )  # fmt: skip
        self.steps += share * workers
        return share * workers * batch

    def _step_over(self, coordinates: Array, scalars: Array, rows: Rows, first: int, stop: int, copies: int = 1) -> int:
        s = self.settings
        labels = rows.labels if rows.labels.ndim == 2 else rows.labels[:, np.newaxis]
        return self._advance(
            coordinates, scalars, self._parameters, rows.starts, rows.stops, rows.indices, rows.values, labels,
            rows.weights, first, stop, s.batch, self.steps, copies, s.intercept,
        )  # fmt: skip

    def _next_event(self) -> int:
        """The step count at which the loop must be left, a function of the count alone."""
        following = [1 << self.steps.bit_length(), (self.steps // _REBUILD_STEPS + 1) * _REBUILD_STEPS]
        if self.settings.returns == RANDOM:
            following.append(self.next_kept)
        if self._rounds is not None and self.steps < first_round(self.settings.workers, self.features):
            following.append(first_round(self.settings.workers, self.features))
        return min(following)

    def _handle_events(self, before: int) -> None:
        """What is due since the step count was `before`."""
        restart = self.steps.bit_length() > before.bit_length()
        if restart or self.steps // _REBUILD_STEPS > before // _REBUILD_STEPS:
            self._rebuild(self.coordinates, self.scalars)
            if self._rounds is not None:
                self._rounds.forget()
        if self.settings.returns == RANDOM and self.steps >= self.next_kept:
            self._keep_iterate()
        if restart:
            self._restart_stretch()

    def _check_finite(self) -> None:
        if not np.isfinite(self.scalars).all():
            raise Diverged(
                f"the numbers left the finite range before step {self.steps:,}",
                "give a ball (--ball auto), a larger --t0 or --sigma, or scale the features down",
            )

    def _restart_stretch(self) -> None:
        sums = self.scalars[loops.REGULARIZER_TALLY :].copy()
        ended = Stretch(self.stretch_start, self.earlier.iterate_sum[:, :0], self.steps - self.stretch_began, sums)
        if self.averaging:
            ended.iterate_sum = self._running_sum.copy()  # a rebuild has just put all of the sum there
            self._running_sum[:] = 0.0
        if self.settings.returns == AVERAGE:
            ended.start_dual = self.earlier.start_dual
            ended.iterate_sum += self.earlier.iterate_sum
            ended.steps += self.earlier.steps
            ended.sums += self.earlier.sums
        self.earlier = ended
        self.stretch_start = self.duals.copy()
        self.stretch_began = self.steps
        self.scalars[loops.REGULARIZER_TALLY :] = 0.0

    def _keep_iterate(self) -> None:
        """The paper's random iterate: step t's replaces the kept one with probability 1/t, so that any is as likely.

        The step of the next replacement is drawn instead of a coin at every step.
        """
        self.kept = np.stack([self._iterate(lane) for lane in range(self.width)], axis=1)
        while self.next_kept <= self.steps:
            fraction = float(
                random_fractions(key_of(self.settings.seed, "kept"), np.array([self.kept_count], np.uint64))[0]
            )
            self.kept_count += 1
            self.next_kept = min(int(self.next_kept / fraction) + 1, 1 << 62)

    # What training has come to.

    def _needs_earlier(self) -> bool:
        """Whether the present stretch is too short to stand alone (or all of training is wanted)."""
        return self.settings.returns == AVERAGE or self.steps < 1.5 * self.stretch_began

    def _covered_steps(self) -> int:
        """The steps that averages and certificate speak of."""
        return self.steps - self.stretch_began + (self.earlier.steps if self._needs_earlier() else 0)

    def tallies(self, lane: int = 0) -> Tallies:
        """Over the steps that averages and certificate speak of."""
        sums = self.scalars[loops.REGULARIZER_TALLY :, lane]
        if self._needs_earlier():
            sums = sums + self.earlier.sums[:, lane]
        return Tallies(self._covered_steps(), *sums.tolist())

    def weights(self, lane: int = 0, coordinates: NDArray[np.int64] | None = None) -> Vector:
        """The weights to return, the intercept's coordinate first; or those of some coordinates only."""
        chosen = slice(None) if coordinates is None else coordinates
        returns = self.settings.returns
        if self.steps == 0:
            return np.zeros(len(self.coordinates) if coordinates is None else len(coordinates))
        if returns == LAST or (returns != RANDOM and self._covered_steps() == 0):
            return self._iterate(lane, chosen)
        if returns == RANDOM:
            return self.kept[chosen, lane].copy()
        total = self.scalars[loops.MULTIPLIER_SUM, lane] * self._raised[chosen, lane] + self._running_sum[chosen, lane]
        if self._needs_earlier():
            total += self.earlier.iterate_sum[chosen, lane]
        return np.asarray(total / self._covered_steps())

    def _iterate(self, lane: int, chosen: slice | NDArray[np.int64] = slice(None)) -> Vector:
        """w_T = ∇r*(λ / ((T+t0)σ)), on the ball if there is one."""
        sigma, t0, radius = self._parameters[[loops.SIGMA, loops.T0, loops.RADIUS], lane].tolist()
        q_less_1 = dual_exponent(self.settings.p)
        q, power_sum, scale = (
            q_less_1 + 1.0,
            max(0.0, float(self.scalars[loops.POWER_SUM, lane])),
            float(self.scalars[loops.SCALE, lane]),
        )
        raised = self._raised[chosen, lane]
        if power_sum == 0.0:
            return np.zeros(len(raised))
        clock = (self.steps + t0) * sigma
        norm = scale * power_sum ** (1.0 / q) / clock / q_less_1
        multiplier = scale * power_sum ** ((2.0 - q) / q) / clock / q_less_1
        return np.asarray(raised * (multiplier * min(1.0, radius / norm)))

    def gap(self, lane: int = 0) -> float:
        """The certificate: an upper bound, in expectation, of F(average) - min F over the steps that it covers.

        (1/T) Σ [σ·r(w) + <g, w>] + σ·r*((λ_T - λ_start)/(Tσ)), for the T steps since `start`.
        """
        tallies = self.tallies(lane)
        if tallies.steps == 0:
            return math.inf
        s = self.lanes[lane]
        start = self.earlier.start_dual if self._needs_earlier() else self.stretch_start
        size = _distance(self.duals[:, lane], start[:, lane], dual_exponent(s.p) + 1.0) / (tallies.steps * s.sigma)
        return (tallies.regularizer + tallies.linear) / tallies.steps + s.sigma * _conjugate(size, s.p, s.radius)

    def dual_bytes(self, lane: int = 0) -> Iterator[bytes]:
        """λ, the intercept's coordinate first, part by part."""
        for first in range(0, len(self.coordinates), _PART):
            yield self.duals[first : first + _PART, lane].tobytes()

    def dual_sha256(self) -> str:
        digest = hashlib.sha256()
        for lane in range(len(self.lanes)):
            for part in self.dual_bytes(lane):
                digest.update(part)
        return digest.hexdigest()

    # The state as named vectors and numbers, for a checkpoint.

    def to_record(self) -> tuple[dict[str, Vector], dict[str, Any]]:
        """The vectors are views: to be written, or copied, before the next step."""
        vectors = {
            _name_in_lane(name, lane): array[:, lane]
            for name, array in self._arrays().items()
            for lane in range(len(self.lanes))
            if array.shape[1]
        }
        numbers = {
            "steps": self.steps,
            "scalars": self.scalars.tolist(),
            "stretch_began": self.stretch_began,
            "earlier_steps": self.earlier.steps,
            "earlier_sums": self.earlier.sums.tolist(),
            "kept_count": self.kept_count,
            "next_kept": self.next_kept,
        }
        return vectors, numbers

    @staticmethod
    def from_record(
        settings: PgsSettings | Sequence[PgsSettings], vectors: dict[str, Vector], numbers: dict[str, Any]
    ) -> Pgs:
        solver = Pgs(*([settings] if isinstance(settings, PgsSettings) else settings))
        solver.grow(len(vectors["dual"]) - 1)
        solver.kept_count, solver.next_kept = numbers["kept_count"], numbers["next_kept"]
        for name, array in solver._arrays().items():
            if array.shape[1]:
                for column in range(solver.width):
                    array[:, column] = vectors[_name_in_lane(name, min(column, len(solver.lanes) - 1))]
        solver.steps = numbers["steps"]
        solver.scalars = np.array(numbers["scalars"])
        solver.stretch_began = numbers["stretch_began"]
        solver.earlier.steps = numbers["earlier_steps"]
        solver.earlier.sums = np.array(numbers["earlier_sums"])
        return solver

    def _arrays(self) -> dict[str, Array]:
        """All that has a row for each coordinate and a column for each lane, or none."""
        names = ["dual", *([] if self._euclidean else ["raised"]), *(["iterate_sum"] if self.averaging else [])]
        return {
            **{name: self._slot(slot) for slot, name in enumerate(names)},
            "stretch_start": self.stretch_start,
            "earlier_start": self.earlier.start_dual,
            "earlier_iterate_sum": self.earlier.iterate_sum,
            "kept": self.kept,
        }

    def take_over(self, lane: int, other: Pgs, its_lane: int) -> None:
        """Go on where a lane of another group of this kind stands, to the last bit. To be done for every lane."""
        columns = range(lane, self.width) if lane == len(self.lanes) - 1 else [lane]
        theirs = other._arrays()
        for column in columns:
            for name, array in self._arrays().items():
                if array.shape[1]:
                    array[:, column] = theirs[name][:, its_lane]
            self.scalars[:, column] = other.scalars[:, its_lane]
            self.earlier.sums[:, column] = other.earlier.sums[:, its_lane]
        self.steps, self.stretch_began, self.earlier.steps = other.steps, other.stretch_began, other.earlier.steps
        self.kept_count, self.next_kept = other.kept_count, other.next_kept

    def begin_averages_anew(self) -> None:
        """What averages and certificate speak of begins here; the steps go on as they are."""
        self._rebuild(self.coordinates, self.scalars)
        if self._rounds is not None:
            self._rounds.forget()
        if self.averaging:
            self._running_sum[:] = 0.0
        self.earlier = Stretch(
            np.zeros_like(self.earlier.start_dual), np.zeros_like(self.earlier.iterate_sum), 0, self._no_sums()
        )
        self.stretch_start, self.stretch_began = self.duals.copy(), self.steps
        self.scalars[loops.REGULARIZER_TALLY :] = 0.0

    def start_from(self, places: Sequence[tuple[Pgs, int]]) -> None:
        """Each lane goes on with the duals of a lane of another group, at its step count; averages and certificate begin
        anew."""
        before = places[0][0]
        self.steps = before.steps
        self.kept_count, self.next_kept = before.kept_count, before.next_kept
        for column in range(self.width):
            other, its_lane = places[min(column, len(places) - 1)]
            self.duals[:, column] = other.duals[:, its_lane]
            if self.kept.shape[1]:
                self.kept[:, column] = other.kept[:, its_lane]
        self.begin_averages_anew()


def most_lanes(p: float) -> int:
    """How many lanes a group may have: powers cost more than what lanes share."""
    return MOST_LANES if p == 2.0 else 1


def _name_in_lane(name: str, lane: int) -> str:
    return f"{name}.{lane}" if lane else name


def bytes_per_feature(p: float, returns: str, lanes: int = 1, workers: int = 1) -> int:
    """What one feature takes in the state of a group of lanes."""
    averaging = returns in (SUFFIX, AVERAGE)
    slots = (1 if p == 2.0 else 2) + averaging
    vectors = workers * slots + 2 + averaging + (returns == RANDOM)
    return 8 * vectors * next(width for width in loops.LANE_WIDTHS if width >= lanes)


def _distance(a: Vector, b: Vector, q: float) -> float:
    """‖a - b‖_q without overflow, part by part: a wide model has no room for copies."""
    parts = [slice(first, first + _PART) for first in range(0, len(a), _PART)]
    largest = max(float(np.max(np.abs(a[part] - b[part]), initial=0.0)) for part in parts)
    if largest == 0.0:
        return 0.0
    return largest * math.pow(sum(float(np.sum((np.abs(a[part] - b[part]) / largest) ** q)) for part in parts), 1.0 / q)


def _conjugate(size: float, p: float, radius: float) -> float:
    """r*(θ) for ‖θ‖_q = size: (p-1)/2·size², or its continuation where the maximiser lies on the ball's surface."""
    reach = (p - 1.0) * size
    inside = 0.5 * (p - 1.0) * size * size
    return inside if reach <= radius else inside - (radius - reach) ** 2 / (2.0 * (p - 1.0))


def automatic_radius(loss_at_zero: float, p: float, sigma: float) -> float:
    """A ball that must hold the optimum: σ·r(ŵ) ≤ F(ŵ) ≤ F(0)."""
    return math.sqrt(2.0 * (p - 1.0) * loss_at_zero / sigma)


def automatic_t0(loss: str, sigma: float, mean_squared_norm: float) -> float:
    """t0 = 1/(σ·η0), with the first step η0 as long as the loss's curvature and the rows' q-norms allow."""
    return max(1.0, LOSSES[loss].curvature * mean_squared_norm / sigma)
