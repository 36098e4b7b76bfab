"""|x|^e for the one exponent that a run needs, computed by square roots if the exponent allows it."""

from __future__ import annotations

import math
from collections.abc import Callable

from streampgs.kernels.jit import inlinable
from streampgs.kernels.vector_math import power_of

_LARGEST_CHEAP_WHOLE = 8


def dual_exponent(p: float) -> float:
    """q - 1 = 1/(p - 1), snapped to the quarter that a decimal p stands for (p = 1.8 means 1.25, not 1.2499999999999998)."""
    exponent = 1.0 / (p - 1.0)
    quarters = round(4.0 * exponent)
    return quarters / 4.0 if abs(4.0 * exponent - quarters) < 1e-9 else exponent


def power_for(exponent: float) -> Callable[[float], float]:
    """A function of x >= 0 that gives x^exponent and that compiled loops may close over."""
    quarters = round(4.0 * exponent)
    if quarters == 4.0 * exponent and quarters // 4 <= _LARGEST_CHEAP_WHOLE:
        whole, quarter = quarters // 4, quarters % 4

        @inlinable
        def power_by_roots(x: float) -> float:
            result = 1.0
            for _ in range(whole):
                result *= x
            if quarter == 1:
                result *= math.sqrt(math.sqrt(x))
            elif quarter == 2:
                result *= math.sqrt(x)
            elif quarter == 3:
                root = math.sqrt(x)
                result *= root * math.sqrt(root)
            return result

        return power_by_roots

    @inlinable
    def power_in_general(x: float) -> float:
        return power_of(x, exponent)

    return power_in_general
