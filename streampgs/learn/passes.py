"""Learners of whole passes: they sum losses and gradients over all rows, and change their weights at the end of each pass.

Their problem is that of PGS with p = 2: F(w) = σ/2·‖w‖² + mean loss, the intercept included.

Gradient descent has steps of a fixed size, w ← w - η·∇F(w), and returns the average of all iterates.

L-BFGS is the batch baseline. Each pass gives one gradient, at a trial point w + a·d. The direction d comes from the last moves
and the changes of the gradient that they caused (Liu & Nocedal 1989). A pass sums the losses at w as well as at the trial
point, so that the line search compares values over the same rows, also when rows were added or removed since the pass before.
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
from streampgs.kernels import lbfgs_loop
from streampgs.kernels import pass_loop as loops
from streampgs.kernels.rows import Rows
from streampgs.learn.held_rows import HeldRows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import (
    Candidates,
    Certified,
    Converges,
    HoldsOut,
    Learner,
    Passes,
    Stops,
    refuse_divergence,
    target_parameters,
)
from streampgs.learn.lines import Scale, rows_of
from streampgs.learn.norms import EUCLID
from streampgs.learn.pgs_options import SIGMA_LADDER, WHOLE_LADDER, sigma_unit, usual_sigma
from streampgs.learn.state import COORDINATE, LANE, Field, Fields, Merge, Pack, Role, Sizes, State, counter
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

# Training is over when the certificate is below this share of the mean loss of weights that are zero.
_CONVERGED = 1e-6
_NONE_HELD = np.empty(0, np.bool_)
PAIRS = 10
"""So many moves are remembered."""
# The usual mean over rows of the second derivative of a loss, as a share of the largest one.
_USUAL_CURVATURE = 0.25
_MOST_PAIRS = 1 << 52


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
    """Several candidates are compared on rows that are held out, if there are no validation rows."""

    judged_by_loss: ClassVar[bool] = True

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        base = replace(base, intercept=scale.intercept(EUCLID))
        found = self.combinations(options, scale, base)
        rivals = len(found) * len(options.losses) > 1 and not options.validation and not self.searches(options)
        return [replace(spec, own=replace(spec.own, holds_out=rivals)) for spec in found]

    @abstractmethod
    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        """Every combination of the solver's options."""


def safe_step(scale: Scale, sigma: float) -> float:
    """The inverse of the largest curvature of F, as a sample of rows shows it."""
    return 1.0 / (scale.loss.curvature * max(scale.largest_square(EUCLID), 1e-300) / scale.unit + sigma)


class PassLearner(Learner, Passes, Converges, Certified, HoldsOut, Stops):
    """`points` holds for each coordinate the weights, and a direction along which the gradient is taken, if there is one."""

    points: ClassVar[int] = 1
    row_sums: ClassVar[str] = "gradient_sum"
    """The array of the gradients, and of squares if they are needed."""

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
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
        self.parameters = target_parameters(self.columns, loops.PARAMETERS)
        self.sigmas = np.array([spec.sigma for spec in self.columns])
        if not LOSSES[self.spec.loss].smooth:
            raise OptionError(f"`--loss {self.spec.loss}` with `--solver {self.spec.learner}`", "use a smooth loss")
        self._accumulate = loops.accumulate_for(LOSSES[self.spec.loss], self.spec.layout)
        self._held = HeldRows(self.spec.seed)

    # Steps.

    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        held = self._held.of(lines)[first:stop] if self.holds_out(state) else _NONE_HELD
        self._accumulate(
            state["points"].reshape(len(state["points"]), -1), state[self.row_sums], state["sums"], state["tallies"],
            self.trial(state), self.parameters, rows_of(lines), held, first, stop, self.spec.intercept,
        )  # fmt: skip
        state["steps"] += copies * -(-(stop - first) // self.spec.batch)

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
            refuse_divergence(self, state)
        return has_rows

    @abstractmethod
    def finish_pass(self, state: State) -> None:
        """Change the weights: all rows have been visited once."""

    # Results.

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["points"][slice(None) if at is None else at, 0, lane])

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


# Gradient descent.


@dataclass(frozen=True)
class DescentOptions(PassOptions):
    step: float
    varies: ClassVar[tuple[str, ...]] = ("sigma", "step")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.step > 0.0, f"step {self.step}")


class DescentCandidates(PassCandidates):
    """It is too slow to search for σ with it: the usual value of `pgs` is taken."""

    grid: ClassVar[tuple[str, ...]] = ("sigma", "step")
    example: ClassVar[PassOptions] = DescentOptions(loss_at_zero=1.0, step=1.0)

    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        loss, found = scale.mean_loss_at_zero(), []
        for given in values_of(options.sigma):
            sigma = usual_sigma(scale, scale.mean_squared_norm(EUCLID)) if given == "auto" else float(given)
            for step in values_of(options.step):
                chosen = safe_step(scale, sigma) if step == "auto" else float(step)
                found.append(replace(base, sigma=sigma, own=DescentOptions(loss_at_zero=loss, step=chosen)))
        return found


class GradientDescent(PassLearner):
    """Lanes that differ in σ, the step, the target and the parameter of the loss."""

    Options: ClassVar[type] = DescentOptions
    candidates: ClassVar[Candidates] = DescentCandidates()
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


# L-BFGS.


def _row_sums(sizes: Sizes) -> State:
    """Gradients and squares of a coordinate next to each other, as rows add to both."""
    lanes = sizes[LANE]
    whole = np.zeros((sizes[COORDINATE], lanes + 1))
    return {"row_sums": whole, "gradient_sum": whole[:, :lanes], "squares": whole[:, lanes]}


class LbfgsCandidates(PassCandidates):
    """Values of σ. Where it is to be found: cross-validation on a small table, and on a large one validation rows; without
    any, one usual value."""

    example: ClassVar[PassOptions] = PassOptions(1.0)

    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        own = PassOptions(scale.mean_loss_at_zero())
        return [replace(base, sigma=sigma, own=own) for sigma in _sigmas(options, scale)]

    def count(self, options: ModelOptions) -> int:
        return len(values_of(options.sigma)) if options.sigma != "auto" else len(WHOLE_LADDER)

    def searches(self, options: ModelOptions) -> bool:
        return options.sigma == "auto"


def _sigmas(options: ModelOptions, scale: Scale) -> list[float]:
    if options.sigma != "auto":
        return [float(sigma) for sigma in values_of(options.sigma)]
    ladder = WHOLE_LADDER if scale.whole else SIGMA_LADDER
    unit = sigma_unit(scale, scale.mean_squared_norm(EUCLID))
    return [step * unit for step in reversed(ladder)]


class Lbfgs(PassLearner):
    """Lanes that differ in σ, the target and the parameter of the loss."""

    Options: ClassVar[type] = PassOptions
    candidates: ClassVar[Candidates] = LbfgsCandidates()
    points: ClassVar[int] = 2
    row_sums: ClassVar[str] = "row_sums"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        sums = Field((COORDINATE, LANE), Merge.SUM, pack=Pack("row_sums", _row_sums))
        self.fields = {
            **self.fields,
            "gradient_sum": sums,
            "squares": sums._replace(axes=(COORDINATE,)),
            "gradient": Field((COORDINATE, LANE), Merge.SAME),
            "pairs": Field((PAIRS, 2, COORDINATE, LANE), Merge.SAME),
            "products": Field((PAIRS, lbfgs_loop.PRODUCTS, LANE), Merge.SAME),
            "numbers": Field((lbfgs_loop.NUMBERS, LANE), Merge.SAME, low=0.0),
        }
        self._curvature = _USUAL_CURVATURE * LOSSES[self.spec.loss].curvature

    def check(self, state: State) -> None:
        require(bool((state["numbers"][lbfgs_loop.PAIRS] <= _MOST_PAIRS).all()), "too many pairs")

    def trial(self, state: State) -> Vector:
        return np.asarray(state["numbers"][lbfgs_loop.STEP])

    def finish_pass(self, state: State) -> None:
        points = state["points"].reshape(len(state["points"]), -1)
        lbfgs_loop.finish(
            points, state["gradient"], state["row_sums"], state["pairs"], state["products"], state["numbers"],
            state["sums"], self.sigmas, self._curvature, state["stopped"],
        )  # fmt: skip

    def restart_averages(self, state: State) -> None:
        """σ may have changed, and then the gradient of F is not known any more."""
        super().restart_averages(state)
        state["numbers"] = state["numbers"].copy()
        state["numbers"][lbfgs_loop.KNOWN_ROWS] = 0.0

    def gradient_square(self, state: State, lane: int) -> float | None:
        known = state["numbers"][lbfgs_loop.KNOWN_ROWS, lane] > 0.0
        return float(state["numbers"][lbfgs_loop.GRADIENT_NORM, lane]) if known else None
