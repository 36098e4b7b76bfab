"""What a learner is.

A learner holds specs and compiled loops; everything that changes is in its state (see state.py). It declares `fields` and
needs `run` and `weights`. The rest has defaults, and roles that only some learners have are classes to inherit from. A new
learner is one file with a class like TruncatedGradient, and one line in solvers.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import decode
from streampgs.base.errors import Diverged
from streampgs.kernels.row_steps import BASE, CLASS, LABEL, SHAPE, UNIT, Steps, advance_for
from streampgs.kernels.rows import Rows, one_row
from streampgs.learn import state as states
from streampgs.learn.averaging import Stretches, Tallies
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lines import NOTHING, Scale, rows_of
from streampgs.learn.norms import PNorm
from streampgs.learn.state import Array, Each, Fields, Role, State
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of
from streampgs.options.solvers import LEARNERS


def learner_named(name: str) -> type[Learner]:
    if name not in LEARNERS:
        raise ValueError(f"solver {name!r:.50}")
    module, _, own = LEARNERS[name].partition(":")
    return getattr(import_module(module), own)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class StepChange:
    """Other steps for a table that has grown."""

    sigma: float
    """By which sigma is multiplied."""
    length_before: float = 1.0
    """The mean ‖x‖² of the rows so far, as a multiple of that of the first ones, and at least 1."""
    length: float = 1.0
    """The same for the rows to come: if they are longer, steps must be shorter."""


class Candidates(ABC):
    """The specs of a learner's lanes before their first step. The defaults are those of a learner that searches for no
    value."""

    grid: ClassVar[tuple[str, ...]] = ()
    """The options that may have several values: each combination is a candidate."""
    example: ClassVar[Any] = None
    """Own options with the loops of all candidates, if they are known without any rows."""

    others: ClassVar[tuple[str, ...]] = ()
    """Its other numbers that may have several values. Candidates that differ in them are never tied."""
    judged_by_loss: ClassVar[bool] = False
    """Whether classifiers without probabilities are compared by their loss, and not by the logistic loss at the best scale
    of their scores."""

    @abstractmethod
    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        """Every combination of its options, for one loss. `base` has everything but norm, sigma and own options."""

    def count(self, options: ModelOptions) -> int:
        """How many candidates of one loss and one norm there are at most."""
        return math.prod(len(values_of(getattr(options, name))) for name in self.grid)

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        """Specs with the loops of the first step, as far as they are known without any rows."""
        return [replace(base, sigma=1.0, own=self.example)] if self.example else []

    def searches(self, options: ModelOptions) -> bool:
        """Whether a value is found before the first step, so that one candidate is left."""
        return False

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        """The options for candidates that continue from this one with another sigma."""
        return replace(options, loss=leader.loss)


class Continuation:
    """How lanes continue from a state. The defaults are those of a learner whose steps do not depend on their number."""

    def whole(self, spec: LaneSpec) -> LaneSpec:
        """The spec of a lane whose averages are of all steps since they began, if it returns an average."""
        return spec

    def with_steps(self, spec: LaneSpec, change: StepChange, steps: int) -> LaneSpec:
        """The spec of a lane that continues with other steps, and whose weights stay: see ChangesSteps."""
        return spec

    def from_zero(self, spec: LaneSpec, length: float) -> LaneSpec:
        """The spec of a lane that begins again, on rows whose mean ‖x‖² is `length` times that of the first ones."""
        return spec

    def continued(self, spec: LaneSpec, before: LaneSpec, steps: int) -> LaneSpec:
        """The spec of a lane that continues from the state of another one."""
        return spec


class Learner(ABC):
    """Several lanes that step on each row together and differ in numbers only."""

    Options: ClassVar[type]
    """Its own options: a frozen dataclass that checks itself. `varies`: names of the numbers by which candidates differ,
    its own or those of LaneSpec; `shared`: names of its options that all lanes of a group have in common."""
    candidates: ClassVar[Candidates]
    continuation: ClassVar[Continuation] = Continuation()
    remedy_of_divergence: ClassVar[str] = "scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        self.specs = tuple(specs)
        self.spec = specs[0]
        """For everything that the lanes have in common."""
        if len({spec.group for spec in specs}) != 1 or len(specs) > self.widths(self.spec.norm)[-1]:
            raise ValueError(f"{len(specs)} lanes that do not belong together")
        self.width = width_for(type(self), self.spec.norm, len(specs))
        """Columns of the arrays: may be more than there are lanes; the others repeat the last lane and are not used."""
        self.fields: Fields = {}
        self.stretches = Stretches({})
        self.columns = [specs[min(column, len(specs) - 1)] for column in range(self.width)]
        """The spec of each column."""

    # Each learner writes these.

    @abstractmethod
    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        """Step over rows [first, stop), each step over `batch` rows. With several copies each change, and the step count,
        is counted `copies` times."""

    @abstractmethod
    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The weights to return, the intercept's coordinate first; or those of some coordinates. Must not change the
        state."""

    # These have defaults.

    @classmethod
    def widths(cls, norm: PNorm) -> Sequence[int]:
        """How many columns its arrays may have, in ascending order; the last number is the largest group of lanes."""
        return range(1, 17)

    def init(self, coordinates: int) -> State:
        return states.fresh(self.fields, states.sizes_of(coordinates, self.width))

    def check(self, state: State) -> None:
        """Raise ValueError for numbers that no training can have left, beyond what the fields say."""

    def settle(self, state: State) -> None:
        """Bring fields that are computed lazily, or from others, up to date: before and after a merge and a restart."""

    def steps_left(self, state: State) -> int:
        """Until `end_stretch` has work to do: a function of the step count alone."""
        return self.stretches.steps_left(state)

    def end_stretch(self, state: State) -> bool:
        """Do the work of this step count, if there is any; a function of the state, never of where a call ends."""
        if not self.stretches.is_over(state):
            return False
        if len(self.stretches.sums) > 1:  # those of iterates are complete when they are put aside
            self.settle(state)
        self.stretches.begin(state)
        return True

    def restart_averages(self, state: State) -> None:
        """Averages and certificate begin again here; the steps continue."""
        self.settle(state)
        states.empty_averages(self.fields, state)
        state["stretch_began"][...] = state["steps"]
        self.settle(state)

    def fade_averages(self, state: State, steps: int) -> None:
        """The steps so far count less in averages and certificate from now on: as if so many of them were forgotten, but at
        least half. The lane must keep its averages whole."""
        self.settle(state)
        self.stretches.fade(state, steps)
        self.settle(state)

    def tallies(self, state: State, lane: int) -> Tallies:
        return self.stretches.tallies(state, lane)


# The same for all learners.


def width_for(learner: type[Learner], norm: PNorm, lanes: int) -> int:
    """The columns of the arrays of so many lanes."""
    return next(width for width in learner.widths(norm) if width >= lanes)


def target_parameters(columns: Sequence[LaneSpec], rows: int) -> Vector:
    """An array of parameters whose first rows are those of kernels/row_steps.py."""
    found = np.zeros((rows, len(columns)))
    for column, s in enumerate(columns):
        positive = math.nan if s.target.positive is None else s.target.positive
        own = s.shape, s.target.column, positive, 1.0 / s.scale, s.base / s.scale
        found[[SHAPE, LABEL, CLASS, UNIT, BASE], column] = own
    return found


def step(learner: Learner, state: State, lines: Rows, first: int, stop: int, copies: int = 1) -> None:
    """Run, and do the work of certain step counts between the runs. With several copies a merge does that work."""
    while first < stop:
        until = stop if copies > 1 else min(stop, first + learner.steps_left(state) * learner.spec.batch)
        learner.run(state, lines, first, until, copies)
        first = until
        if copies == 1:
            refuse_divergence(learner, state)
            learner.end_stretch(state)


def refuse_divergence(learner: Learner, state: State) -> None:
    if not all(np.isfinite(state[name]).all() for name in states.arrays_of_lanes(learner.fields)):
        raise Diverged(
            f"the numbers left the finite range before step {int(state['steps']):,}", learner.remedy_of_divergence
        )


def spread(learner: Learner, state: State, copies: Sequence[State], each: Each) -> None:
    """Let the copies of other workers continue from the state."""
    if isinstance(learner, Merges):
        learner.spread(state, copies, each)
    else:
        states.spread(learner.fields, state, copies)


def merge(learner: Learner, state: State, copies: Sequence[State], each: Each) -> None:
    """Put the copies' changes into the state, and let the copies continue from there."""
    if isinstance(learner, Merges):
        learner.merge(state, copies, each)
        return
    for one in (state, *copies):
        learner.settle(one)
    states.merge(learner.fields, state, copies)
    learner.settle(state)
    refuse_divergence(learner, state)
    learner.end_stretch(state)
    states.spread(learner.fields, state, copies)


def learned(learner: Learner, state: State, lane: int) -> Vector:
    """The vector that identifies the lane's training; digests are made of it. Of a field with an axis more, the first."""
    name = next(name for name, field in learner.fields.items() if field.role is Role.DUAL)
    array = state[name][..., lane]
    return np.ascontiguousarray(array if array.ndim == 1 else array[:, 0])


def warm_up(learner: type[Learner], spec: LaneSpec, lanes: int) -> None:
    """Compile, or load from the cache, all that training needs."""
    one = learner([spec] * lanes)
    state = one.init(2)  # with one coordinate, arrays in the order of rows and of columns would have the same type
    step(one, state, one_row(spec.layout == "sparse"), 0, 1)
    if isinstance(one, Passes):
        one.reach_epoch(state, 1)
    one.settle(state)
    one.weights(state, 0)
    if isinstance(one, Certified):
        one.certificate(state, 0)


# Roles that some learners have besides. The engine and the lanes ask for them.


class Passes(ABC):
    """A learner whose weights change when a pass over all rows is over."""

    @abstractmethod
    def reach_epoch(self, state: State, epoch: int) -> bool:
        """The epochs before this one are over. Whether the weights have changed."""


class Converges(ABC):
    """A learner that knows whether more epochs over the same rows would hardly change any lane."""

    @abstractmethod
    def has_converged(self, state: State) -> bool: ...


class Certified(ABC):
    """A learner with a bound on the distance from the optimum."""

    @abstractmethod
    def certificate(self, state: State, lane: int) -> float | None:
        """The bound; None if it is not known yet."""

    def relative_gap(self, state: State, lane: int) -> float | None:
        """The certificate as a share of the objective of weights 0; None if it is not known for the present rows."""
        return None


class HoldsOut:
    """A learner that holds out rows to compare candidates, if its options say so. Its state has a field `released`."""

    spec: LaneSpec

    def holds_out(self, state: State) -> bool:
        """Whether it holds rows out now."""
        return bool(self.spec.own.holds_out and not state["released"])

    def release_rows(self, state: State) -> None:
        """The best candidate is known: train on the rows that were held out, too."""
        state["released"][...] = 1


class Stops:
    """A learner whose lanes stop when they have diverged, although their numbers are finite."""

    def stopped(self, state: State) -> NDArray[np.bool_]:
        """The lanes that do not learn any more. The state has a field `stopped`, with the number of reasons."""
        return np.asarray(state["stopped"] > 0.0)


class Merges(ABC):
    """A learner with a loop of its own for what its fields say about merges."""

    @abstractmethod
    def spread(self, state: State, copies: Sequence[State], each: Each) -> None: ...

    @abstractmethod
    def merge(self, state: State, copies: Sequence[State], each: Each) -> None: ...


class ChangesSteps(ABC):
    """A learner whose lanes can continue with other steps."""

    @abstractmethod
    def change_steps(self, state: State, change: StepChange) -> None:
        """Before all lanes continue with them; the weights stay."""


class RowLearner(Learner):
    """A learner that steps row by row, with the loop that all of these share: see kernels/row_steps.py."""

    def __init__(self, specs: Sequence[LaneSpec], parameters: int) -> None:
        """`parameters`: rows of the array of parameters."""
        super().__init__(specs)
        self.parameters = target_parameters(self.columns, parameters)

    steps_for: ClassVar[Callable[[str], Steps]]
    """Gives the steps on rows of a layout."""

    def steps(self) -> Steps:
        """The parts of a step, for the loop."""
        return type(self).steps_for(self.spec.layout)

    @abstractmethod
    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        """The arrays of its steps."""

    @cached_property
    def _advance(self) -> Callable[..., int]:
        return advance_for(self.steps(), LOSSES[self.spec.loss], self.spec.layout)

    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        state["steps"][...] = self._advance(
            *self.arrays(state), state["tallies"], state.get("stopped", NOTHING), self.parameters, rows_of(lines), first,
            stop, self.spec.batch, int(state["steps"]), copies, self.spec.intercept,
        )  # fmt: skip


def lane_spec(record: dict[str, Any]) -> LaneSpec:
    """A spec that was read back; raises ValueError for one that no run can have."""
    own: Any = decode(learner_named(record["learner"]).Options, record["own"])
    return replace(decode(LaneSpec, {**record, "own": None}), own=own)
