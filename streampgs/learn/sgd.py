"""Stochastic gradient descent with steps of a fixed size; the result is the average of all iterates.

Minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - η·(σ·w_t + g_t) (Algorithm 2 of C. Zhang's Lecture 22, OGD for
Strongly Convex Functions and Kernel Methods).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels import sgd_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Lines, Scale, labels_of
from streampgs.learn.norms import EUCLID
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.learn.step_sizes import STEP_LADDER, STOPPED, StepCandidates, StepLearner, longest_step
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

# In the unit of the ladder of PGS. The step matters more, so there are few; the average regularizes, too.
_SIGMAS = (0.01, 0.3, 10.0)


@dataclass(frozen=True)
class SgdOptions:
    step: float
    varies: ClassVar[tuple[str, ...]] = ("sigma", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.step > 0.0, f"step {self.step}")


class SgdCandidates(StepCandidates):
    """Grids of σ and the step; a race where one of them is to be found."""

    searched: ClassVar[tuple[str, ...]] = ("sigma", "step")
    of_whole_table = STEP_LADDER

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        base = replace(base, intercept=scale.intercept(EUCLID))
        steps = self.steps(options, scale, longest_step(scale, EUCLID, averaged=True))
        pairs = [(sigma, step) for sigma in _sigmas(options, scale) for step in _fitting(options, steps, sigma)]
        if not pairs:
            raise _too_large(min(steps), min(_sigmas(options, scale)))
        return [replace(base, sigma=sigma, own=SgdOptions(step)) for sigma, step in pairs]

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, own=SgdOptions(1.0))]

    def searches(self, options: ModelOptions) -> bool:
        return "auto" in (options.step, options.sigma)

    def combinations(self, options: ModelOptions) -> int:
        return len(_SIGMAS if options.sigma == "auto" else values_of(options.sigma))

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss, step=leader.own.step)


def _sigmas(options: ModelOptions, scale: Scale) -> list[float]:
    if options.sigma != "auto":
        return [float(sigma) for sigma in values_of(options.sigma)]
    unit = scale.loss.curvature * max(scale.mean_squared_norm(EUCLID), 1e-300) / max(1, scale.rows) / scale.unit
    return [step * unit for step in _SIGMAS]


def _fitting(options: ModelOptions, steps: Sequence[float], sigma: float) -> list[float]:
    """A step multiplies the weights by 1 - step·σ, which must be positive."""
    fitting = [step for step in steps if step * sigma < 1.0]
    if options.step == "auto":
        return fitting or [0.5 / sigma]
    if options.sigma != "auto" and len(fitting) < len(steps):
        raise _too_large(max(steps), sigma)
    return fitting


def _too_large(step: float, sigma: float) -> OptionError:
    return OptionError(
        f"`--step {step:g}` with `--sigma {sigma:g}`: such a step changes the signs of all weights",
        f"give a --step below {1.0 / sigma:g}",
    )


class Sgd(StepLearner):
    """Lanes that differ in σ, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = SgdOptions
    candidates: ClassVar[Candidates] = SgdCandidates()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        vector = Field((COORDINATE, LANE), Merge.MEAN)
        self.stretches = Stretches({"iterate_sum": vector._replace(merge=Merge.SUM, role=Role.AVERAGE)}, whole=True)
        self.fields = {
            "dual": vector._replace(role=Role.DUAL),
            "scale": Field((LANE,), Merge.DERIVED, fill=1.0, low=0.0),
            "scale_sum": Field((LANE,), Merge.SUM, low=0.0),
            "steps": counter(Merge.MEAN),
            "stopped": STOPPED,
            **self.stretches.fields,
        }
        self.parameters = self.target_parameters(loops.PARAMETERS)
        self.parameters[loops.STEP] = [s.own.step for s in specs]
        self.parameters[loops.DECAY] = [1.0 - s.own.step * s.sigma for s in specs]
        self._advance = loops.advance_for(LOSSES[self.spec.loss], self.spec.layout)

    def check(self, state: State) -> None:
        require(all(0.0 <= s.own.step * s.sigma < 1.0 for s in self.specs), "steps that are too large for sigma")
        require(bool((state["scale"] > 0.0).all()), "a scale of 0")

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        s = self.spec
        state["steps"][...] = self._advance(
            state["dual"], state["iterate_sum"], state["scale"], state["scale_sum"], state["stopped"], state["tallies"],
            self.parameters, lines.starts, lines.stops, lines.indices, lines.values, labels_of(lines), lines.weights,
            lines.offsets, first, stop, s.batch, int(state["steps"]), copies, s.intercept,
        )  # fmt: skip

    def settle(self, state: State) -> None:
        loops.fold_all(state["dual"], state["iterate_sum"], state["scale"], state["scale_sum"])

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
