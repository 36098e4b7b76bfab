"""The Primal Gradient Solver: its state, its steps, its certificate, and the weights that it returns."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.arithmetic import pgs as loops
from streampgs.arithmetic.losses import LOSSES
from streampgs.arithmetic.powers import dual_exponent
from streampgs.arithmetic.randomness import key_of, random_fractions
from streampgs.errors import Diverged
from streampgs.solver.stretches import Stretch, Tallies, Vector, grown

SUFFIX, AVERAGE, LAST, RANDOM = "suffix", "average", "last", "random"
RETURNS = (SUFFIX, AVERAGE, LAST, RANDOM)

# Q and all else that is derived from λ is made afresh at fixed step numbers: never when a checkpoint happens to be
# written, for a pause must not change anything.
_REBUILD_STEPS = 1 << 18

_PART = 1 << 18  # features looked at together

# What growing, saving and reading out take for a while beside the state itself.
TRANSIENT_FEATURE_BYTES = 24


@dataclass(frozen=True)
class PgsSettings:
    """All that defines the sequence of iterates, given the rows."""

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

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "radius": None if math.isinf(self.radius) else self.radius}

    @staticmethod
    def from_json(record: dict[str, Any]) -> PgsSettings:
        return PgsSettings(**{**record, "radius": math.inf if record["radius"] is None else record["radius"]})


class Rows(Protocol):
    """What the loop needs of a window."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]


class _NoRows:
    starts = stops = np.empty(0, np.int64)
    indices = np.empty(0, np.uint32)
    values = np.empty(0, np.float32)
    labels = weights = np.empty(0)


class Pgs:
    """Coordinate 0 is the intercept's; feature j is coordinate j + 1."""

    def __init__(self, settings: PgsSettings) -> None:
        self.settings = settings
        self.averaging = settings.returns in (SUFFIX, AVERAGE)
        self.steps = 0
        self.scalars = np.zeros(loops.SCALARS)
        self.scalars[loops.SCALE] = 1.0 if settings.p == 2.0 else 0.0
        slots = (1 if settings.p == 2.0 else 2) + self.averaging
        self.coordinates: NDArray[np.float64] = np.zeros((1, slots))
        self.earlier = Stretch(np.zeros(1), np.zeros(1 if self.averaging else 0))
        self.stretch_start = np.zeros(1)
        self.stretch_began = 0
        self.kept = np.zeros(1 if settings.returns == RANDOM else 0)
        self.kept_count = 0
        self.next_kept = 1
        self._advance = loops.advance_for(settings.loss, settings.p, settings.layout, self.averaging)
        self._rebuild = loops.rebuild_for(settings.p, self.averaging)

    @staticmethod
    def warm_up(loss: str, p: float, layout: str, returns: str) -> None:
        """Compile, or load from the cache, what the first step will need."""
        settings = PgsSettings(loss, 0.0, p, 1.0, 1.0, math.inf, 1, 0.0, returns, 0, layout)
        no_rows = _NoRows()
        solver = Pgs(settings)
        solver._advance(
            solver.coordinates, solver.scalars, no_rows.starts, no_rows.stops, no_rows.indices, no_rows.values,
            no_rows.labels, no_rows.weights, 0, 0, 1, 0, 1.0, 1.0, math.inf, 0.0, 0.0,
        )  # fmt: skip
        solver._rebuild(solver.coordinates, solver.scalars)

    # Steps.

    @property
    def features(self) -> int:
        return len(self.coordinates) - 1

    @property
    def dual(self) -> Vector:
        """A copy of λ, the intercept's coordinate first."""
        return self.coordinates[:, 0].copy()

    def grow(self, features: int) -> None:
        """Room for more features; those never seen have λ_i = 0, so nothing else changes."""
        size = features + 1
        if size <= len(self.coordinates):
            return
        coordinates = np.zeros((size, self.coordinates.shape[1]))
        coordinates[: len(self.coordinates)] = self.coordinates
        self.coordinates = coordinates
        self.earlier = self.earlier.grown(size)
        self.stretch_start = grown(self.stretch_start, size)
        self.kept = grown(self.kept, size)

    def advance(self, rows: Rows, first: int, stop: int) -> None:
        """Step over rows [first, stop), `batch` rows a step; `first` is where a step begins."""
        s = self.settings
        while first < stop:
            steps = min(-(-(stop - first) // s.batch), self._next_event() - self.steps)
            until = min(stop, first + steps * s.batch)
            self.steps = self._advance(
                self.coordinates, self.scalars, rows.starts, rows.stops, rows.indices, rows.values, rows.labels,
                rows.weights, first, until, s.batch, self.steps, s.t0, s.sigma, s.radius, s.shape, s.intercept,
            )  # fmt: skip
            first = until
            self._check_finite()
            self._handle_event()

    def _next_event(self) -> int:
        """The step count at which the loop must be left, a function of the count alone."""
        following = [1 << self.steps.bit_length(), (self.steps // _REBUILD_STEPS + 1) * _REBUILD_STEPS]
        if self.settings.returns == RANDOM:
            following.append(self.next_kept)
        return min(following)

    def _handle_event(self) -> None:
        restart = self.steps & (self.steps - 1) == 0
        if restart or self.steps % _REBUILD_STEPS == 0:
            self._rebuild(self.coordinates, self.scalars)
        if self.settings.returns == RANDOM and self.steps == self.next_kept:
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
        ended = Stretch(self.stretch_start, np.zeros(0), self._current_tallies())
        if self.averaging:
            ended.iterate_sum = self.coordinates[:, -1].copy()  # a rebuild has just put all of the sum there
            self.coordinates[:, -1] = 0.0
        if self.settings.returns == AVERAGE:
            ended.start_dual = self.earlier.start_dual
            ended.iterate_sum += self.earlier.iterate_sum
            ended.tallies = self.earlier.tallies.plus(ended.tallies)
        self.earlier = ended
        self.stretch_start = self.dual
        self.stretch_began = self.steps
        self.scalars[loops.REGULARIZER_TALLY :] = 0.0

    def _keep_iterate(self) -> None:
        """The paper's random iterate: step t's replaces the kept one with probability 1/t, so that any is as likely.

        The step of the next replacement is drawn instead of a coin at every step.
        """
        self.kept = self._iterate()
        fraction = float(
            random_fractions(key_of(self.settings.seed, "kept"), np.array([self.kept_count], np.uint64))[0]
        )
        self.kept_count += 1
        self.next_kept = min(int(self.next_kept / fraction) + 1, 1 << 62)

    # What training has come to.

    def _current_tallies(self) -> Tallies:
        sums = (float(tally) for tally in self.scalars[loops.REGULARIZER_TALLY :])
        return Tallies(self.steps - self.stretch_began, *sums)

    def _needs_earlier(self) -> bool:
        """Whether the present stretch is too short to stand alone (or all of training is wanted)."""
        return self.settings.returns == AVERAGE or self.steps < 1.5 * self.stretch_began

    def tallies(self) -> Tallies:
        """Over the steps that averages and certificate speak of."""
        current = self._current_tallies()
        return self.earlier.tallies.plus(current) if self._needs_earlier() else current

    def weights(self) -> Vector:
        """The weights to return, the intercept's coordinate first."""
        returns = self.settings.returns
        if self.steps == 0:
            return np.zeros(len(self.coordinates))
        if returns == LAST:
            return self._iterate()
        if returns == RANDOM:
            return self.kept.copy()
        total = self.scalars[loops.MULTIPLIER_SUM] * self._raised() + self.coordinates[:, -1]
        if self._needs_earlier():
            total += self.earlier.iterate_sum
        return np.asarray(total / self.tallies().steps)

    def _raised(self) -> Vector:
        return self.coordinates[:, 0 if self.settings.p == 2.0 else 1]

    def _iterate(self) -> Vector:
        """w_T = ∇r*(λ / ((T+t0)σ)), on the ball if there is one."""
        s = self.settings
        q_less_1 = dual_exponent(s.p)
        q, power_sum, scale = (
            q_less_1 + 1.0,
            max(0.0, self.scalars[loops.POWER_SUM]),
            self.scalars[loops.SCALE],
        )
        if power_sum == 0.0:
            return np.zeros(len(self.coordinates))
        clock = (self.steps + s.t0) * s.sigma
        norm = scale * power_sum ** (1.0 / q) / clock / q_less_1
        multiplier = scale * power_sum ** ((2.0 - q) / q) / clock / q_less_1
        return np.asarray(self._raised() * (multiplier * min(1.0, s.radius / norm)))

    def gap(self) -> float:
        """The certificate: an upper bound, in expectation, of F(average) - min F over the steps that it covers.

        (1/T) Σ [σ·r(w) + <g, w>] + σ·r*((λ_T - λ_start)/(Tσ)), for the T steps since `start`.
        """
        tallies = self.tallies()
        if tallies.steps == 0:
            return math.inf
        s = self.settings
        start = self.earlier.start_dual if self._needs_earlier() else self.stretch_start
        size = _distance(self.coordinates[:, 0], start, dual_exponent(s.p) + 1.0) / (tallies.steps * s.sigma)
        return (tallies.regularizer + tallies.linear) / tallies.steps + s.sigma * _conjugate(size, s.p, s.radius)

    def dual_sha256(self) -> str:
        digest = hashlib.sha256()
        for first in range(0, len(self.coordinates), _PART):
            digest.update(self.coordinates[first : first + _PART, 0].tobytes())
        return digest.hexdigest()

    @property
    def nbytes(self) -> int:
        vectors = (self.coordinates, self.earlier.start_dual, self.earlier.iterate_sum, self.stretch_start, self.kept)
        return sum(vector.nbytes for vector in vectors)

    # The state as named vectors and numbers, for a checkpoint.

    def to_record(self) -> tuple[dict[str, Vector], dict[str, Any]]:
        vectors = {
            "stretch_start": self.stretch_start,
            "earlier_start": self.earlier.start_dual,
            "earlier_iterate_sum": self.earlier.iterate_sum,
            "kept": self.kept,
        }
        for slot, name in enumerate(self._slot_names()):
            vectors[name] = self.coordinates[:, slot].copy()
        numbers = {
            "steps": self.steps,
            "scalars": self.scalars.tolist(),
            "stretch_began": self.stretch_began,
            "earlier_tallies": list(astuple(self.earlier.tallies)),
            "kept_count": self.kept_count,
            "next_kept": self.next_kept,
        }
        return {name: vector for name, vector in vectors.items() if vector.size}, numbers

    @staticmethod
    def from_record(settings: PgsSettings, vectors: dict[str, Vector], numbers: dict[str, Any]) -> Pgs:
        solver = Pgs(settings)
        nothing = np.zeros(0)
        solver.coordinates = np.ascontiguousarray(np.stack([vectors[name] for name in solver._slot_names()], axis=1))
        solver.stretch_start = vectors["stretch_start"]
        solver.earlier = Stretch(
            vectors["earlier_start"],
            vectors.get("earlier_iterate_sum", nothing),
            Tallies(*numbers["earlier_tallies"]),
        )
        solver.kept = vectors.get("kept", nothing)
        solver.steps = numbers["steps"]
        solver.scalars = np.array(numbers["scalars"])
        solver.stretch_began = numbers["stretch_began"]
        solver.kept_count = numbers["kept_count"]
        solver.next_kept = numbers["next_kept"]
        return solver

    def _slot_names(self) -> list[str]:
        return [
            "dual",
            *(["raised"] if self.settings.p != 2.0 else []),
            *(["iterate_sum"] if self.averaging else []),
        ]


def bytes_per_feature(p: float, returns: str) -> int:
    """What one feature takes in the state."""
    averaging = returns in (SUFFIX, AVERAGE)
    vectors = (1 if p == 2.0 else 2) + 2 + 2 * averaging + (returns == RANDOM)
    return 8 * vectors


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
    """t0 = 1/(σ·η0), with the first step η0 as long as the loss's steepness and the rows' q-norms allow."""
    steepness = LOSSES[loss].steepness
    return max(1.0, steepness * mean_squared_norm / sigma)
