"""PGS with the entropy as its regularizer (EG±): for wide rows of which few features matter.

Minimises (1/m) Σ loss + σ·Σ |w|-entropy over weights whose sum of absolute values is at most B (Kivinen & Warmuth 1997; PGS
paper, §VII). The rows that it needs grow like the logarithm of the number of features, as with p = 2 ln n/(2 ln n - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import entropic_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import NOTHING, Scale
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import (
    AVERAGE,
    SUFFIX,
    DualAverager,
    PgsOptions,
    automatic_t0,
    usual_sigma,
)
from streampgs.learn.state import COORDINATE, LANE, Array, Field, Merge, Role, State, counter
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of
from streampgs.options.solvers import SMALLEST_P

_LARGEST = PNorm(SMALLEST_P)
"""The norm of rows is that of their largest feature, nearly."""


@dataclass(frozen=True)
class EntropicOptions(PgsOptions):
    varies: ClassVar[tuple[str, ...]] = ("ball", "sigma", "t0")

    def __post_init__(self) -> None:
        right = self.ball is not None and self.ball > 0.0 and self.returns in (SUFFIX, AVERAGE)
        require(right, f"ball {self.ball}, return {self.returns!r:.50}")


class EntropicCandidates(Candidates):
    """Grids of the ball and σ. It is too slow to search for σ with it: the usual value of `pgs` is taken."""

    others: ClassVar[tuple[str, ...]] = ("ball",)
    grid: ClassVar[tuple[str, ...]] = ("ball", "sigma")
    example: ClassVar[EntropicOptions] = EntropicOptions(1.0, 1.0, SUFFIX)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        base, found = replace(base, intercept=scale.intercept(_LARGEST)), []
        for ball in map(float, values_of(options.ball)):
            norms = max(1.0, ball) * scale.mean_squared_norm(_LARGEST)  # the entropy is 1/B times as convex as ‖w‖₁²/2
            for sigma in values_of(options.sigma):
                sigma = usual_sigma(scale, norms) if sigma == "auto" else float(sigma)
                own = EntropicOptions(automatic_t0(scale.loss, sigma * scale.unit, norms), ball, SUFFIX)
                found.append(replace(base, sigma=sigma, own=own))
        return found

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        return replace(options, loss=leader.loss, ball=leader.own.ball)


class Entropic(DualAverager):
    """Lanes that differ in the ball, σ, t0, the target and the parameter of the loss."""

    Options: ClassVar[type] = EntropicOptions
    candidates: ClassVar[Candidates] = EntropicCandidates()
    steps_for = staticmethod(loops.steps_for)
    remedy_of_divergence = "give a larger --sigma, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        average = Field((COORDINATE, LANE), Merge.MEAN, Role.AVERAGE)
        self.stretches = Stretches({"iterate_sum": average}, self.spec.own.returns == AVERAGE)
        self.fields = {
            "dual": average._replace(role=Role.DUAL),
            "steps": counter(Merge.MEAN),
            **self.stretches.fields,
        }
        for column, s in enumerate(specs):
            self.parameters[[loops.SIGMA, loops.T0, loops.RADIUS], column] = s.sigma, s.own.t0, s.own.ball

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["dual"], state["iterate_sum"], NOTHING

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        chosen = slice(None) if at is None else at
        covered, steps = self.stretches.steps_covered(state), int(state["steps"])
        if covered:
            sums = self.stretches.with_earlier(state, "iterate_sum", (chosen, lane), state["iterate_sum"][chosen, lane])
            return np.asarray(sums / covered)
        weights = np.zeros((len(state["dual"]), 1))
        if steps:
            loops.fill(np.ascontiguousarray(state["dual"][:, [lane]]), weights, steps, self.parameters[:, [lane]])
        return weights[chosen, 0]
