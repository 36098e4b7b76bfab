"""PGS in the space of a kernel.

A row is given by its kernels with the support rows, each divided by the length of the support: the coordinates are those of
unit vectors φ(s)/‖φ(s)‖. The gradient of a row, a multiple of φ(x), is projected onto the support that is most like it. If
the row is a support itself, or equal to one, that is the whole gradient, and the steps are exactly those of PGS with p = 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import support_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.pgs_options import AVERAGE, SUFFIX, DualAverager, PgsCandidates, automatic_t0, sigmas_of
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Role, State, counter, pack_by_lane
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions


@dataclass(frozen=True)
class KernelSolverOptions:
    t0: float
    """Steps that count as taken before the first one; negative where sigma was changed during training."""
    returns: str = SUFFIX
    first_divisor: float | None = None
    """t0·σ of a lane that begins from zero, where that of this lane is another number."""
    varies: ClassVar[tuple[str, ...]] = ("sigma", "t0")
    shared: ClassVar[tuple[str, ...]] = ("returns",)

    def __post_init__(self) -> None:
        require(self.returns in (SUFFIX, AVERAGE), f"return {self.returns!r:.50}")


class KernelCandidates(PgsCandidates):
    """Values of sigma."""

    example: ClassVar[KernelSolverOptions] = KernelSolverOptions(1.0)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        square = scale.mean_largest_square()
        base = replace(base, intercept=scale.share_for_intercept(square))
        square += base.intercept**2
        found = []
        for sigma in sigmas_of(options, scale, square):
            own = KernelSolverOptions(automatic_t0(scale.loss, sigma * scale.unit, square))
            found.append(replace(base, sigma=sigma, own=own))
        return found

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss)


class KernelSolver(DualAverager):
    """Lanes that differ in sigma, t0, the target and the parameter of the loss."""

    Options: ClassVar[type] = KernelSolverOptions
    candidates: ClassVar[Candidates] = KernelCandidates()
    steps_for = staticmethod(loops.steps_for)
    remedy_of_divergence = "give a larger --sigma, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        vector = Field(
            (COORDINATE, LANE), Merge.MEAN, Role.DUAL, pack=pack_by_lane("coordinates", "dual", "iterate_sum")
        )
        sums = {"iterate_sum": vector._replace(merge=Merge.SUM, role=Role.AVERAGE)}
        self.stretches = Stretches(sums, self.spec.own.returns == AVERAGE)
        self.fields = {
            "dual": vector,
            "multiplier_sum": Field((LANE,), Merge.SUM),
            "steps": counter(Merge.MEAN),
            **self.stretches.fields,
        }
        self.parameters[loops.SIGMA] = [s.sigma for s in specs]
        self.parameters[loops.T0] = [s.own.t0 for s in specs]

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["dual"].T, state["iterate_sum"].T, state["multiplier_sum"]

    def settle(self, state: State) -> None:
        """The sum of iterates is S·λ + u; put all of it into u."""
        state["iterate_sum"] += state["multiplier_sum"] * state["dual"]
        state["multiplier_sum"][...] = 0.0

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        chosen = (slice(None) if at is None else at, lane)
        covered, steps = self.stretches.steps_covered(state), int(state["steps"])
        if steps == 0:
            return np.zeros(len(state["dual"][chosen]))
        if covered == 0:
            clock = (steps + self.specs[lane].own.t0) * self.specs[lane].sigma
            return np.asarray(state["dual"][chosen] / clock)
        present = state["multiplier_sum"][lane] * state["dual"][chosen] + state["iterate_sum"][chosen]
        return np.asarray(self.stretches.with_earlier(state, "iterate_sum", chosen, present) / covered)
