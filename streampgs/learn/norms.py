"""Norms: which regularizer a model has, and how its dual vector becomes weights.

The regularizer is r(w) = ‖w‖_p² / (2(p-1)), so that w = ∇r*(θ) = (p-1)·‖θ‖_q^{2-q}·sgn(θ)|θ|^{q-1} with 1/p + 1/q = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.kernels.powers import dual_exponent
from streampgs.options.solvers import SMALLEST_P

_PART = 1 << 18  # coordinates looked at together


@dataclass(frozen=True)
class PNorm:
    p: float

    def __post_init__(self) -> None:
        require(SMALLEST_P <= self.p <= 2.0, f"p {self.p}")

    @property
    def linear(self) -> bool:
        """Whether weights are proportional to the dual vector, so that no powers are kept and lanes can share a loop."""
        return self.p == 2.0

    @property
    def q(self) -> float:
        return dual_exponent(self.p) + 1.0

    def weights(
        self, raised: NDArray[np.float64], power_sum: float, scale: float, clock: float, radius: float
    ) -> NDArray[np.float64]:
        """∇r*(λ/clock), on the ball if there is one; `raised` and `power_sum` are of λ/scale."""
        if power_sum <= 0.0:
            return np.zeros(len(raised))
        exponent = dual_exponent(self.p)
        q = exponent + 1.0
        norm = scale * power_sum ** (1.0 / q) / clock / exponent
        multiplier = scale * power_sum ** ((2.0 - q) / q) / clock / exponent
        return np.asarray(raised * (multiplier * min(1.0, radius / norm)))

    def conjugate(self, size: float, radius: float) -> float:
        """r*(θ) for ‖θ‖_q = size: (p-1)/2·size², or its continuation where the maximiser is on the ball's surface."""
        reach = (self.p - 1.0) * size
        inside = 0.5 * (self.p - 1.0) * size * size
        return inside if reach <= radius else inside - (radius - reach) ** 2 / (2.0 * (self.p - 1.0))

    def dual_distance(self, a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        """‖a - b‖_q without overflow, part by part: a copy of a wide model would take too much memory."""
        q = self.q
        parts = [slice(first, first + _PART) for first in range(0, len(a), _PART)]
        largest = max(float(np.max(np.abs(a[part] - b[part]), initial=0.0)) for part in parts)
        if largest == 0.0:
            return 0.0
        total = sum(float(np.sum((np.abs(a[part] - b[part]) / largest) ** q)) for part in parts)
        return largest * math.pow(total, 1.0 / q)

    def radius_of_optimum(self, loss_at_zero: float, sigma: float) -> float:
        """A ball that must contain the optimum ŵ: σ·r(ŵ) ≤ F(ŵ) ≤ F(0)."""
        return math.sqrt(2.0 * (self.p - 1.0) * loss_at_zero / sigma)


EUCLID = PNorm(2.0)
