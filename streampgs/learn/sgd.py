"""Stochastic gradient descent with steps of a fixed size; the result is the average of all iterates.

Minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - η·(σ·w_t + g_t) (Algorithm 2 of C. Zhang's Lecture 22, OGD for
Strongly Convex Functions and Kernel Methods).
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
from streampgs.kernels import sgd_loop as loops
from streampgs.kernels.row_steps import Steps
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import usual_sigma
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Pack, Role, Sizes, State, counter
from streampgs.learn.step_sizes import STOPPED, StepLearner, steps_of
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of


@dataclass(frozen=True)
class SgdOptions:
    step: float
    varies: ClassVar[tuple[str, ...]] = ("sigma", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.step > 0.0, f"step {self.step}")


class SgdCandidates(Candidates):
    """Grids of σ and the step."""

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

    def count(self, options: ModelOptions, targets: int) -> int:
        return len(values_of(options.sigma)) * len(values_of(options.step))

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss, step=leader.own.step)

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, own=SgdOptions(1.0))]


class Sgd(StepLearner):
    """Lanes that differ in σ, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = SgdOptions
    candidates: ClassVar[Candidates] = SgdCandidates()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        vector, scalars = Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL), Pack("scalars", _scalars)
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

    def steps(self) -> Steps:
        return loops.steps_for(self.spec.layout)

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["dual"], state["iterate_sum"], state["scalars"]

    def check(self, state: State) -> None:
        require(all(0.0 <= s.own.step * s.sigma < 1.0 for s in self.specs), "steps that are too large for sigma")
        require(bool((state["scale"] > 0.0).all()), "a scale of 0")

    def settle(self, state: State) -> None:
        loops.fold(*self.arrays(state))

    def end_stretch(self, state: State) -> bool:
        if self.stretches.is_over(state):
            self.settle(state)
        return super().end_stretch(state)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """The average of the weights from which the steps started."""
        chosen = (slice(None) if at is None else at, lane)
        covered = self.stretches.steps_covered(state)
        if covered == 0:
            return np.asarray(state["scale"][lane] * state["dual"][chosen])
        present = state["scale_sum"][lane] * state["dual"][chosen] + state["iterate_sum"][chosen]
        return np.asarray(self.stretches.with_earlier(state, "iterate_sum", chosen, present) / covered)


def _scalars(sizes: Sizes) -> State:
    whole = np.zeros((2, sizes[LANE]))
    return {"scalars": whole, "scale": whole[loops.SCALE], "scale_sum": whole[loops.SCALE_SUM]}
