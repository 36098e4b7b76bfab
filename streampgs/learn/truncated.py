"""Truncated gradient: stochastic gradient steps of a fixed size, and weights that shrink to exactly zero.

Minimises (1/m) Σ loss + l1·‖w‖₁ (TRUNCGRAD in Shalev-Shwartz & Tewari, Stochastic Methods for ℓ1-regularized Loss
Minimization, §4; Langford, Li & Zhang 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import truncated_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Lines, labels_of
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.learn.step_sizes import STOPPED, L1StepCandidates, L1StepOptions, StepLearner
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions


class TruncatedCandidates(L1StepCandidates):
    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, own=L1StepOptions(0.0, 1.0))]


class TruncatedGradient(StepLearner):
    """Lanes that differ in l1, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = L1StepOptions
    candidates: ClassVar[Candidates] = TruncatedCandidates()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.stretches = Stretches({})
        self.fields = {
            "weights": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL),
            "caught": Field((COORDINATE,), Merge.MEAN, dtype=np.int64, low=0),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters = self.target_parameters(loops.PARAMETERS)
        self.parameters[loops.STEP] = [s.own.step for s in specs]
        self.parameters[loops.SHRINK] = [s.own.step * s.scaled_l1 for s in specs]
        self._advance = loops.advance_for(LOSSES[self.spec.loss], self.spec.layout)

    def check(self, state: State) -> None:
        require(bool((state["caught"] <= state["steps"]).all()), "weights that have shrunk in steps to come")

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        state["steps"][...] = self._advance(
            state["weights"], state["caught"], state["stopped"], state["tallies"], self.parameters, lines.starts,
            lines.stops, lines.indices, lines.values, labels_of(lines), lines.weights, lines.offsets, first, stop,
            self.spec.batch, int(state["steps"]), copies, self.spec.intercept,
        )  # fmt: skip

    def settle(self, state: State) -> None:
        loops.settle(state["weights"], state["caught"], int(state["steps"]), self.parameters)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """Of the last step, settled."""
        chosen = np.arange(len(state["caught"])) if at is None else at
        weights = state["weights"][chosen, lane]
        missed = np.where(chosen == 0, 0, state["steps"] - state["caught"][chosen])
        shrunk = np.maximum(0.0, np.abs(weights) - missed * self.parameters[loops.SHRINK, lane])
        return np.asarray(np.copysign(shrunk, weights))
