"""Greedy coordinate descent: the one step that decreases the objective most (GCD in Shalev-Shwartz & Tewari, Stochastic
Methods for ℓ1-regularized Loss Minimization, §4.1)."""

from __future__ import annotations

import numpy as np

from streampgs.base.errors import OptionError
from streampgs.kernels import coordinate_loop as loops
from streampgs.kernels.smooth_losses import SMOOTH_LOSSES
from streampgs.learn.coordinate import Coordinate
from streampgs.learn.coordinate_rows import parameters_of, rows_of_lanes
from streampgs.learn.lines import Lines
from streampgs.learn.state import State
from streampgs.losses import Vector


class GreedyCoordinate(Coordinate):
    """Each window measures all partial derivatives, and then takes the one step that decreases the objective most for
    certain (GCD in §2 of the paper)."""

    def _compile(self, state: State, lines: Lines, own: Vector) -> None:
        super()._compile(state, lines, own)
        self._step_on_best(state, lines, own)

    def _visit(self, state: State, lines: Lines, first: int, stop: int) -> None:
        visit = lines.visit
        assert visit is not None
        if visit.blocks > 1:
            raise OptionError(
                f"`--solver {self.spec.learner}` with columns that do not fit into memory together",
                "use `--solver coordinate`, or a larger --memory",
            )
        own = parameters_of(self.columns, state)
        if first == 0:
            self._gap.begin(state, own)
        self._measure(state, lines, first, stop)
        if stop == len(lines.starts):
            self._gap.certify(state, own)
            self._step_on_best(state, lines, own)
            self._gap.judge(state, own)

    def _step_on_best(self, state: State, lines: Lines, own: Vector) -> None:
        curvature = SMOOTH_LOSSES[self.spec.loss].curvature
        weights, partials, squares = state["weights"], state["partials"], state["squares"]
        for lane, rows in enumerate(rows_of_lanes(state)):
            best = loops.greatest_decrease(weights, partials, squares, lines.columns, curvature, own, lane)
            if best >= 0:
                self._pass(state, lines, np.array([best]), own, lane, rows, 1)
