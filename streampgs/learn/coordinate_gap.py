"""The duality gap of coordinate descent."""

from __future__ import annotations

import numpy as np

from streampgs.kernels import coordinate_loop as loops
from streampgs.learn.coordinate_rows import MOST_UNCENTRED, rows_of_lanes
from streampgs.learn.state import State
from streampgs.losses import Vector


class DualityGap:
    """All numbers of the loops are sums over rows; those in the state are divided by the total weight."""

    def __init__(self, own_loops: loops.Loops) -> None:
        self._loops = own_loops

    def begin(self, state: State, own: Vector) -> None:
        """Find the best intercepts, so that the slopes add up to 0."""
        for lane, rows in enumerate(rows_of_lanes(state)):
            if own[loops.CONSTANT, lane] != 0.0:
                moved = self._loops.centre(*rows, own[:, lane], float(state["total"]))
                state["weights"][0, lane] += moved / own[loops.CONSTANT, lane]
        if not state["at_zero"].any():
            for lane, rows in enumerate(rows_of_lanes(state)):
                state["at_zero"][lane] = self._sums(rows, own[:, lane])[loops.LOSS_SUM] / _total(state)

    def _sums(self, rows: tuple[Vector, ...], own: Vector, scale: float = 0.0) -> Vector:
        found = np.empty(loops.SUMS)
        self._loops.sums(*rows, own, scale, found)
        return found

    def judge(self, state: State, own: Vector) -> None:
        """The objective of the present weights."""
        for lane, rows in enumerate(rows_of_lanes(state)):
            sums = self._sums(rows, own[:, lane])
            total, squares = loops.penalties(state["weights"], lane)
            penalty = own[loops.L1, lane] * total + 0.5 * own[loops.SIGMA, lane] * squares
            state["sums"][:, lane] = sums
            state["objective"][lane] = (sums[loops.LOSS_SUM] + penalty) / _total(state)

    def certify(self, state: State, own: Vector) -> None:
        """A lower bound of the optimum, from the partial derivatives of all columns at the present scores."""
        for lane, rows in enumerate(rows_of_lanes(state)):
            found = max(self._dual(state, own, lane, rows, scale) for scale in self._dual_scales(state, own, lane))
            state["bound"][lane] = max(state["bound"][lane], found / _total(state))
        state["measured"][...] = 1

    def _dual_scales(self, state: State, own: Vector, lane: int) -> list[float]:
        """By which the slopes may be multiplied to be a dual point."""
        l1, sigma = own[loops.L1, lane], own[loops.SIGMA, lane]
        largest = loops.dual_sums(state["weights"], state["partials"], lane, 0.0, l1, sigma)[2]
        feasible = 1.0 if largest <= l1 else l1 / largest
        return [feasible] if sigma == 0.0 or feasible == 1.0 else [feasible, 1.0]

    def _dual(self, state: State, own: Vector, lane: int, rows: tuple[Vector, ...], scale: float) -> float:
        """The value of the dual problem at the slopes times `scale`: see docs/papers/solvers/README.md."""
        l1, sigma, constant = own[loops.L1, lane], own[loops.SIGMA, lane], own[loops.CONSTANT, lane]
        sums = self._sums(rows, own[:, lane], scale)
        product, beyond, _ = loops.dual_sums(state["weights"], state["partials"], lane, scale, l1, sigma)
        slope = sums[loops.SLOPE_SUM]
        if constant and abs(slope) > MOST_UNCENTRED * float(state["total"]):
            return 0.0
        fixed = sums[loops.PRODUCT_SUM] - constant * state["weights"][0, lane] * slope - product
        return float(scale * fixed - sums[loops.CONJUGATE_SUM] - (beyond / (2.0 * sigma) if sigma else 0.0))


def _total(state: State) -> float:
    return max(float(state["total"]), 1e-300)
