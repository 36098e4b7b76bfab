"""PGS with l1 (composite dual averaging): weights are exactly zero where their features have little effect.

Minimises (1/m) Σ loss + σ/2·‖w‖² + l1·‖w‖₁ by w_t = soft(λ, t·l1) / ((t + t0)σ) (Xiao, Dual Averaging Methods for
Regularized Stochastic Learning and Online Optimization, 2010). Returned are averages of iterates. An average would be
zero nowhere, because nearly every weight is nonzero for a few steps; so weights that were zero in most steps are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import composite_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Continuation, StepChange
from streampgs.learn.lines import NOTHING, Scale
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import (
    AVERAGE,
    LAST,
    SUFFIX,
    DualAverager,
    DualContinuation,
    PgsCandidates,
    PgsOptions,
    dual_factor,
    usual_sigma,
)
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Pack, Role, Sizes, State, counter, pack_of_rows
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

_FEWEST_NONZERO = 0.25  # of the steps: a weight that was zero more often is returned as zero
_SETTLE_STEPS = 1 << 18
_PART = 1 << 18  # coordinates looked at together


@dataclass(frozen=True)
class CompositeOptions(PgsOptions):
    l1: float = 0.0
    l1_steps: float = 0.0
    """Steps that count as taken before the first one where λ is compared with l1, because the steps were changed."""
    varies: ClassVar[tuple[str, ...]] = ("l1", "sigma", "t0")

    def __post_init__(self) -> None:
        right = self.l1 >= 0.0 and self.ball is None and self.returns in (SUFFIX, AVERAGE, LAST)
        require(right, f"l1 {self.l1}, ball {self.ball}, return {self.returns!r:.50}")


class CompositeCandidates(PgsCandidates):
    """Grids of l1 and σ. σ is searched for if there is one l1; several l1 all train to the end."""

    others: ClassVar[tuple[str, ...]] = ("l1",)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        norms = scale.mean_squared_norm(EUCLID)
        if options.sigma == "auto" and not self.searches(options):
            options = replace(options, sigma=usual_sigma(scale, norms))
        plain = super().of(replace(options, ball="none"), scale, base)
        return [
            replace(spec, own=CompositeOptions(spec.own.t0, None, spec.own.returns, l1=float(l1)))
            for l1 in values_of(options.l1)
            for spec in plain
        ]

    def count(self, options: ModelOptions) -> int:
        sigmas = super().count(options) if options.sigma != "auto" or self.searches(options) else 1
        return len(values_of(options.l1)) * sigmas

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, sigma=1.0, own=CompositeOptions(1.0, None, options.returns))]

    def searches(self, options: ModelOptions) -> bool:
        return options.sigma == "auto" and len(values_of(options.l1)) == 1

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss, l1=leader.own.l1)


class CompositeContinuation(DualContinuation):
    def continued(self, spec: LaneSpec, before: LaneSpec, steps: int) -> LaneSpec:
        own = replace(super().continued(spec, before, steps).own, l1_steps=before.own.l1_steps)
        return replace(spec, own=own)

    def with_steps(self, spec: LaneSpec, change: StepChange, steps: int) -> LaneSpec:
        """λ and the threshold that it is compared with are multiplied by the same number."""
        l1_steps = dual_factor(spec, change, steps) * (steps + spec.own.l1_steps) - steps
        changed = super().with_steps(spec, change, steps)
        return replace(changed, own=replace(changed.own, l1_steps=l1_steps))

    def from_zero(self, spec: LaneSpec, length: float) -> LaneSpec:
        begun = super().from_zero(spec, length)
        return replace(begun, own=replace(begun.own, l1_steps=0.0))


class Composite(DualAverager):
    """Lanes that differ in l1, σ, t0, the target and the parameter of the loss."""

    Options: ClassVar[type] = CompositeOptions
    candidates: ClassVar[Candidates] = CompositeCandidates()
    steps_for = staticmethod(loops.steps_for)
    continuation: ClassVar[Continuation] = CompositeContinuation()
    remedy_of_divergence = "give a larger --t0 or --sigma, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        vector = Field((COORDINATE, LANE), Merge.MEAN, pack=Pack("numbers", self._numbers))
        averages = {"iterate_sum": vector, "nonzero_steps": vector}
        averages = {name: field._replace(role=Role.AVERAGE) for name, field in averages.items()}
        self.stretches = Stretches(averages, self.spec.own.returns == AVERAGE)
        pack = pack_of_rows("sums", multiplier_sum=0, threshold_sum=1, step_sum=2)
        scalar = Field((LANE,), Merge.MEAN, pack=pack)
        self.fields = {
            "dual": vector._replace(role=Role.DUAL),
            "known": vector._replace(axes=(COORDINATE,), low=0.0),
            "multiplier_sum": scalar,
            "threshold_sum": scalar,
            "step_sum": scalar,
            "steps": counter(Merge.MEAN),
            "settled": counter(),
            **self.stretches.fields,
        }
        for column, s in enumerate(specs):
            own = s.sigma, s.own.t0, s.scaled_l1, s.own.l1_steps
            self.parameters[[loops.SIGMA, loops.T0, loops.L1, loops.L1_STEPS], column] = own

    def _numbers(self, sizes: Sizes) -> State:
        """The numbers of a feature that a step needs are next to each other: see kernels/composite_loop.py."""
        lanes = sizes[LANE]
        whole = np.zeros((sizes[COORDINATE], loops.PARTS * lanes + 1))
        names = ("dual", "iterate_sum", "nonzero_steps")
        views = {name: whole[:, part * lanes : (part + 1) * lanes] for part, name in enumerate(names)}
        return {"numbers": whole, "known": whole[:, -1], **views}

    def check(self, state: State) -> None:
        super().check(state)
        require(bool((state["known"] <= state["steps"]).all()), "sums of steps to come")

    # Steps.

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["numbers"], NOTHING, state["sums"]

    def settle(self, state: State) -> None:
        loops.settle(state["numbers"], state["sums"], int(state["steps"]), self.parameters)

    def steps_left(self, state: State) -> int:
        return min(super().steps_left(state), _SETTLE_STEPS - int(state["steps"]) % _SETTLE_STEPS)

    def end_stretch(self, state: State) -> bool:
        parts = int(state["steps"]) // _SETTLE_STEPS
        if parts > int(state["settled"]):
            self.settle(state)
            state["settled"][...] = parts
        return super().end_stretch(state)

    # Results.

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        chosen = np.arange(len(state["dual"])) if at is None else at
        parts = [self._weights(state, lane, chosen[first : first + _PART]) for first in range(0, len(chosen), _PART)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _weights(self, state: State, lane: int, chosen: NDArray[np.int64]) -> Vector:
        covered = self.stretches.steps_covered(state)
        if self.spec.own.returns == LAST or covered == 0:
            return self._iterate(state, lane, chosen)
        sums, nonzero = (
            self.stretches.with_earlier(state, name, (chosen, lane), part)
            for name, part in zip(("iterate_sum", "nonzero_steps"), self._settled(state, lane, chosen), strict=True)
        )
        kept = (nonzero >= _FEWEST_NONZERO * covered) | (chosen == 0)
        return np.asarray(np.where(kept, sums, 0.0) / covered)

    def _settled(self, state: State, lane: int, chosen: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """The sums of iterates and the steps with a weight, up to date; the state stays."""
        rows = np.concatenate([[0], chosen])  # the first one has no l1
        columns = np.array([lane, self.width + lane, 2 * self.width + lane, loops.PARTS * self.width])
        numbers = state["numbers"][np.ix_(rows, columns)]
        loops.settle(numbers, state["sums"][:, [lane]], int(state["steps"]), self.parameters[:, [lane]])
        numbers[1:][chosen == 0] = numbers[0]
        return numbers[1:, 1], numbers[1:, 2]

    def _iterate(self, state: State, lane: int, chosen: NDArray[np.int64]) -> Vector:
        steps, dual = int(state["steps"]), state["dual"][chosen, lane]
        sigma, t0, l1, l1_steps = self.parameters[[loops.SIGMA, loops.T0, loops.L1, loops.L1_STEPS], lane].tolist()
        size = np.maximum(0.0, np.abs(dual) - np.where(chosen == 0, 0.0, (steps + l1_steps) * l1))
        return np.copysign(size, dual) / ((steps + t0) * sigma) if steps else np.zeros(len(dual))
