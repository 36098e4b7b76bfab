"""Solvers with steps of a fixed size: the size is given, or found by a race of lanes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Learner, StepChange
from streampgs.learn.lines import Scale
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.state import LANE, Field, Merge, State
from streampgs.options.commands import MOST_CANDIDATES, ModelOptions
from streampgs.options.fields import values_of

# In units of the longest step that converges on rows of mean length. The last iterate of a longer one is noise, unless the
# classes are far apart.
STEP_LADDER = tuple(10.0 ** (step / 2.0) for step in range(-6, 3))
# Many passes over few rows: smaller steps have the time to arrive, and few rows may be far apart.
WHOLE_LADDER = tuple(10.0 ** (step / 2.0) for step in range(-8, 5))
_USUAL_STEP = 0.1
_WIDEST_RACE = 1 << 21  # features; with more, the lanes of a race would take gigabytes
STOPPED = Field((LANE,), Merge.SUM, low=0.0)
"""In how many rows a lane did not learn because it had diverged: see kernels/divergence.py."""


@dataclass(frozen=True)
class L1StepOptions:
    l1: float
    step: float
    varies: ClassVar[tuple[str, ...]] = ("l1", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.l1 >= 0.0 and self.step > 0.0, f"l1 {self.l1}, step {self.step}")


class StepCandidates(Candidates):
    """A race where the step is to be found. Of equally good candidates the first one is returned, so smaller steps come
    first: they will still improve."""

    searched: ClassVar[tuple[str, ...]] = ("step",)
    of_whole_table: ClassVar[tuple[float, ...]] = WHOLE_LADDER
    """The steps that are compared by cross-validation."""

    def searches(self, options: ModelOptions) -> bool:
        return options.step == "auto"

    def count(self, options: ModelOptions, targets: int) -> int:
        steps = len(ladder(STEP_LADDER, options, targets, self.combinations(options)))
        return self.combinations(options) * (steps if options.step == "auto" else len(values_of(options.step)))

    def combinations(self, options: ModelOptions) -> int:
        """Of the other options."""
        return int(np.prod([len(values_of(getattr(options, name))) for name in self.others]))

    def steps(self, options: ModelOptions, scale: Scale, longest: float) -> list[float]:
        if options.step != "auto":
            return [float(step) for step in values_of(options.step)]
        if scale.features > _WIDEST_RACE:
            return [_USUAL_STEP * longest]
        rungs = self.of_whole_table if scale.whole else STEP_LADDER
        return [rung * longest for rung in ladder(rungs, options, scale.targets, self.combinations(options))]

    def with_steps(self, spec: LaneSpec, change: StepChange, steps: int) -> LaneSpec:
        """Longer rows would overshoot. `from_zero` has nothing left to change: it follows."""
        step = spec.own.step * change.length_before / change.length
        return replace(spec, sigma=spec.sigma * change.sigma, own=replace(spec.own, step=step))


class L1StepCandidates(StepCandidates):
    """Grids of l1 and step."""

    others: ClassVar[tuple[str, ...]] = ("l1",)
    judged_by_loss: ClassVar[bool] = True

    def norm(self, scale: Scale) -> PNorm:
        return EUCLID

    def own(self, options: ModelOptions, scale: Scale, l1: float, step: float) -> L1StepOptions:
        return L1StepOptions(l1, step)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        if options.l1 is None:
            raise OptionError(
                f"`--solver {options.solver}` without --l1", "give `--l1 1e-5`, or several values to compare"
            )
        norm = self.norm(scale)
        base = replace(base, norm=norm, intercept=scale.intercept(norm, averaged=False))
        steps = self.steps(options, scale, longest_step(scale, norm, averaged=False))
        pairs = [(float(l1), step) for l1 in values_of(options.l1) for step in steps]
        return [replace(base, own=self.own(options, scale, l1, step)) for l1, step in pairs]


class StepLearner(Learner):
    """A lane that diverges stops, so that the others can continue. It needs a field `stopped`."""

    remedy_of_divergence = "in a new run give a smaller --step, or scale the features or the weights of rows down"

    def stopped(self, state: State) -> NDArray[np.bool_]:
        return np.asarray(state["stopped"] > 0.0)

    def change_steps(self, state: State, change: StepChange) -> None:
        self.settle(state)


def longest_step(scale: Scale, norm: PNorm, averaged: bool) -> float:
    """1/(curvature·(q-1)·mean ‖x‖_q²): the link of the q-norm is q - 1 times as steep as the identity."""
    strength = scale.loss.curvature * (norm.q - 1.0) * scale.mean_squared_norm(norm, averaged)
    return scale.unit / max(strength, 1e-300)


def ladder(rungs: tuple[float, ...], options: ModelOptions, targets: int, others: int) -> tuple[float, ...]:
    """As much of the ladder as the number of candidates allows, given targets, losses and other options."""
    fitting = MOST_CANDIDATES // (targets * len(options.losses) * others)
    if fitting < 2:
        return (_USUAL_STEP,)
    return rungs if fitting >= len(rungs) else STEP_LADDER[1::2][-fitting:]
