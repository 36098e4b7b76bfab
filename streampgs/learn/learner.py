"""What a learner is.

A learner holds specs and compiled loops; everything that changes is in its state (see state.py). It declares `fields` and
needs `step` and `weights`. The rest has defaults. A new learner is one file with a class like TruncatedGradient, and one
line in solvers.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import decode
from streampgs.errors import Diverged
from streampgs.kernels.targets import BASE, CLASS, LABEL, SHAPE, UNIT
from streampgs.learn import state as states
from streampgs.learn.averaging import Stretches, Tallies
from streampgs.learn.candidates import Candidates
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.norms import PNorm
from streampgs.learn.state import COORDINATE, LANE, Each, Fields, Role, Sizes, State
from streampgs.solvers import SOLVERS

Vector = NDArray[np.float64]


def learner_named(name: str) -> type[Learner]:
    if name not in SOLVERS:
        raise ValueError(f"solver {name!r:.50}")
    module, _, own = SOLVERS[name].path.partition(":")
    return getattr(import_module(module), own)  # type: ignore[no-any-return]


class Lines(Protocol):
    """A window: rows in visiting order."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    """One of a row, or a column for each label."""
    weights: NDArray[np.float64]
    """Empty: all rows count once."""
    offsets: NDArray[np.float64]
    """Added to the rows' scores; empty: nothing is added."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each row in the table. Computed when asked for."""


class EmptyRow:
    """A window with one row without entries, to compile loops with."""

    starts = stops = np.zeros(1, np.int64)
    indices = np.empty(0, np.uint32)
    values = np.empty(0, np.float32)
    labels = np.ones(1)
    weights = offsets = np.empty(0)
    numbers = np.zeros(1, np.int64)


def labels_of(lines: Lines) -> NDArray[np.float64]:
    """With a column for each label."""
    return lines.labels if lines.labels.ndim == 2 else lines.labels[:, np.newaxis]


@dataclass(frozen=True)
class Needs:
    """What a learner needs of its source and its engine."""

    lines: Literal["rows", "columns"] = "rows"
    keeps: Literal["none", "zero", "score"] = "none"
    """A value per row and lane between visits; it starts at zero, or at the row's score."""


class Learner:
    """Several lanes that step on each row together and differ in numbers only."""

    needs: ClassVar[Needs] = Needs()
    Options: ClassVar[type]
    """Its own options: a frozen dataclass that checks itself. `varies`: names of the numbers by which candidates differ,
    its own or those of LaneSpec; `shared`: names of its options that all lanes of a group have in common."""
    candidates: ClassVar[Candidates] = Candidates()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        self.specs = tuple(specs)
        self.spec = specs[0]
        """For everything that the lanes have in common."""
        self.width = self.width_for(self.spec.norm, len(specs))
        """Columns of the arrays: may be more than there are lanes; the others repeat the last lane and are not used."""
        if len({spec.group for spec in specs}) != 1 or len(specs) > self.most_lanes(self.spec.norm):
            raise ValueError(f"{len(specs)} lanes that do not belong together")
        self.fields: Fields = {}
        self.stretches = Stretches({})
        self.columns = [specs[min(column, len(specs) - 1)] for column in range(self.width)]
        """The spec of each column."""

    def target_parameters(self, rows: int) -> Vector:
        """An array of parameters whose first rows are those of kernels/targets.py."""
        found = np.zeros((rows, self.width))
        for column, s in enumerate(self.columns):
            positive = math.nan if s.target.positive is None else s.target.positive
            own = s.shape, s.target.column, positive, 1.0 / s.scale, s.base / s.scale
            found[[SHAPE, LABEL, CLASS, UNIT, BASE], column] = own
        return found

    # Each learner writes these.

    def step(self, state: State, lines: Lines, first: int, stop: int, copies: int = 1) -> None:
        """Step over rows [first, stop), each step over `batch` rows. With several copies each change, and the step count,
        is counted `copies` times."""
        raise NotImplementedError

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The weights to return, the intercept's coordinate first; or those of some coordinates. Must not change the
        state."""
        raise NotImplementedError

    # These have defaults.

    @classmethod
    def most_lanes(cls, norm: PNorm) -> int:
        """How many lanes a group may have."""
        return 16

    @classmethod
    def width_for(cls, norm: PNorm, lanes: int) -> int:
        return lanes

    @classmethod
    def warm_up(cls, spec: LaneSpec, lanes: int) -> None:
        """Compile, or load from the cache, what the first step needs."""
        learner = cls([spec] * lanes)
        state = learner.init(1)
        learner.step(state, EmptyRow(), 0, 1)
        learner.rebuild(state)

    def sizes(self, coordinates: int) -> Sizes:
        return {COORDINATE: coordinates, LANE: self.width}

    def init(self, coordinates: int) -> State:
        return states.fresh(self.fields, self.sizes(coordinates))

    def check(self, state: State) -> None:
        """Raise ValueError for numbers that no training can have left, beyond what the fields say."""

    def settle(self, state: State) -> None:
        """Bring lazily computed fields up to date: before a merge or a restart."""

    def rebuild(self, state: State) -> None:
        """Compute derived fields again: after a merge or a restart."""

    def end_stretch(self, state: State) -> bool:
        """Do the work of this step count, if there is any; a function of the state, never of where a call ends."""
        if not self.stretches.is_over(state):
            return False
        self.stretches.begin(state)
        return True

    def copies(self, coordinates: int, count: int) -> list[State]:
        return states.copies_of(self.fields, self.sizes(coordinates), count)

    def spread(self, state: State, copies: Sequence[State], each: Each) -> None:
        """Let the copies of other workers continue from the state."""
        states.spread(self.fields, state, copies)

    def merge(self, state: State, copies: Sequence[State], each: Each) -> None:
        """Put the copies' changes into the state, and let the copies continue from there."""
        for one in (state, *copies):
            self.settle(one)
        states.merge(self.fields, state, copies)
        self.rebuild(state)
        self.refuse_divergence(state)
        self.end_stretch(state)
        self.spread(state, copies, each)

    def restart_averages(self, state: State) -> None:
        """Averages and certificate begin again here; the steps continue."""
        self.settle(state)
        states.empty_averages(self.fields, state)
        state["stretch_began"][...] = state["steps"]
        self.rebuild(state)

    def tallies(self, state: State, lane: int) -> Tallies:
        return self.stretches.tallies(state, lane)

    def certificate(self, state: State, lane: int) -> float | None:
        """A bound on the distance from the optimum; None if the learner has none."""
        return None

    @classmethod
    def is_certified(cls) -> bool:
        """Whether it has a bound on the distance from the optimum."""
        return cls.certificate is not Learner.certificate

    def learned(self, state: State, lane: int) -> Vector:
        """The vector that identifies the lane's training; digests are made of it."""
        name = next(name for name, field in self.fields.items() if field.role is Role.DUAL)
        return np.asarray(state[name][:, lane])

    def refuse_divergence(self, state: State) -> None:
        if not all(np.isfinite(state[name]).all() for name, field in self.fields.items() if field.axes[-1:] == (LANE,)
                   and COORDINATE not in field.axes):  # fmt: skip
            raise Diverged(
                f"the numbers left the finite range before step {int(state['steps']):,}", self.remedy_of_divergence
            )

    remedy_of_divergence: ClassVar[str] = "scale the features down"


def lane_spec(record: dict[str, Any]) -> LaneSpec:
    """A spec that was read back; raises ValueError for one that no run can have."""
    own: Any = decode(learner_named(record["learner"]).Options, record["own"])
    return replace(decode(LaneSpec, {**record, "own": None}), own=own)
