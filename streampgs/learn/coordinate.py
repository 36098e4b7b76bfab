"""Coordinate descent: one weight at a time, by the column of its feature (SCD in Shalev-Shwartz & Tewari, Stochastic
Methods for ℓ1-regularized Loss Minimization, §2).

Minimises (1/W) Σ weight·loss + l1·‖w‖₁ + sigma/2·‖w‖², with W the sum of the rows' weights; the intercept is not
regularized. Rows are read first: each gets a place on the row axis, with its label and its score. Then columns are visited,
block by block.

With a bound for each column, a window is one measurement of all partial derivatives of its block at fixed scores, and
then many passes over the columns that matter: those with a weight, and those that violate the optimality conditions
most. The measurement also gives a dual point, and so a true bound on the distance from the optimum. With several blocks
all of them must be measured at the same scores: every third epoch only measures.

With the paper's global bound, each column of a window is visited once, in the order of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels import coordinate_loop as loops
from streampgs.learn.averaging import Tallies
from streampgs.learn.coordinate_gap import DualityGap
from streampgs.learn.coordinate_options import CoordinateCandidates, CoordinateOptions
from streampgs.learn.coordinate_rows import (
    Rows,
    check_rows,
    parameters_of,
    place_rows,
    refuse_other_rows,
    rows_of_lanes,
)
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Learner
from streampgs.learn.lines import EmptyColumn, Lines
from streampgs.learn.norms import PNorm
from streampgs.learn.state import COORDINATE, LANE, ROW, Field, Merge, Role, State, counter, make_room
from streampgs.losses import LOSSES, Vector
from streampgs.options.solvers import SOLVERS, Needs

HELD_OUT = 10
"""With several candidates and no validation rows, one row in so many is held out."""
MEASURE_EVERY = 3
"""Epochs, where there are several blocks, or with the global bound."""
_FEWEST_CHOSEN, _INNER_TOLERANCE = 10, 0.1
MOST_PASSES, _FEWEST_ENTRIES, _BLOCK_SHARE = 1000, 1 << 24, 8
_CONVERGED = 1e-13
_BYTES = 8
_VISITING_NUMBERS = 13
"""Of a column that is worked on: its violation twice, size and place in the order, its coordinate, and the iterates."""


class Coordinate(Learner):
    """Lanes that differ in l1, sigma, the target and the parameter of the loss."""

    needs: ClassVar[Needs] = SOLVERS["coordinate"].needs
    Options: ClassVar[type] = CoordinateOptions
    candidates: ClassVar[Candidates] = CoordinateCandidates()
    bytes_per_column: ClassVar[int] = _BYTES * _VISITING_NUMBERS

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        by_weight, by_row = Field((COORDINATE, LANE), Merge.REFUSED), Field((ROW, LANE), Merge.REFUSED)
        by_column, by_lane = Field((COORDINATE,), Merge.REFUSED, low=0.0), Field((LANE,), Merge.REFUSED)
        self.fields = {
            "scores": by_row,
            "weights": by_weight._replace(role=Role.DUAL),
            "partials": by_weight,
            "squares": by_column,
            "largest": by_column,
            "labels": by_row,
            "slopes": by_row,
            "row_weights": Field((ROW,), Merge.REFUSED),
            **{name: counter(Merge.REFUSED) for name in ("rows", "weighted", "measured", "released", "entries")},
            "total": Field((), Merge.REFUSED, low=0.0),
            "objective": by_lane,
            "bound": by_lane,
            "at_zero": by_lane,
            "held_loss": by_lane,
            "sums": Field((loops.SUMS, LANE), Merge.REFUSED),
            "steps": counter(Merge.MEAN),
        }
        self._loops = loops.loops_for(LOSSES[self.spec.loss], self.spec.loss)
        self._gap = DualityGap(self._loops)
        self._sparse = self.spec.layout == "sparse"

    @classmethod
    def most_lanes(cls, norm: PNorm) -> int:
        return 64

    @classmethod
    def bytes_per_row(cls, lanes: int) -> int:
        working = 1 if lanes == 1 else max(4, lanes)  # of one lane at a time; appending rows may copy an array
        return _BYTES * (3 * lanes + 1 + working)

    @classmethod
    def warm_up(cls, spec: LaneSpec, lanes: int) -> None:
        learner = cls([replace(spec, intercept=1.0)] * lanes)
        state, line = learner.init(2), EmptyColumn()
        learner._append(state, line, 0, 1)
        learner._compile(state, line, parameters_of(learner.columns, state))

    def _compile(self, state: State, lines: Lines, own: Vector) -> None:
        """The loops of columns."""
        self._gap.begin(state, own)
        self._measure(state, lines, 0, 1)
        self._gap.certify(state, own)
        self._work_on_violations(state, lines, own)
        for lane, rows in enumerate(rows_of_lanes(state)):
            self._pass(state, lines, np.zeros(0, np.int64), own, lane, rows, 1)
        self._gap.judge(state, own)

    def check(self, state: State) -> None:
        check_rows(self.specs, state, HELD_OUT if self.holds_out(state) else 0)

    def step(self, state: State, lines: Lines, first: int, stop: int, copies: int = 1) -> None:
        self.run(state, lines, first, stop, copies)
        state["steps"] += stop - first
        self.refuse_divergence(state)

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        (self._append if lines.access == "rows" else self._visit)(state, lines, first, stop)

    # Rows.

    def _append(self, state: State, lines: Lines, first: int, stop: int) -> None:
        """Rows join the problem, wherever its weights are."""
        at = int(state["rows"])
        make_room(self.fields, state, at + stop - first)
        place_rows(self.columns, state, lines, first, stop, HELD_OUT if self.holds_out(state) else 0)
        self._change_problem(state, at)

    def _change_problem(self, state: State, first: int) -> None:
        """Rows from `first` on are new, or have other weights."""
        own, arrays = parameters_of(self.columns, state), ("scores", "labels", "row_weights", "slopes")
        self._loops.refresh(*(state[name] for name in arrays), own, first, int(state["rows"]))
        state["measured"][...] = 0
        state["bound"][...] = 0.0

    def holds_out(self, state: State) -> bool:
        return bool(self.spec.own.holds_out and not state["released"])

    def release_rows(self, state: State) -> None:
        for lane in range(self.width):
            state["held_loss"][lane] = self.held_out_loss(state, lane) or 0.0
        rows = int(state["rows"])
        weights = np.abs(state["row_weights"][:rows])
        state["row_weights"][:rows] = weights
        state["total"][...] = weights.sum()
        state["released"][...] = 1
        self._change_problem(state, 0)

    def held_out_loss(self, state: State, lane: int) -> float | None:
        if state["released"]:
            return float(state["held_loss"][lane])
        weight = float(state["sums"][loops.HELD_WEIGHT_SUM, lane])
        return float(state["sums"][loops.HELD_LOSS_SUM, lane]) / weight if weight > 0.0 else None

    # Columns.

    def _visit(self, state: State, lines: Lines, first: int, stop: int) -> None:
        visit, count, own = lines.visit, len(lines.starts), parameters_of(self.columns, state)
        assert visit is not None
        measures = (visit.blocks > 1 or self.spec.own.beta == "global") and visit.epoch % MEASURE_EVERY == 0
        if measures and visit.sweep:
            return
        if first == 0:
            refuse_other_rows(lines, int(state["rows"]), len(state["weights"]) - 1, self._sparse)
        if first == 0 and (visit.position == 0 or not measures):
            self._gap.begin(state, own)
        if self.spec.own.beta == "global" and not measures:
            fixed = own.copy()
            fixed[loops.CONSTANT] = 0.0  # the intercept moves where a window begins, and not where a call ends
            for lane, rows in enumerate(rows_of_lanes(state)):
                self._pass(state, lines, np.arange(first, stop), fixed, lane, rows, 1)
            if stop == count:
                self._gap.judge(state, own)
            return
        self._measure(state, lines, first, stop)
        if stop < count:
            return
        if visit.blocks == 1 or (measures and visit.position == visit.blocks - 1):
            self._gap.certify(state, own)
        if not measures:
            self._work_on_violations(state, lines, own)
        self._gap.judge(state, own)

    def _measure(self, state: State, lines: Lines, first: int, stop: int) -> None:
        order = first + np.argsort(lines.starts[first:stop])  # in the order of memory, which takes half the time
        starts, stops = lines.starts[order], lines.stops[order]
        loops.measure(
            state["slopes"], starts, stops, lines.indices, lines.values, lines.columns[order], self._sparse,
            state["partials"],
        )  # fmt: skip
        state["entries"] += int((stops - starts).sum())

    def _work_on_violations(self, state: State, lines: Lines, own: Vector) -> None:
        """Passes over the columns that matter, lane by lane."""
        found, sizes = np.empty(len(lines.starts)), lines.stops - lines.starts
        budget = max(_FEWEST_ENTRIES, _BLOCK_SHARE * int(sizes.sum()))
        for lane, rows in enumerate(rows_of_lanes(state)):
            worst, used = loops.find_violations(
                state["weights"], state["partials"], lines.columns, own[loops.L1, lane], own[loops.SIGMA, lane], lane, found,
            )  # fmt: skip
            if worst <= _CONVERGED * max(own[loops.L1, lane], 1e-300):
                continue
            order = np.flatnonzero(_those_that_matter(found, used))
            passes = budget // max(1, int(sizes[order].sum()) + int(state["rows"]))
            passes = max(1, min(MOST_PASSES, passes))
            self._pass(state, lines, order, own, lane, rows, passes, _INNER_TOLERANCE * worst)

    def _pass(
        self, state: State, lines: Lines, order: NDArray[np.int64], own: Vector, lane: int, rows: Rows,
        passes: int, tolerance: float = 0.0,
    ) -> None:  # fmt: skip
        """Passes over some lines, in one lane."""
        weights = np.ascontiguousarray(state["weights"][:, lane])
        state["entries"] += self._loops.visit(
            order, lines.columns, weights, *rows, state["squares"], state["largest"], own[:, lane], lines.starts, lines.stops,
            lines.indices, lines.values, self._sparse, bool(state["weighted"]), float(state["total"]), tolerance, passes,
        )  # fmt: skip
        if self.width > 1:
            state["weights"][:, lane] = weights

    # How good the weights are.

    def certificate(self, state: State, lane: int) -> float | None:
        if not state["measured"]:
            return None
        return max(0.0, float(state["objective"][lane] - state["bound"][lane]))

    def relative_gap(self, state: State, lane: int) -> float | None:
        """The certificate as a share of the loss without features, as it was before the first column."""
        gap, whole = self.certificate(state, lane), float(state["at_zero"][lane])
        return None if gap is None else gap / whole if whole > 0.0 else 0.0

    def tallies(self, state: State, lane: int) -> Tallies:
        """Of the present weights on all rows; nothing before the first window of columns."""
        sums = state["sums"][:, lane]
        loss, correct = float(sums[loops.LOSS_SUM]), float(sums[loops.CORRECT_SUM])
        weight = float(state["total"]) if sums.any() else 0.0
        return Tallies(int(state["steps"]), 0.0, 0.0, loss, correct, weight)

    def restart_averages(self, state: State) -> None:
        """There are none."""

    def fade_averages(self, state: State, steps: int) -> None:
        """There are none."""

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["weights"][slice(None) if at is None else at, lane])


def _those_that_matter(violations: Vector, used: int) -> NDArray[np.bool_]:
    """The columns with a weight (marked by -1), and as many more that violate their condition most."""
    count = min(max(_FEWEST_CHOSEN, used), len(violations))
    least = np.partition(violations, len(violations) - count)[len(violations) - count]
    return np.asarray((violations < 0.0) | ((violations >= least) & (violations > 0.0)))
