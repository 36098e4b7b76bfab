"""Learners of whole passes: they sum losses and gradients over all rows, and change their weights at the end of each pass.

Their problem is that of PGS with p = 2: F(w) = σ/2·‖w‖² + mean loss, the intercept included.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels import pass_loop as loops
from streampgs.learn.averaging import Stretches
from streampgs.learn.held_rows import HeldRows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Certified, Converges, HoldsOut, Learner, Passes, Stops
from streampgs.learn.lines import Lines, Scale, labels_of
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import USUAL_SIGMA, WHOLE_LADDER
from streampgs.learn.state import COORDINATE, LANE, Field, Fields, Merge, Role, State, counter
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of
from streampgs.options.solvers import Needs

# Training is over when the certificate is below this share of the mean loss of weights that are zero.
_CONVERGED = 1e-6
# σ in units of curvature·mean ‖x‖²/rows, where validation rows tell which one is best.
_LADDER = WHOLE_LADDER[::2]
_NONE_HELD = np.empty(0, np.bool_)


@dataclass(frozen=True)
class PassOptions:
    loss_at_zero: float
    """The mean loss of weights that are zero, from the first rows."""
    holds_out: bool = field(default=False, kw_only=True)
    """Whether some rows are held out to compare candidates."""
    varies: ClassVar[tuple[str, ...]] = ("sigma",)
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.loss_at_zero >= 0.0, f"mean loss {self.loss_at_zero} of weights that are zero")


class PassCandidates(Candidates):
    """Values of σ. Where it is to be found: cross-validation on a small table, and on a large one validation rows; without
    any, one usual value. Several candidates are compared on rows that are held out, if there are no validation rows."""

    judged_by_loss: ClassVar[bool] = True

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        base = replace(base, intercept=scale.intercept(EUCLID))
        found = self.combinations(options, scale, base)
        rivals = len(found) * len(options.losses) > 1 and not options.validation and not scale.whole
        return [replace(spec, own=replace(spec.own, holds_out=rivals)) for spec in found]

    @abstractmethod
    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        """Of the solver's options."""

    def sigmas(self, options: ModelOptions, scale: Scale) -> list[float]:
        if options.sigma != "auto":
            return [float(sigma) for sigma in values_of(options.sigma)]
        ladder = WHOLE_LADDER if scale.whole else _LADDER if options.validation else (USUAL_SIGMA,)
        unit = scale.loss.curvature * max(scale.mean_squared_norm(EUCLID), 1e-300) / max(1, scale.rows) / scale.unit
        return [step * unit for step in reversed(ladder)]

    def count(self, options: ModelOptions, targets: int) -> int:
        return len(values_of(options.sigma)) if options.sigma != "auto" else len(WHOLE_LADDER)

    def searches(self, options: ModelOptions) -> bool:
        return options.sigma == "auto"


def safe_step(scale: Scale, sigma: float) -> float:
    """The inverse of the largest curvature of F, as a sample of rows shows it."""
    return 1.0 / (scale.loss.curvature * max(scale.largest_square(EUCLID), 1e-300) / scale.unit + sigma)


class PassLearner(Learner, Passes, Converges, Certified, HoldsOut, Stops):
    """`points` holds for each coordinate the weights, and a direction along which the gradient is taken, if there is one."""

    needs: ClassVar[Needs] = Needs(passes=True, smooth=True)
    points: ClassVar[int] = 1
    row_sums: ClassVar[str] = "gradient_sum"
    """The array of the gradients, and of squares if they are needed."""

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.stretches = Stretches({})
        self.fields: Fields = {
            "points": Field((COORDINATE, self.points, LANE), Merge.SAME, Role.DUAL),
            "gradient_sum": Field((COORDINATE, LANE), Merge.SUM),
            "sums": Field((loops.SUMS, LANE), Merge.SUM),
            "stopped": Field((LANE,), Merge.SAME, low=0.0),
            "steps": counter(Merge.MEAN),
            "epoch": counter(),
            "released": counter(),
            **self.stretches.fields,
        }
        self.parameters = self.target_parameters(loops.PARAMETERS)
        self.sigmas = np.array([spec.sigma for spec in self.columns])
        if not LOSSES[self.spec.loss].smooth:
            raise OptionError(f"`--loss {self.spec.loss}` with `--solver {self.spec.learner}`", "use a smooth loss")
        self._accumulate = loops.accumulate_for(LOSSES[self.spec.loss], self.spec.layout)
        self._held = HeldRows(self.spec.seed)

    # Steps.

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        held = self._held.of(lines)[first:stop] if self.holds_out(state) else _NONE_HELD
        self._accumulate(
            state["points"].reshape(len(state["points"]), -1), state[self.row_sums], state["sums"], state["tallies"],
            self.trial(state), self.parameters, lines.starts, lines.stops, lines.indices, lines.values, labels_of(lines),
            lines.weights, lines.offsets, held, first, stop, self.spec.intercept,
        )  # fmt: skip
        state["steps"] += copies * -(-(stop - first) // self.spec.batch)

    def holds_out(self, state: State) -> bool:
        return bool(self.spec.own.holds_out and not state["released"])

    def release_rows(self, state: State) -> None:
        state["released"][...] = 1

    def restart_averages(self, state: State) -> None:
        """The run may continue with other candidates, which are compared again."""
        super().restart_averages(state)
        state["released"][...] = 0

    def trial(self, state: State) -> Vector:
        """How far along the direction the gradient is taken."""
        return np.zeros(self.width)

    def reach_epoch(self, state: State, epoch: int) -> bool:
        if epoch <= int(state["epoch"]):
            return False
        state["epoch"][...] = epoch
        has_rows = bool(state["sums"][loops.ROWS].any())
        if has_rows:
            self.finish_pass(state)
            state[self.row_sums][...] = 0.0
            state["sums"][...] = 0.0
            self.refuse_divergence(state)
        return has_rows

    @abstractmethod
    def finish_pass(self, state: State) -> None:
        """Change the weights: all rows have been visited once."""

    # Results.

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["points"][slice(None) if at is None else at, 0, lane])

    def learned(self, state: State, lane: int) -> Vector:
        return np.ascontiguousarray(state["points"][:, 0, lane])

    def certificate(self, state: State, lane: int) -> float:
        """F(w) - min F ≤ ‖∇F(w)‖²/(2σ), because F is strongly convex."""
        square, sigma = self.gradient_square(state, lane), float(self.sigmas[lane])
        return math.inf if square is None or self.stopped(state)[lane] else square / (2.0 * sigma)

    @abstractmethod
    def gradient_square(self, state: State, lane: int) -> float | None:
        """‖∇F‖² at the weights that are returned, or a bound on it; None before it is known."""

    def has_converged(self, state: State) -> bool:
        stopped, specs = self.stopped(state), enumerate(self.specs)
        return all(
            stopped[lane] or self.certificate(state, lane) <= _CONVERGED * spec.own.loss_at_zero for lane, spec in specs
        )
