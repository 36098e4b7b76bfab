"""Bounds on the distance to the optimum that training computes without knowing the optimum."""

from __future__ import annotations

import math

from streampgs.learn.averaging import Tallies
from streampgs.learn.norms import PNorm


def expected_gap(norm: PNorm, sigma: float, radius: float, tallies: Tallies, dual_change: float) -> float:
    """An upper bound, in expectation, of F(average) - min F over the T steps of a stretch.

    (1/T) Σ [σ·r(w) + <g, w>] + σ·r*((λ_T - λ_start)/(Tσ)), where `dual_change` is ‖λ_T - λ_start‖_q.
    """
    if tallies.steps == 0:
        return math.inf
    size = dual_change / (tallies.steps * sigma)
    return (tallies.regularizer + tallies.linear) / tallies.steps + sigma * norm.conjugate(size, radius)
