"""Centres and scales, learned from the values of a sample."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LARGEST_NUMBER = 8.0
"""Standardized numbers are clipped there: a single impossible value would spoil the model for good."""
_MOSTLY_ZERO = 0.1
_SMALLEST = float(np.finfo(np.float64).tiny)  # the reciprocal of a smaller number may not be finite
# Among the values of a sample so few may be impossible ones, which do not count.
_FEW_VALUES, _FEW_SHARE = 3, 0.001
# The size of a standardized number is 1. Values that are much larger dominate it, much smaller ones are never used.
_LOUD, _QUIET = 3.0, 0.03


def standard(known: Floats) -> tuple[float, float]:
    """Centre and scale. A column that is mostly zero is only scaled, so that its zeros stay zeros."""
    filled = known[known != 0.0]
    if not filled.size:
        return 0.0, 1.0
    if len(filled) < _MOSTLY_ZERO * len(known):
        return 0.0, scale_of(filled)
    return _without_impossible(known, _centre_and_scale)


def scale_of(filled: Floats) -> float:
    """The reciprocal of the usual size of numbers that are not 0."""
    return _without_impossible(filled, _only_scale)[1]


def _without_impossible(known: Floats, measure: Callable[[Floats], tuple[float, float]]) -> tuple[float, float]:
    """As measured, but a few values that are far from all others do not count."""
    kept, fewest = known, len(known) - max(_FEW_VALUES, int(_FEW_SHARE * len(known)))
    while True:
        centre, scale = measure(kept)
        with np.errstate(over="ignore"):
            near = kept[np.abs((kept - centre) * scale) <= LARGEST_NUMBER]
        if len(near) == len(kept) or len(near) < fewest or near.min() == near.max():
            return centre, scale
        kept = near


def _centre_and_scale(known: Floats) -> tuple[float, float]:
    largest = float(np.abs(known).max())  # squares of very large or small numbers leave the range
    centre = largest * float(np.mean(known / largest))
    spread = largest * float(np.std((known - centre) / largest))
    if spread <= 1e-12 * abs(centre):
        spread = abs(centre)  # a constant column
    return centre, 1.0 / max(spread, _SMALLEST)


def _only_scale(filled: Floats) -> tuple[float, float]:
    largest = float(np.abs(filled).max())
    return 0.0, 1.0 / max(largest * float(np.sqrt(np.mean((filled / largest) ** 2))), _SMALLEST)


def factor(values: Floats, entries_per_row: float, always: bool) -> float | None:
    """What makes the values of a sparse column as large as standardized numbers; None if they are of a similar size
    already, and it is not `always` wanted."""
    filled = values[values != 0.0]
    if not filled.size:
        return None
    scale = scale_of(filled)
    sizes = np.full(max(1, round(entries_per_row)), 1.0 / scale)
    return scale if always or is_out_of_scale(sizes) else None


def is_out_of_scale(sizes: Floats) -> bool:
    """Whether features of these sizes (root mean squares) dominate standardized numbers, or vanish next to them."""
    return bool(sizes.size and (sizes.max() > _LOUD or np.sqrt(np.sum(sizes**2)) < _QUIET))
