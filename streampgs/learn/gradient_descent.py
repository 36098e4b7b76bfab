"""Gradient descent with steps of a fixed size: after each pass over the rows, w ← w - η·∇F(w). The result is the average of
all iterates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels import pass_loop as loops
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.norms import EUCLID
from streampgs.learn.passes import PassCandidates, PassLearner, PassOptions, safe_step
from streampgs.learn.pgs_options import usual_sigma
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of
from streampgs.options.solvers import SOLVERS, Needs


@dataclass(frozen=True)
class DescentOptions(PassOptions):
    step: float
    varies: ClassVar[tuple[str, ...]] = ("sigma", "step")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.step > 0.0, f"step {self.step}")


class DescentCandidates(PassCandidates):
    """It is too slow to search for σ with it: the usual value of `pgs` is taken."""

    def sigmas(self, options: ModelOptions, scale: Scale) -> list[float]:
        if options.sigma == "auto":
            return [usual_sigma(scale, scale.mean_squared_norm(EUCLID))]
        return super().sigmas(options, scale)

    def searches(self, options: ModelOptions) -> bool:
        return False

    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        loss, found = scale.mean_loss_at_zero(), []
        for sigma in self.sigmas(options, scale):
            for step in values_of(options.step):
                chosen = safe_step(scale, sigma) if step == "auto" else float(step)
                found.append(replace(base, sigma=sigma, own=DescentOptions(loss_at_zero=loss, step=chosen)))
        return found

    def count(self, options: ModelOptions, targets: int) -> int:
        return len(values_of(options.sigma)) * len(values_of(options.step))

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, sigma=1.0, own=DescentOptions(loss_at_zero=1.0, step=1.0))]


class GradientDescent(PassLearner):
    """Lanes that differ in σ, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = DescentOptions
    candidates: ClassVar[Candidates] = DescentCandidates()
    needs: ClassVar[Needs] = SOLVERS["gradient-descent"].needs
    remedy_of_divergence = "in a new run give a smaller --step, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.fields = {
            **self.fields,
            "iterate_sum": Field((COORDINATE, LANE), Merge.SAME, Role.AVERAGE),
            "gradient_squares": Field((LANE,), Merge.SAME, Role.AVERAGE, low=0.0),
            "iterates": counter(role=Role.AVERAGE),
        }
        self._steps = np.array([spec.own.step for spec in self.columns])

    def finish_pass(self, state: State) -> None:
        state["iterates"] += 1
        loops.descend(
            state["points"].reshape(len(state["points"]), -1), state["gradient_sum"], state["iterate_sum"],
            state["gradient_squares"], state["sums"], self.sigmas, self._steps, state["stopped"],
        )  # fmt: skip

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        count = int(state["iterates"])
        if not count:
            return super().weights(state, lane, at)
        return np.asarray(state["iterate_sum"][slice(None) if at is None else at, lane] / count)

    def gradient_square(self, state: State, lane: int) -> float | None:
        """F of the average is at most the mean of F over the iterates."""
        count = int(state["iterates"])
        return float(state["gradient_squares"][lane]) / count if count else None
