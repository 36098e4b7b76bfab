"""The order in which a solver of columns visits them: blocks of columns, several sweeps over each, lines in random order.

All results are functions of the seed, the counts of entries and the place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.randomness import key_of, permuted, shuffled
from streampgs.order.cursor import Cursor

Ints = NDArray[np.int64]

SWEEPS = 5
"""How often the lines of a block are visited while it is in memory."""


def of_columns(cursor: Cursor) -> bool:
    """Whether windows at the cursor have columns. The position of such a cursor counts blocks of columns, its slice the
    sweeps over a block, its row the lines of a sweep."""
    return cursor.epoch > 0 and cursor.part == 0


@dataclass(frozen=True)
class ColumnVisit:
    """Where in an epoch a window of columns is."""

    epoch: int
    position: int
    """Of its block among the blocks of the epoch, in visiting order."""
    blocks: int
    """How many blocks an epoch has."""
    sweep: int
    """Over the block, from 0."""
    sweeps: int

    @property
    def begins_epoch(self) -> bool:
        return self.position == self.sweep == 0


def block_at(seed: int, epoch: int, position: int, blocks: int) -> int:
    """The number of the block that is visited at a position of an epoch."""
    key = key_of(seed, "blocks of columns", epoch)
    return int(permuted(key, blocks, np.array([position], np.int64))[0])


def lines_in_order(seed: int, visit: ColumnVisit, lines: int) -> tuple[Ints, int]:
    """The order of the lines of a block in a sweep, and its key."""
    key = key_of(seed, "lines of columns", visit.epoch, visit.position, visit.sweep)
    order: Ints = shuffled(np.uint64(key), lines)
    return order, key


class TooLarge(Exception):
    """A column is larger than a block may be."""

    def __init__(self, column: int, size: float) -> None:
        super().__init__(column)
        self.column, self.size = column, size


def block_bounds(sizes: NDArray[np.float64], most: float) -> Ints:
    """Where blocks of columns begin and end: one block if all columns take at most `most` bytes, else blocks of at most half
    of that, because the next one is read while one is in use. `sizes`: the bytes of each column."""
    total = np.zeros(len(sizes) + 1)
    np.cumsum(sizes, out=total[1:])
    if total[-1] <= most:
        return np.array([0, len(sizes)], np.int64)
    bounds = [0]
    while bounds[-1] < len(sizes):
        first = bounds[-1]
        stop = int(np.searchsorted(total, total[first] + most / 2, side="right")) - 1
        if stop == first:
            raise TooLarge(first, float(sizes[first]))
        bounds.append(stop)
    return np.array(bounds, np.int64)
