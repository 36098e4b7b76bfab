"""SMIDAS: stochastic mirror descent made sparse, for problems whose rows are dense and whose optimum is sparse.

Minimises (1/m) Σ loss + l1·‖w‖₁ (Algorithm 3 of Shalev-Shwartz & Tewari, Stochastic Methods for ℓ1-regularized Loss
Minimization, 2011). A gradient step of a fixed size changes θ, then θ shrinks towards zero, and w = ∇(½‖θ‖_q²) with
q = 2 ln(features), so that small θ become very small weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import smidas_loop as loops
from streampgs.kernels.row_steps import Steps
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.norms import PNorm
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Pack, Role, Sizes, State, counter
from streampgs.learn.step_sizes import STOPPED, L1StepCandidates, L1StepOptions, StepLearner
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.solvers import MOST_SHRINK_EVERY, SOLVERS, Needs

_LARGEST_Q = 1000
# The time of a step for a number of a row, as a multiple of the time for a feature when all shrink.
_COST_OF_ENTRY = 10.0


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
    def norm(self, scale: Scale) -> PNorm:
        return norm_for(scale.features)

    def own(self, options: ModelOptions, scale: Scale | None, l1: float, step: float) -> SmidasOptions:
        return SmidasOptions(l1, step, _shrink_every(options, scale) if scale else 1)


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
    needs: ClassVar[Needs] = SOLVERS["smidas"].needs

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        q = round(self.spec.norm.q)
        if self.spec.norm.q != q or q > _LARGEST_Q:
            raise ValueError(f"a norm with q = {self.spec.norm.q}, which is not a whole number up to {_LARGEST_Q}")
        coordinates = Pack("coordinates", _coordinates)
        scalar = Field((LANE,), Merge.DERIVED, low=0.0, pack=Pack("scalars", _scalars))
        self.fields = {
            "dual": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL, pack=coordinates),
            "raised": Field((COORDINATE, LANE), Merge.DERIVED, pack=coordinates),
            **dict.fromkeys(("power_sum", "power_scale", "shrunk"), scalar),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters[loops.SHRINK] = [s.own.step * s.scaled_l1 for s in specs]
        self.parameters[loops.POWER], self.parameters[loops.EVERY] = q, self.spec.own.shrink_every

    def steps(self) -> Steps:
        return loops.steps_for(self.spec.layout)

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        """Each lane's numbers are neighbours: shrinking goes over all of them."""
        return state["dual"].T, state["raised"].T, state["scalars"]

    def check(self, state: State) -> None:
        require(bool((state["shrunk"] <= state["steps"]).all()), "weights that have shrunk in steps to come")

    def settle(self, state: State) -> None:
        """Make up the shrinking of the last steps."""
        loops.settle(*self.arrays(state), int(state["steps"]), self.parameters)

    rebuild = settle

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """Of the last step, as if it had shrunk θ."""
        dual, raised = (np.ascontiguousarray(state[name][:, [lane]].T) for name in ("dual", "raised"))
        scalars, parameters = state["scalars"][:, [lane]], self.parameters[:, [lane]]
        multipliers = loops.settle(dual, raised, scalars, int(state["steps"]), parameters)
        weights = multipliers[0] * raised[0]
        return np.asarray(weights if at is None else weights[at])


def _coordinates(sizes: Sizes) -> State:
    whole = np.zeros((2, sizes[LANE], sizes[COORDINATE]))
    return {"coordinates": whole, "dual": whole[0].T, "raised": whole[1].T}


def _scalars(sizes: Sizes) -> State:
    whole = np.zeros((loops.SCALARS, sizes[LANE]))
    names = {"power_sum": loops.POWER_SUM, "power_scale": loops.SCALE, "shrunk": loops.SHRUNK}
    return {"scalars": whole, **{name: whole[row] for name, row in names.items()}}
