"""Which rows of a window each lineage trains on in a pass of an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streampgs.engine.engine import Engine
from streampgs.kernels.placing_loop import squared_norms
from streampgs.kernels.randomness import key_of, random_fractions
from streampgs.kernels.rows import rows_at
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lines import SAMPLE_ROWS, Lines
from streampgs.order.schedule import UpdatePass
from streampgs.reading.window import Window

_HELD_OUT = 0.25
"""The share of the new rows that the first update holds out."""


@dataclass(frozen=True)
class Part:
    """The rows of a window that a lineage trains on, in their order."""

    lines: Lines
    places: NDArray[np.int64] | None
    """Their numbers in the window; None: all rows."""

    def before(self, row: int) -> int:
        """How many of them come before a row of the window."""
        return row if self.places is None else int(np.searchsorted(self.places, row))


def part_of(window: Window, chosen: NDArray[np.bool_]) -> Part:
    places = np.flatnonzero(chosen)
    return Part(window if len(places) == window.rows else rows_at(window, places), places)


def rows_of_pass(window: Window, update: UpdatePass, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of a window the long lineage trains on in this pass, and which ones the others."""
    numbers = window.numbers
    is_new = numbers >= update.first_new_row
    held_out = np.zeros(len(numbers), np.bool_)
    if update.holds_out:
        held_out = is_new & _drawn(seed, "held out", update, numbers, _HELD_OUT)
    old = ~is_new
    if update.old_share < 1.0:
        old &= _drawn(seed, f"old rows of pass {update.number}", update, numbers, update.old_share)
    is_last = update.number == update.passes
    new = held_out if is_last else is_new & ~held_out
    return old | new if is_last or update.number == 0 else old, new


def mean_squared_norm(window: Window, chosen: NDArray[np.bool_], spec: LaneSpec) -> float | None:
    """‖x‖² as steps see it, of the first of these rows; None without any."""
    rows = np.flatnonzero(chosen)[:SAMPLE_ROWS]
    norms = np.empty(len(rows))
    squared_norms(window.starts[rows], window.stops[rows], window.values, spec.norm.q, norms)
    return float(np.mean(norms)) + spec.intercept**2 if len(rows) else None


class PartsOfWindow:
    """The part of each lineage in a window."""

    def __init__(self, parts: Sequence[Part], used: NDArray[np.int64] | None) -> None:
        """`used`: the rows that are in any part; None: all."""
        self.parts, self._used = parts, used

    def advance(self, engines: Sequence[Engine], reached: list[int], until: int, end: int) -> None:
        """Train on the rows of the window up to `until`. A step or a round may end later; `reached` says where."""
        for number, (engine, part) in enumerate(zip(engines, self.parts, strict=True)):
            target = part.before(until)
            if reached[number] < target:
                reached[number] = engine.advance(part.lines, reached[number], target, part.before(end))

    def used(self, row: int, until: int) -> int:
        """How many of these rows of the window are trained on."""
        return until - row if self._used is None else int(np.diff(np.searchsorted(self._used, [row, until]))[0])


def _drawn(seed: int, purpose: str, update: UpdatePass, numbers: NDArray[np.int64], share: float) -> NDArray[np.bool_]:
    key = key_of(seed, purpose, update.epoch, update.first_part)
    return np.asarray(random_fractions(key, numbers.astype(np.uint64)) < share)
