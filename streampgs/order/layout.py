"""The blocks of a part of an epoch, and their random order.

In part 0 an arrival opens a new layer of the order: a permutation of the remaining and the new blocks together, so that
no row is repeated or lost. The parts after it are the passes of updates: the new blocks, mixed with blocks that are drawn
from the old ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.randomness import key_of, permuted
from streampgs.order.arrivals import known_at, of_part, retired_before
from streampgs.order.cursor import Arrival, Cursor

Ints = NDArray[np.int64]

HELD_OUT = 0.25
"""The share of the new rows that the first update of a run holds out from its passes."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class EpochLayout:
    whole: NDArray[np.bool_]
    """Whether a group is one block, per group."""
    starts: Ints
    """The first block of each group, followed by the number of blocks."""
    layers: list[tuple[int, int]]
    """(first position, number of known positions)"""
    keys: list[int]

    @property
    def length(self) -> int:
        """Blocks in the part."""
        return self.layers[-1][1]

    def blocks(self, positions: Ints) -> Ints:
        """A layer permutes the blocks that its predecessor had left and the new ones."""
        found = np.empty_like(positions)
        open_places = np.arange(len(positions))
        for number in range(len(self.layers) - 1, -1, -1):
            first, length = self.layers[number]
            known_before = self.layers[number - 1][1] if number else 0
            left = known_before - first
            drawn = permuted(self.keys[number], left + length - known_before, positions - first)
            old = drawn < left
            found[open_places[~old]] = drawn[~old] - left + known_before
            positions, open_places = first + drawn[old], open_places[old]
            if len(positions) == 0:
                break
        return found


@dataclass(frozen=True)
class UpdateLayout:
    """The blocks of a pass of an update; `whole` and `starts` as in an epoch."""

    whole: NDArray[np.bool_]
    starts: Ints
    since: int
    """The first new group."""
    first: int
    """How many old blocks the passes before have drawn."""
    drawn: int
    """How many this pass draws."""
    old_share: float
    key: int
    drawing_key: int

    @property
    def old_blocks(self) -> int:
        return int(self.starts[self.since])

    @property
    def new_blocks(self) -> int:
        return int(self.starts[-1]) - self.old_blocks

    @property
    def length(self) -> int:
        return self.new_blocks + self.drawn

    def blocks(self, positions: Ints) -> Ints:
        """The passes continue along one random order of the old blocks, so that they draw different ones while there are any."""
        found = self._mixed(positions)
        old = found >= self.new_blocks
        found += self.old_blocks
        places = (self.first + found[old] - self.length + self.drawn - self.old_blocks) % max(1, self.old_blocks)
        if len(places):
            found[old] = permuted(self.drawing_key, self.old_blocks, places)
        return found

    def _mixed(self, positions: Ints) -> Ints:
        """New blocks, and then drawn ones, in random order. The first one is new: models are judged by new rows before
        they are trained on them."""
        found = permuted(self.key, self.length, positions)
        first = int(permuted(self.key, self.length, np.zeros(1, np.int64))[0])
        if first >= self.new_blocks > 0:
            chosen = self.key % self.new_blocks
            is_first, is_chosen = found == first, found == chosen
            found[is_first], found[is_chosen] = chosen, first
        return found


Layout = EpochLayout | UpdateLayout


def epoch_layout(seed: int, cursor: Cursor, position: int, whole: NDArray[np.bool_], starts: Ints) -> EpochLayout:
    """The layout of an epoch as it is known at a position."""
    before = known_at(cursor.arrivals, (cursor.epoch, cursor.part, -1))
    layers = [(0, int(starts[before]))]
    for arrival in of_part(cursor):
        if arrival.position > position:
            break
        before = max(before, arrival.groups)
        if layers[-1][0] == arrival.position:
            layers.pop()
        layers.append((arrival.position, int(starts[before])))
    keys = [key_of(seed, "blocks", cursor.epoch, number) for number in range(len(layers))]
    return EpochLayout(whole, starts, layers, keys)


def update_layout(
    seed: int, cursor: Cursor, update: Arrival, live_rows: Ints, whole: NDArray[np.bool_], starts: Ints
) -> UpdateLayout:
    """`live_rows`: rows of each group in use, 0 for others."""
    old_rows, new_rows = int(live_rows[: update.since].sum()), int(live_rows[update.since : update.groups].sum())
    old_blocks = int(starts[update.since])
    number = cursor.part - update.part
    wanted = new_rows * update.replay / update.passes
    each, _ = _drawn(wanted, old_rows, old_blocks)
    drawn, share = _drawn(wanted * (HELD_OUT if number == update.passes else 1.0), old_rows, old_blocks)
    return UpdateLayout(
        whole,
        starts,
        update.since,
        number * each,
        drawn,
        share,
        key_of(seed, "update", cursor.epoch, cursor.part),
        key_of(seed, "old blocks", cursor.epoch, update.part),
    )


def pass_rows(update: Arrival, live: Ints) -> list[float]:
    """About how many rows each pass of an update visits."""
    old, new = int(live[: update.since].sum()), int(live[update.since : update.groups].sum())
    replayed = new * update.replay / update.passes
    share = 1.0 - HELD_OUT * update.holds_out
    found = [new * share + min(old, replayed)] * update.passes
    return [*found, HELD_OUT * new + min(old, HELD_OUT * replayed)] if update.holds_out else found


def _drawn(wanted: float, rows: int, blocks: int) -> tuple[int, float]:
    """How many of the blocks have the wanted number of rows on average, and the share of their rows that is wanted."""
    if not wanted or not rows:
        return 0, 1.0
    if wanted >= rows:
        return blocks, 1.0
    drawn = min(blocks, math.ceil(wanted * blocks / rows - _ROUNDING))
    return drawn, min(1.0, wanted * blocks / (rows * drawn))


def live_rows(rows: Ints, cursor: Cursor) -> Ints:
    """Rows of each group that is in use when the cursor's part begins."""
    live = rows.copy()
    for first, stop in retired_before(cursor):
        live[first:stop] = 0
    return live
