"""Truncated gradient: stochastic gradient steps of a fixed size, and weights that shrink to exactly zero.

Minimises (1/m) Σ loss + l1·‖w‖₁ (TRUNCGRAD in Shalev-Shwartz & Tewari, Stochastic Methods for ℓ1-regularized Loss
Minimization, §4; Langford, Li & Zhang 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import truncated_loop as loops
from streampgs.kernels.row_steps import Steps
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import NOTHING
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Role, State, counter
from streampgs.learn.step_sizes import STOPPED, L1StepCandidates, L1StepOptions, StepLearner
from streampgs.losses import Vector


class TruncatedGradient(StepLearner):
    """Lanes that differ in l1, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = L1StepOptions
    candidates: ClassVar[Candidates] = L1StepCandidates()

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

    def steps(self) -> Steps:
        return loops.steps_for(self.spec.layout)

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["weights"], state["caught"], NOTHING

    def check(self, state: State) -> None:
        require(bool((state["caught"] <= state["steps"]).all()), "weights that have shrunk in steps to come")

    def settle(self, state: State) -> None:
        loops.settle(state["weights"], state["caught"], int(state["steps"]), self.parameters)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """Of the last step, settled."""
        chosen = np.arange(len(state["caught"])) if at is None else at
        weights = state["weights"][chosen, lane]
        missed = np.where(chosen == 0, 0, state["steps"] - state["caught"][chosen])
        shrunk = np.maximum(0.0, np.abs(weights) - missed * self.parameters[loops.SHRINK, lane])
        return np.asarray(np.copysign(shrunk, weights))
