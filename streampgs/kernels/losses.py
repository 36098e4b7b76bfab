"""The formulas of a loss, in the form that compiled loops call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from streampgs.kernels.jit import inlinable

Formula = Callable[[float, float, float], float]
"""Of score, label and shape."""


class LossFormulas(Protocol):
    @property
    def value(self) -> Formula: ...

    @property
    def slope(self) -> Formula: ...

    def __hash__(self) -> int: ...


@cache
def value_and_slope(loss: LossFormulas) -> tuple[Formula, Formula]:
    """Both formulas, which loops may then close over."""
    return inlinable(loss.value), inlinable(loss.slope)
