"""Greedy coordinate descent: the one step that decreases the objective most (GCD in Shalev-Shwartz & Tewari, Stochastic
Methods for ℓ1-regularized Loss Minimization, §4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.coordinate import Coordinate, Sweep


class GreedyCoordinate(Coordinate):
    """Each sweep measures all partial derivatives, and takes one step."""

    def work(self, sweep: Sweep, order: NDArray[np.int64]) -> None:
        sweep.greedy_step(sweep.measure())
