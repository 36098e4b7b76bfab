"""Epochs → windows → rows.

The files consist of GROUPS (record batches, row groups). What is shuffled and read is the BLOCK: a slice of a group
that lies ready in Arrow form, or a whole group where it must be decoded first (its first epoch, or every epoch if it
is not cached). A WINDOW is a run of blocks of the epoch's order; its rows are visited in a random order.

Everything here is a function of the seed, the sizes of the groups and the cursor. Shards that arrive in the middle of
an epoch open a new layer of its order: a fresh permutation of what is left and what is new together, so that nothing
repeats and nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streampgs.arithmetic.randomness import key_of, permuted, random_fractions
from streampgs.order.cursor import Arrival, Cursor

Ints = NDArray[np.int64]

_LOOK_AHEAD = 256  # blocks looked at together
_HALVED = 1.9  # windows' worth of rows left that become two halves


@dataclass(frozen=True)
class GroupSizes:
    """One entry a group, in catalog order."""

    rows: Ints
    row_bytes: NDArray[np.float64]
    """Mean bytes of one row as a window holds it."""
    decoded: NDArray[np.bool_]
    """Whether the group must be decoded before its rows can be sliced."""
    cached: NDArray[np.bool_]
    """Whether decoded slices are kept for later epochs."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Sizes:
    """The two sizes that define the order of rows, chosen once and recorded with the run."""

    window_bytes: int
    block_bytes: int


@dataclass(frozen=True)
class Pieces:
    """Parts of groups, in the order in which they are to be read."""

    group: Ints
    start: Ints
    stop: Ints
    picks: tuple[Ints, ...] | None = None
    """Rows drawn from each piece (repeats allowed), counted from its start; None: every row once."""

    def rows(self) -> int:
        if self.picks is not None:
            return sum(len(rows) for rows in self.picks)
        return int((self.stop - self.start).sum())


@dataclass(frozen=True)
class WindowPlan:
    start: Cursor
    next: Cursor
    pieces: Pieces
    shuffle_key: int
    blocks: int
    """How many independently placed blocks the window mixes."""


@dataclass(frozen=True)
class _Ahead:
    group: Ints
    start: Ints
    stop: Ints
    reached_bytes: NDArray[np.float64]
    is_all: bool
    """Whether nothing comes behind these blocks that could share a window with them."""
    large_group: int
    """The group behind them that exceeds a window, or -1."""


class Schedule:
    def __init__(self, seed: int, groups: GroupSizes, sizes: Sizes, sampling: str = "epoch") -> None:
        self.seed = seed
        self.groups = groups
        self.sizes = sizes
        self.sampling = sampling
        group_bytes = groups.rows * groups.row_bytes
        slices = np.maximum(1, np.ceil(group_bytes / sizes.block_bytes)).astype(np.int64)
        self.slice_rows: Ints = np.maximum(1, -(-groups.rows // slices))
        """Rows in each slice of a group but its last, which may have fewer."""
        self.slices: Ints = -(-groups.rows // self.slice_rows)

    def is_whole(self, epoch: int, group: int, arrivals: tuple[Arrival, ...]) -> bool:
        """Whether the group is one block in this epoch."""
        return bool(self._whole(epoch, arrivals)[group])

    def window(self, cursor: Cursor) -> WindowPlan:
        """The window that starts at the cursor (whose `row` is not looked at)."""
        start = cursor.at_row(0)
        return self._independent_window(start) if self.sampling == "independent" else self._epoch_window(start)

    def epoch_length(self, epoch: int, arrivals: tuple[Arrival, ...]) -> int:
        """Positions in an epoch: blocks, or rows when they are drawn independently."""
        groups = _arrived(arrivals, epoch)
        if self.sampling == "independent":
            return int(self.groups.rows[:groups].sum())
        return int(self._block_starts(epoch, arrivals, groups)[-1])

    def arrive(self, cursor: Cursor, shards: int, groups: int) -> Cursor:
        """The catalog has grown to `groups` groups: they join in at the next window's start."""
        boundary = cursor
        if cursor.row > 0 or cursor.slice > 0:
            boundary = self.window(cursor).next
            while boundary.slice > 0:
                boundary = self.window(boundary).next
        arrival = Arrival(boundary.epoch, boundary.position, shards, groups)
        return replace(cursor, arrivals=(*cursor.arrivals, arrival))

    # Below: how an epoch's order is found.

    def _whole(self, epoch: int, arrivals: tuple[Arrival, ...]) -> NDArray[np.bool_]:
        groups = _arrived(arrivals, epoch)
        first_epoch = np.empty(groups, np.int64)
        known = 0
        for arrival in arrivals:
            if arrival.epoch <= epoch:
                first_epoch[known : arrival.groups] = arrival.epoch
                known = arrival.groups
        fresh = first_epoch == epoch
        return np.asarray(self.groups.decoded[:groups] & (fresh | ~self.groups.cached[:groups]))

    def _block_starts(self, epoch: int, arrivals: tuple[Arrival, ...], groups: int) -> Ints:
        """Number of the first block of each group, and behind the last the number of blocks."""
        blocks = np.where(self._whole(epoch, arrivals)[:groups], 1, self.slices[:groups])
        return np.concatenate([[0], np.cumsum(blocks)])

    def _blocks_at(self, epoch: int, layers: list[tuple[int, int]], positions: Ints, layer: int) -> Ints:
        """Numbers of the blocks that stand at `positions` of the epoch, as layer `layer` orders them.

        A layer (first position, blocks known) permutes what its predecessor had left, followed by what is new.
        """
        first, known = layers[layer]
        key = key_of(self.seed, "blocks", epoch, layer)
        if layer == 0:
            return permuted(key, known, positions)
        known_before = layers[layer - 1][1]
        left = known_before - first
        drawn = permuted(key, left + known - known_before, positions - first)
        blocks = drawn - left + known_before
        old = drawn < left
        if old.any():
            blocks[old] = self._blocks_at(epoch, layers, first + drawn[old], layer - 1)
        return blocks

    def _epoch_window(self, cursor: Cursor) -> WindowPlan:
        epoch, arrivals = cursor.epoch, cursor.arrivals
        present = [a for a in arrivals if (a.epoch, a.position) <= (epoch, cursor.position)]
        block_starts = self._block_starts(epoch, arrivals, present[-1].groups)
        layers = _layers(epoch, present, block_starts)
        later = [a.position for a in arrivals if a.epoch == epoch and a.position > cursor.position]
        epoch_end = int(block_starts[-1])
        stop_at = min([epoch_end, *later])
        ahead = self._blocks_ahead(cursor, layers, block_starts, stop_at)
        if len(ahead.group) == 0:
            return self._part_of_large_group(cursor, ahead.large_group, epoch_end)
        fits = max(1, int(np.searchsorted(ahead.reached_bytes, self._share(ahead), side="right")))
        pieces = Pieces(ahead.group[:fits], ahead.start[:fits], ahead.stop[:fits])
        return self._plan(cursor, _after(cursor, cursor.position + fits, epoch_end), pieces)

    def _blocks_ahead(self, cursor: Cursor, layers: list[tuple[int, int]], block_starts: Ints, stop_at: int) -> _Ahead:
        """The blocks from the cursor on, for two windows: up to `stop_at` or to a group that exceeds a window."""
        whole = self._whole(cursor.epoch, cursor.arrivals)
        parts: list[tuple[Ints, Ints, Ints]] = [(np.empty(0, np.int64),) * 3]
        position, reached, large_group = cursor.position, 0.0, -1
        while position < stop_at and reached < 2 * self.sizes.window_bytes and large_group < 0:
            positions = np.arange(position, min(stop_at, position + _LOOK_AHEAD), dtype=np.int64)
            blocks = self._blocks_at(cursor.epoch, layers, positions, len(layers) - 1)
            group = np.searchsorted(block_starts, blocks, side="right") - 1
            rows = self.groups.rows[group]
            span = np.where(whole[group], rows, self.slice_rows[group])
            start = np.where(whole[group], 0, (blocks - block_starts[group]) * span)
            stop = np.minimum(start + span, rows)
            large = (
                whole[group]
                & (self.slices[group] > 1)
                & (rows * self.groups.row_bytes[group] > self.sizes.window_bytes)
            )
            if large.any():
                count = int(np.argmax(large))
                large_group = int(group[count])
                group, start, stop = group[:count], start[:count], stop[:count]
            parts.append((group, start, stop))
            reached += float(((stop - start) * self.groups.row_bytes[group]).sum())
            position += len(group)
        group, start, stop = (np.concatenate(column) for column in zip(*parts, strict=True))
        reached_bytes = np.cumsum((stop - start) * self.groups.row_bytes[group])
        return _Ahead(group, start, stop, reached_bytes, position >= stop_at or large_group >= 0, large_group)

    def _share(self, ahead: _Ahead) -> float:
        """Bytes for the next window: all it holds, but what is left for two is halved, lest the last be a small one
        that mixes badly."""
        left, most = float(ahead.reached_bytes[-1]), float(self.sizes.window_bytes)
        return left / 2 if ahead.is_all and most < left <= _HALVED * most else most

    def _part_of_large_group(self, cursor: Cursor, group: int, epoch_end: int) -> WindowPlan:
        """A window of slices of one group that exceeds a window, in an order of their own."""
        slices, slice_rows = int(self.slices[group]), int(self.slice_rows[group])
        fitting = max(1, int(self.sizes.window_bytes // (slice_rows * self.groups.row_bytes[group])))
        windows = -(-(slices - cursor.slice) // fitting)
        first, stop = cursor.slice, cursor.slice + -(-(slices - cursor.slice) // windows)
        key = key_of(self.seed, "slices", cursor.epoch, group)
        part = permuted(key, slices, np.arange(first, stop, dtype=np.int64))
        start = part * slice_rows
        pieces = Pieces(np.full(len(part), group), start, np.minimum(start + slice_rows, self.groups.rows[group]))
        following = replace(cursor, slice=stop) if stop < slices else _after(cursor, cursor.position + 1, epoch_end)
        return self._plan(cursor, following, pieces, blocks=1)

    def _independent_window(self, cursor: Cursor) -> WindowPlan:
        present = [a for a in cursor.arrivals if (a.epoch, a.position) <= (cursor.epoch, cursor.position)]
        groups = present[-1].groups
        row_starts = np.concatenate([[0], np.cumsum(self.groups.rows[:groups])])
        total = int(row_starts[-1])
        later = [a.position for a in cursor.arrivals if a.epoch == cursor.epoch and a.position > cursor.position]
        mean_bytes = float((self.groups.rows[:groups] * self.groups.row_bytes[:groups]).sum()) / max(1, total)
        fitting = max(1, int(self.sizes.window_bytes // max(1.0, mean_bytes)))
        stop_at = min([total, *later, cursor.position + fitting])
        key = key_of(self.seed, "draws", cursor.epoch)
        draws = np.arange(cursor.position, stop_at, dtype=np.uint64)
        row = np.sort(np.minimum((random_fractions(key, draws) * total).astype(np.int64), total - 1))
        group = np.searchsorted(row_starts, row, side="right") - 1
        inside = row - row_starts[group]
        part = inside // self.slice_rows[group]
        firsts = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(part, prepend=-1))
        start = part[firsts] * self.slice_rows[group[firsts]]
        stop = np.minimum(start + self.slice_rows[group[firsts]], self.groups.rows[group[firsts]])
        picks = tuple(np.split(inside - np.repeat(start, np.diff(firsts, append=len(row))), firsts[1:]))
        pieces = Pieces(group[firsts], start, stop, picks)
        return self._plan(cursor, _after(cursor, stop_at, total), pieces)

    def _plan(self, start: Cursor, following: Cursor, pieces: Pieces, blocks: int | None = None) -> WindowPlan:
        key = key_of(self.seed, "rows", start.epoch, start.position, start.slice)
        return WindowPlan(start, following, pieces, key, len(pieces.group) if blocks is None else blocks)


def _arrived(arrivals: tuple[Arrival, ...], epoch: int) -> int:
    return max(a.groups for a in arrivals if a.epoch <= epoch)


def _layers(epoch: int, present: list[Arrival], block_starts: Ints) -> list[tuple[int, int]]:
    """(first position, blocks known) of each layer of the epoch; arrivals at one place are one layer."""
    layers: list[tuple[int, int]] = []
    for arrival in present:
        first = arrival.position if arrival.epoch == epoch else 0
        if layers and layers[-1][0] == first:
            layers.pop()
        layers.append((first, int(block_starts[arrival.groups])))
    return layers


def _after(cursor: Cursor, position: int, epoch_end: int) -> Cursor:
    """The cursor at `position`, which may be the end of its epoch."""
    if position >= epoch_end:
        return replace(cursor, epoch=cursor.epoch + 1, position=0, slice=0)
    return replace(cursor, position=position, slice=0)
