"""Solvers with steps of a fixed size, which is given, or taken from the rows: SGD, the truncated gradient, and SMIDAS.

SGD minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - η·(σ·w_t + g_t), and returns the average of all iterates (Algorithm 2
of C. Zhang's Lecture 22, OGD for Strongly Convex Functions and Kernel Methods).

The truncated gradient minimises (1/m) Σ loss + l1·‖w‖₁ by gradient steps and weights that shrink to exactly zero (TRUNCGRAD in
Shalev-Shwartz & Tewari, Stochastic Methods for ℓ1-regularized Loss Minimization, 2011, §4; Langford, Li & Zhang 2009).

SMIDAS is stochastic mirror descent made sparse, for the same problem where rows are dense and the optimum is sparse (their
Algorithm 3). A gradient step changes θ, then θ shrinks towards zero, and w = ∇(½‖θ‖_q²) with q = 2 ln(features), so that
small θ become very small weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels import fixed_steps_loop as loops
from streampgs.kernels import smidas_loop
from streampgs.kernels.row_steps import STEP
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, RowLearner, Stops
from streampgs.learn.lines import NOTHING, Scale
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.pgs_options import usual_sigma
from streampgs.learn.state import (
    COORDINATE,
    LANE,
    Array,
    Field,
    Merge,
    Role,
    State,
    counter,
    pack_by_lane,
    pack_of_rows,
)
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of
from streampgs.options.solvers import MOST_SHRINK_EVERY

_USUAL_STEP = 0.1  # of the longest step that converges on rows of mean length
_LARGEST_Q = 1000
# The time of a step for a number of a row, as a multiple of the time for a feature when all shrink.
_COST_OF_ENTRY = 10.0
STOPPED = Field((LANE,), Merge.SUM, low=0.0)
"""In how many rows a lane did not learn because it had diverged."""


def steps_of(options: ModelOptions, scale: Scale, norm: PNorm, averaged: bool) -> list[float]:
    """The sizes that are given, or one from the norms of the rows. The longest is 1/(curvature·(q-1)·mean ‖x‖_q²): the link
    of the q-norm is q - 1 times as steep as the identity."""
    if options.step != "auto":
        return [float(step) for step in values_of(options.step)]
    strength = scale.loss.curvature * (norm.q - 1.0) * scale.mean_squared_norm(norm, averaged)
    return [_USUAL_STEP * scale.unit / max(strength, 1e-300)]


@dataclass(frozen=True)
class L1StepOptions:
    l1: float
    step: float
    varies: ClassVar[tuple[str, ...]] = ("l1", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.l1 >= 0.0 and self.step > 0.0, f"l1 {self.l1}, step {self.step}")


class L1StepCandidates(Candidates):
    """Grids of l1 and step."""

    others: ClassVar[tuple[str, ...]] = ("l1",)
    grid: ClassVar[tuple[str, ...]] = ("l1", "step")
    example: ClassVar[L1StepOptions] = L1StepOptions(0.0, 1.0)
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
        pairs = [(float(l1), step) for l1 in values_of(options.l1) for step in steps_of(options, scale, norm, False)]
        return [replace(base, own=self.own(options, scale, l1, step)) for l1, step in pairs]


class StepLearner(RowLearner, Stops):
    """A lane that diverges stops, so that the others can continue. It needs a field `stopped`."""

    remedy_of_divergence = "in a new run give a smaller --step, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec], parameters: int) -> None:
        super().__init__(specs, parameters)
        self.parameters[STEP] = [s.own.step for s in specs]


# SGD.


@dataclass(frozen=True)
class SgdOptions:
    step: float
    varies: ClassVar[tuple[str, ...]] = ("sigma", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.step > 0.0, f"step {self.step}")


class SgdCandidates(Candidates):
    """Grids of σ and the step."""

    grid: ClassVar[tuple[str, ...]] = ("sigma", "step")
    example: ClassVar[SgdOptions] = SgdOptions(1.0)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        usual = usual_sigma(scale, scale.mean_squared_norm(EUCLID))
        sigmas = [usual if sigma == "auto" else float(sigma) for sigma in values_of(options.sigma)]
        pairs = [(sigma, step) for sigma in sigmas for step in steps_of(options, scale, EUCLID, averaged=True)]
        if options.step == "auto":
            pairs = [(sigma, min(step, 0.5 / sigma)) for sigma, step in pairs]
        sigma, step = max(pairs, key=math.prod)
        if sigma * step >= 1.0:
            raise OptionError(
                f"`--step {step:g}` with `--sigma {sigma:g}`: such a step changes the signs of all weights",
                f"give a --step below {1.0 / sigma:g}",
            )
        base = replace(base, intercept=scale.intercept(EUCLID))
        return [replace(base, sigma=sigma, own=SgdOptions(step)) for sigma, step in pairs]

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss, step=leader.own.step)


class Sgd(StepLearner):
    """Lanes that differ in σ, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = SgdOptions
    candidates: ClassVar[Candidates] = SgdCandidates()
    steps_for = staticmethod(loops.sgd_steps)

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        vector = Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL)
        scalars = pack_of_rows("scalars", scale=loops.SCALE, scale_sum=loops.SCALE_SUM)
        self.stretches = Stretches({"iterate_sum": vector._replace(merge=Merge.SUM, role=Role.AVERAGE)}, whole=True)
        self.fields = {
            "dual": vector,
            "scale": Field((LANE,), Merge.DERIVED, fill=1.0, low=0.0, pack=scalars),
            "scale_sum": Field((LANE,), Merge.SUM, low=0.0, pack=scalars),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters[loops.DECAY] = [1.0 - s.own.step * s.sigma for s in specs]

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["dual"], state["iterate_sum"], state["scalars"]

    def check(self, state: State) -> None:
        require(all(0.0 <= s.own.step * s.sigma < 1.0 for s in self.specs), "steps that are too large for sigma")
        require(bool((state["scale"] > 0.0).all()), "a scale of 0")

    def settle(self, state: State) -> None:
        loops.fold(*self.arrays(state))

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The average of the weights from which the steps started."""
        chosen = (slice(None) if at is None else at, lane)
        covered = self.stretches.steps_covered(state)
        if covered == 0:
            return np.asarray(state["scale"][lane] * state["dual"][chosen])
        present = state["scale_sum"][lane] * state["dual"][chosen] + state["iterate_sum"][chosen]
        return np.asarray(self.stretches.with_earlier(state, "iterate_sum", chosen, present) / covered)


# The truncated gradient.


class TruncatedGradient(StepLearner):
    """Lanes that differ in l1, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = L1StepOptions
    candidates: ClassVar[Candidates] = L1StepCandidates()
    steps_for = staticmethod(loops.truncated_steps)

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        self.fields = {
            "weights": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL),
            "caught": Field((COORDINATE,), Merge.MEAN, dtype=np.int64, low=0),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters[loops.SHRINK] = [s.own.step * s.scaled_l1 for s in specs]

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["weights"], state["caught"], NOTHING

    def check(self, state: State) -> None:
        require(bool((state["caught"] <= state["steps"]).all()), "weights that have shrunk in steps to come")

    def settle(self, state: State) -> None:
        loops.settle_truncated(state["weights"], state["caught"], int(state["steps"]), self.parameters)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The weights of the last step, settled."""
        chosen = np.arange(len(state["caught"])) if at is None else at
        weights = state["weights"][chosen, lane]
        missed = np.where(chosen == 0, 0, state["steps"] - state["caught"][chosen])
        shrunk = np.maximum(0.0, np.abs(weights) - missed * self.parameters[loops.SHRINK, lane])
        return np.asarray(np.copysign(shrunk, weights))


# SMIDAS.


@dataclass(frozen=True)
class SmidasOptions(L1StepOptions):
    """q belongs to the norm of the lane."""

    shrink_every: int
    varies: ClassVar[tuple[str, ...]] = ("l1", "step", "p")
    shared: ClassVar[tuple[str, ...]] = ("shrink_every",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.shrink_every <= MOST_SHRINK_EVERY, f"shrinking every {self.shrink_every} steps")


def norm_for(features: int) -> PNorm:
    """q = 2 ln(features), rounded up, as in the paper; at least 2, where the link is the identity."""
    q = max(2, math.ceil(2.0 * math.log(max(1, features))))
    return PNorm(q / (q - 1.0))


class SmidasCandidates(L1StepCandidates):
    example: ClassVar[L1StepOptions] = SmidasOptions(0.0, 1.0, 1)

    def norm(self, scale: Scale) -> PNorm:
        return norm_for(scale.features)

    def own(self, options: ModelOptions, scale: Scale, l1: float, step: float) -> SmidasOptions:
        return SmidasOptions(l1, step, _shrink_every(options, scale))


def _shrink_every(options: ModelOptions, scale: Scale) -> int:
    """Shrinking should cost at most as much as the steps between two shrinkings."""
    if options.shrink_every != "auto":
        return int(options.shrink_every)
    every = scale.features / (_COST_OF_ENTRY * max(1.0, scale.mean_entries))
    return max(1, min(MOST_SHRINK_EVERY, int(every)))


class Smidas(StepLearner):
    """Lanes that differ in l1, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = SmidasOptions
    candidates: ClassVar[Candidates] = SmidasCandidates()
    steps_for = staticmethod(smidas_loop.steps_for)

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, smidas_loop.PARAMETERS)
        q = round(self.spec.norm.q)
        if self.spec.norm.q != q or q > _LARGEST_Q:
            raise ValueError(f"a norm with q = {self.spec.norm.q}, which is not a whole number up to {_LARGEST_Q}")
        coordinates = pack_by_lane("coordinates", "dual", "raised")
        rows = {"power_sum": smidas_loop.POWER_SUM, "power_scale": smidas_loop.SCALE, "shrunk": smidas_loop.SHRUNK}
        scalar = Field((LANE,), Merge.DERIVED, low=0.0, pack=pack_of_rows("scalars", **rows))
        self.fields = {
            "dual": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL, pack=coordinates),
            "raised": Field((COORDINATE, LANE), Merge.DERIVED, pack=coordinates),
            **dict.fromkeys(rows, scalar),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters[smidas_loop.SHRINK] = [s.own.step * s.scaled_l1 for s in specs]
        self.parameters[smidas_loop.POWER], self.parameters[smidas_loop.EVERY] = q, self.spec.own.shrink_every

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        """Each lane's numbers are neighbours: shrinking goes over all of them."""
        return state["dual"].T, state["raised"].T, state["scalars"]

    def check(self, state: State) -> None:
        require(bool((state["shrunk"] <= state["steps"]).all()), "weights that have shrunk in steps to come")

    def settle(self, state: State) -> None:
        """Make up the shrinking of the last steps."""
        smidas_loop.settle(*self.arrays(state), int(state["steps"]), self.parameters)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The weights of the last step, as if it had shrunk θ."""
        dual, raised = (np.ascontiguousarray(state[name][:, [lane]].T) for name in ("dual", "raised"))
        scalars, parameters = state["scalars"][:, [lane]], self.parameters[:, [lane]]
        multipliers = smidas_loop.settle(dual, raised, scalars, int(state["steps"]), parameters)
        weights = multipliers[0] * raised[0]
        return np.asarray(weights if at is None else weights[at])
