"""L-BFGS: the batch baseline. Each pass over the rows gives one gradient, at a trial point w + a·d.

The direction d comes from the last moves and the changes of the gradient that they caused (Liu & Nocedal 1989). A pass sums
the losses at w as well as at the trial point, so that the line search compares values over the same rows, also when rows
were added or removed since the pass before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from streampgs.base.checks import require
from streampgs.kernels import lbfgs_loop as loops
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.passes import PassCandidates, PassLearner, PassOptions
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Pack, Sizes, State
from streampgs.losses import LOSSES, Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.solvers import SOLVERS, Needs

PAIRS = 10
"""So many moves are remembered."""
# Of the largest second derivative of a loss: its usual mean over rows.
_USUAL_CURVATURE = 0.25
_MOST_PAIRS = 1 << 52


def _row_sums(sizes: Sizes) -> State:
    """Gradients and squares of a coordinate next to each other, as rows add to both."""
    lanes = sizes[LANE]
    whole = np.zeros((sizes[COORDINATE], lanes + 1))
    return {"row_sums": whole, "gradient_sum": whole[:, :lanes], "squares": whole[:, lanes]}


class LbfgsCandidates(PassCandidates):
    def combinations(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        own = PassOptions(scale.mean_loss_at_zero())
        return [replace(base, sigma=sigma, own=own) for sigma in self.sigmas(options, scale)]

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, sigma=1.0, own=PassOptions(1.0))]


class Lbfgs(PassLearner):
    """Lanes that differ in σ, the target and the parameter of the loss."""

    Options: ClassVar[type] = PassOptions
    candidates: ClassVar[Candidates] = LbfgsCandidates()
    needs: ClassVar[Needs] = SOLVERS["l-bfgs"].needs
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
            "products": Field((PAIRS, loops.PRODUCTS, LANE), Merge.SAME),
            "numbers": Field((loops.NUMBERS, LANE), Merge.SAME, low=0.0),
        }
        self._curvature = _USUAL_CURVATURE * LOSSES[self.spec.loss].curvature

    def check(self, state: State) -> None:
        require(bool((state["numbers"][loops.PAIRS] <= _MOST_PAIRS).all()), "too many pairs")

    def trial(self, state: State) -> Vector:
        return np.asarray(state["numbers"][loops.STEP])

    def finish_pass(self, state: State) -> None:
        points = state["points"].reshape(len(state["points"]), -1)
        loops.finish(
            points, state["gradient"], state["row_sums"], state["pairs"], state["products"], state["numbers"],
            state["sums"], self.sigmas, self._curvature, state["stopped"],
        )  # fmt: skip

    def restart_averages(self, state: State) -> None:
        """σ may have changed, and then the gradient of F is not known any more."""
        super().restart_averages(state)
        state["numbers"] = state["numbers"].copy()
        state["numbers"][loops.KNOWN_ROWS] = 0.0

    def gradient_square(self, state: State, lane: int) -> float | None:
        known = state["numbers"][loops.KNOWN_ROWS, lane] > 0.0
        return float(state["numbers"][loops.GRADIENT_NORM, lane]) if known else None
