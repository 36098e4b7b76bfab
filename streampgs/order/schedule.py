"""Epochs → windows → rows.

Files consist of GROUPS (record batches, row groups). The unit of shuffling and reading is the BLOCK: a slice of a group
that can be read in place, or a whole group that must be decoded (when it is visited for the first time, or always if it
is not cached). A WINDOW takes the next blocks of the order; its rows are visited in random order.

All results are functions of the seed, the sizes of the groups and the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import Positive
from streampgs.base.errors import RunError
from streampgs.kernels.randomness import key_of, permuted
from streampgs.order.arrivals import (
    USUAL_UPDATES,
    UpdateSizes,
    fresh_spans,
    known_in,
    later_positions,
    next_part,
    retired_within,
    shortened,
    update_at,
    with_new,
    with_retired,
    without_waiting,
)
from streampgs.order.cursor import Arrival, Cursor, Span
from streampgs.order.layout import Layout, UpdateLayout, epoch_layout, live_rows, pass_rows, update_layout

Ints = NDArray[np.int64]

_LOOK_AHEAD = 256  # blocks that are planned together
_FAR = 1 << 62  # beyond every position
_HALVED = 1.9  # up to so many windows at the end are cut into two equal ones


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
    """The two sizes that determine the order of rows. They are chosen once and recorded with the run."""

    window_bytes: Positive
    block_bytes: Positive


@dataclass(frozen=True)
class Pieces:
    """Parts of groups, in the order in which they are read."""

    group: Ints
    start: Ints
    stop: Ints
    repeated: NDArray[np.bool_] | None = None
    """Which pieces were visited before: in an earlier epoch, or as an earlier copy; None: unknown."""

    def rows(self) -> int:
        return int((self.stop - self.start).sum())


@dataclass(frozen=True)
class WindowSpan:
    """Where a window begins and ends, and the key of the random order of its rows."""

    start: Cursor
    next: Cursor
    shuffle_key: int


@dataclass(frozen=True)
class WindowPlan(WindowSpan):
    pieces: Pieces
    blocks: int
    """How many independently placed blocks the window mixes."""


@dataclass(frozen=True)
class UpdatePass:
    """The pass of an update that a cursor is in."""

    epoch: int
    first_part: int
    """(epoch, first_part) names the update."""
    number: int
    """The number of the pass, from 0."""
    passes: int
    """Without the pass for rows held out."""
    holds_out: bool
    first_new_row: int
    """Rows with a smaller number are old; numbers as in Window.numbers."""
    old_share: float
    """The share of the old rows in the planned blocks that are to be trained on: below 1 where whole groups are decoded."""
    rows: int
    """New rows of the update."""
    old_rows: int
    """Rows that were there before it."""
    long_rows: int
    """New rows, with the old ones that are visited next to them."""


@dataclass(frozen=True)
class _Ahead:
    position: Ints
    group: Ints
    start: Ints
    stop: Ints
    reached_bytes: NDArray[np.float64]
    is_all: bool
    """Whether no later block could share a window with these."""
    large_group: int
    """The next group, if it exceeds a window; else -1."""


class Schedule:
    """The windows, and where shards come and go between them."""

    def __init__(self, seed: int, groups: GroupSizes, sizes: Sizes) -> None:
        self.seed = seed
        self.groups = groups
        self.sizes = sizes
        self._latest: tuple[Cursor, UpdatePass] | None = None
        """The pass that was asked for last; the cursor is at its beginning."""
        group_bytes = groups.rows * groups.row_bytes
        slices = np.maximum(1, np.ceil(group_bytes / sizes.block_bytes)).astype(np.int64)
        self.slice_rows: Ints = np.maximum(1, -(-groups.rows // slices))
        """Rows in each slice of a group; the last slice may have fewer."""
        self.slices: Ints = -(-groups.rows // self.slice_rows)

    def window(self, cursor: Cursor) -> WindowPlan:
        """The window that starts at the cursor; its `row` is ignored."""
        return self._window_of_blocks(cursor.at_row(0))

    def part_length(self, cursor: Cursor) -> int:
        """Positions in the cursor's part."""
        return self._layout(cursor, _FAR).length

    def whole(self, cursor: Cursor) -> NDArray[np.bool_]:
        """Which groups are one block each in the cursor's part."""
        fresh = self._is_fresh(cursor)
        groups = len(fresh)
        return np.asarray(self.groups.decoded[:groups] & (fresh | ~self.groups.cached[:groups]))

    def _is_fresh(self, cursor: Cursor) -> NDArray[np.bool_]:
        """Which groups are visited for the first time in the cursor's part."""
        fresh = np.zeros(known_in(cursor), np.bool_)
        for first, stop in fresh_spans(cursor):
            fresh[first:stop] = True
        return fresh

    def _layout(self, cursor: Cursor, position: int) -> Layout:
        """The layout of the cursor's part as known at a position."""
        whole = self.whole(cursor)
        rows = live_rows(self.groups.rows[: len(whole)], cursor)
        update = update_at(cursor)
        # A group without rows has no block: its shard need not be there.
        blocks = np.where(rows > 0, np.where(whole, 1, self.slices[: len(whole)]), 0)
        starts = np.concatenate([[0], np.cumsum(blocks)])
        if update is None:
            return epoch_layout(self.seed, cursor, position, whole, starts)
        return update_layout(self.seed, cursor, update, rows, whole, starts)

    def _settled(self, cursor: Cursor) -> Cursor:
        """The next place from the cursor on that has a block."""
        while not cursor.begins_epoch:
            position = self._next_block(cursor)
            if position == cursor.position:
                return cursor
            # From a later position on more groups may be gone.
            cursor = next_part(cursor) if position is None else replace(cursor, position=position)
        return cursor

    def _next_block(self, cursor: Cursor) -> int | None:
        """The position of the next block that is in use; None: there is none in the part."""
        if cursor.part and update_at(cursor) is None:
            return None
        layout, gone = self._layout(cursor, cursor.position), retired_within(cursor)
        length = layout.length
        if not gone:
            return cursor.position if cursor.position < length else None
        for first in range(cursor.position, length, _LOOK_AHEAD):
            positions = np.arange(first, min(length, first + _LOOK_AHEAD), dtype=np.int64)
            used = np.flatnonzero(~_within(self._groups_of(layout, positions), gone))
            if used.size:
                return int(positions[used[0]])
        return None

    @staticmethod
    def _groups_of(layout: Layout, positions: Ints) -> Ints:
        return np.searchsorted(layout.starts, layout.blocks(positions), side="right") - 1

    def _window_of_blocks(self, cursor: Cursor) -> WindowPlan:
        layout = self._layout(cursor, cursor.position)
        ahead = self._blocks_ahead(cursor, layout, min([layout.length, *later_positions(cursor)]))
        if len(ahead.group) == 0:
            if ahead.large_group < 0:
                raise _no_place()
            return self._part_of_large_group(cursor, ahead.large_group, layout.length)
        fits = max(1, int(np.searchsorted(ahead.reached_bytes, self._share(ahead), side="right")))
        group = ahead.group[:fits]
        pieces = Pieces(group, ahead.start[:fits], ahead.stop[:fits], repeated=~self._is_fresh(cursor)[group])
        following = self._after(cursor, int(ahead.position[fits - 1]) + 1, layout.length)
        return self._plan(cursor, following, pieces)

    def _blocks_ahead(self, cursor: Cursor, layout: Layout, stop_at: int) -> _Ahead:
        """Enough blocks from the cursor on for two windows, up to `stop_at` or to a group that exceeds a window."""
        whole, block_starts, gone = layout.whole, layout.starts, retired_within(cursor)
        parts: list[tuple[Ints, Ints, Ints, Ints]] = [(np.empty(0, np.int64),) * 4]
        position, reached, large_group = cursor.position, 0.0, -1
        while position < stop_at and reached < 2 * self.sizes.window_bytes and large_group < 0:
            positions = np.arange(position, min(stop_at, position + _LOOK_AHEAD), dtype=np.int64)
            position += len(positions)
            blocks = layout.blocks(positions)
            if blocks.min() < 0 or blocks.max() >= block_starts[-1]:
                raise _no_place()
            group = np.searchsorted(block_starts, blocks, side="right") - 1
            if gone:
                kept = ~_within(group, gone)
                positions, blocks, group = positions[kept], blocks[kept], group[kept]
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
                large_group, position = int(group[count]), int(positions[count])
                positions, group, start, stop = positions[:count], group[:count], start[:count], stop[:count]
            parts.append((positions, group, start, stop))
            reached += float(((stop - start) * self.groups.row_bytes[group]).sum())
        positions, group, start, stop = (np.concatenate(column) for column in zip(*parts, strict=True))
        reached_bytes = np.cumsum((stop - start) * self.groups.row_bytes[group])
        return _Ahead(
            positions, group, start, stop, reached_bytes, position >= stop_at or large_group >= 0, large_group
        )

    def _share(self, ahead: _Ahead) -> float:
        """Bytes for the next window. The last two windows are made equal, because a small window would mix badly."""
        left, most = float(ahead.reached_bytes[-1]), float(self.sizes.window_bytes)
        return left / 2 if ahead.is_all and most < left <= _HALVED * most else most

    def _part_of_large_group(self, cursor: Cursor, group: int, length: int) -> WindowPlan:
        """A window of some slices of a group that exceeds a window. The slices have their own random order."""
        slices, slice_rows = int(self.slices[group]), int(self.slice_rows[group])
        fitting = max(1, int(self.sizes.window_bytes // (slice_rows * self.groups.row_bytes[group])))
        windows = -(-(slices - cursor.slice) // fitting)
        first, stop = cursor.slice, cursor.slice + -(-(slices - cursor.slice) // windows)
        key = key_of(self.seed, "slices", cursor.epoch, group)
        part = permuted(key, slices, np.arange(first, stop, dtype=np.int64))
        start = part * slice_rows
        stops = np.minimum(start + slice_rows, self.groups.rows[group])
        repeated = np.full(len(part), not self._is_fresh(cursor)[group])
        pieces = Pieces(np.full(len(part), group), start, stops, repeated=repeated)
        leaves = any(
            a <= group < b for arrival in cursor.arrivals if arrival.place > cursor.place for a, b in arrival.retired
        )
        if stop < slices and not leaves:
            return self._plan(cursor, replace(cursor, slice=stop), pieces, blocks=1)
        return self._plan(cursor, self._after(cursor, cursor.position + 1, length), pieces, blocks=1)

    def _after(self, cursor: Cursor, position: int, length: int) -> Cursor:
        """The next place that has a block, from a position on; `length`: of the part."""
        following = replace(cursor, position=position, slice=0)
        return following if position < length and not retired_within(following) else self._settled(following)

    def _plan(self, start: Cursor, following: Cursor, pieces: Pieces, blocks: int | None = None) -> WindowPlan:
        key = _key(self.seed, "rows", start, start.position, start.slice)
        return WindowPlan(start, following, key, pieces, len(pieces.group) if blocks is None else blocks)

    def rows_in_epoch(self, cursor: Cursor) -> int:
        """How many different rows the cursor's epoch has at its end."""
        return int(live_rows(self.groups.rows, cursor)[: known_in(cursor)].sum())

    def epoch_fraction(self, cursor: Cursor, position: float) -> float:
        """The fraction of the epoch that is done at a position of the cursor's part."""
        return 1.0 if cursor.part else min(1.0, position / max(1, self.part_length(cursor)))

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        """None in an epoch."""
        update = update_at(cursor)
        if update is None:
            return None
        start = Cursor(cursor.arrivals, cursor.epoch, part=cursor.part)
        latest = self._latest  # another thread may ask for another pass
        if latest is None or latest[0] != start:
            latest = self._latest = start, self._pass_of(start, update)
        return latest[1]

    def _pass_of(self, cursor: Cursor, update: Arrival) -> UpdatePass:
        layout = self._layout(cursor, 0)
        assert isinstance(layout, UpdateLayout)
        rows = np.concatenate([[0], np.cumsum(self.groups.rows)])
        live = live_rows(self.groups.rows, cursor)
        new, old = int(live[update.since : update.groups].sum()), int(live[: update.since].sum())
        return UpdatePass(
            update.epoch,
            update.part,
            cursor.part - update.part,
            update.passes,
            update.holds_out,
            int(rows[update.since]),
            layout.old_share,
            new,
            old,
            new + int(min(update.replay * new, update.passes * old)),
        )

    def update_rows(self, cursor: Cursor, position: float) -> tuple[float, float] | None:
        """About how many rows of an update are done at a position of the cursor's part, and how many it has."""
        update = update_at(cursor)
        if update is None:
            return None
        rows = pass_rows(update, live_rows(self.groups.rows, cursor))
        number = cursor.part - update.part
        present = rows[number] * min(1.0, position / max(1, self.part_length(cursor)))
        return sum(rows[:number]) + present, sum(rows)

    # Shards arrive and leave.

    def arrive(
        self,
        cursor: Cursor,
        shards: int,
        groups: int,
        sizes: UpdateSizes | None = USUAL_UPDATES,
        retired: tuple[Span, ...] = (),
        are_old: bool = False,
    ) -> Cursor:
        """The cursor after the catalog has grown to `groups` groups, and the groups `retired` have left. In the middle of an
        epoch the new groups join it at the next window. At its end they are visited in an update, and so are groups that
        arrive during an update, in the next one. Groups leave at the next window. `are_old`: the rows of the new groups were
        visited in groups that leave; the cursor is at the end of an epoch, and no update follows. No `sizes`: the groups join
        the next epoch instead of an update."""
        boundary = self._boundary(cursor)
        leaves = cursor.row == 0 and cursor.slice > 0 and self._is_leaving(cursor, retired)
        arrivals = with_retired(cursor.arrivals, boundary.place, retired)
        grows = (shards, groups) != (arrivals[-1].shards, arrivals[-1].groups)
        if grows:
            new = _placed(replace(boundary, arrivals=arrivals), shards, groups, sizes)
            if are_old:
                new = replace(new, passes=0, replay=0.0)
            arrivals = with_new(arrivals, new)
        last = arrivals[-1]
        waits = last.passes > 0 and (grows or last.place >= boundary.place)
        if waits and not self._has_rows(arrivals, last):
            last, waits = Arrival(last.epoch + 1, 0, shards, groups, retired=last.retired), False
            arrivals = (*arrivals[:-1], last)
        if cursor.is_between_blocks or leaves:
            epoch, part, position = min(last.place, boundary.place) if waits else boundary.place
            cursor = self._settled(Cursor(arrivals, epoch, position, part=part))
        return replace(cursor, arrivals=shortened(arrivals, cursor))

    def joins_at(self, cursor: Cursor) -> Cursor:
        """Where groups that arrive now are used first: after the window that has begun, and after an update."""
        boundary = self._boundary(cursor)
        update = update_at(boundary)
        if update is None or boundary.place == update.place:
            return boundary
        return Cursor(boundary.arrivals, boundary.epoch + 1)

    def without_waiting(self, cursor: Cursor) -> Cursor:
        """The cursor without groups of which no row was used. Groups that have left stay away."""
        cursor = without_waiting(cursor)
        return self._settled(cursor) if cursor.is_between_blocks else cursor

    def _boundary(self, cursor: Cursor) -> Cursor:
        """The end of the window that has been begun, and of a group that is too large for a window."""
        while not cursor.is_between_blocks:
            cursor = self.window(cursor).next
        return cursor

    def _is_leaving(self, cursor: Cursor, retired: tuple[Span, ...]) -> bool:
        group = int(self.window(cursor).pieces.group[0])
        return any(first <= group < stop for first, stop in retired)

    def _has_rows(self, arrivals: tuple[Arrival, ...], update: Arrival) -> bool:
        rows = self.groups.rows[: update.groups].copy()
        for first, stop in (span for arrival in arrivals for span in arrival.retired):
            rows[first:stop] = 0
        return bool(rows[update.since :].any())


def _no_place() -> RunError:
    return RunError(
        "the position in the checkpoint does not exist with the run's block sizes",
        "restore the run's folder from a copy, or start a new run",
    )


def _key(seed: int, purpose: str, cursor: Cursor, *counters: int) -> int:
    part = (f"part {cursor.part}",) if cursor.part else ()
    return key_of(seed, purpose, cursor.epoch, *counters, *part)


def _within(groups: Ints, spans: Iterable[Span]) -> NDArray[np.bool_]:
    found = np.zeros(len(groups), np.bool_)
    for first, stop in spans:
        found |= (first <= groups) & (groups < stop)
    return found


def _placed(boundary: Cursor, shards: int, groups: int, sizes: UpdateSizes | None) -> Arrival:
    """Where new groups are visited that arrive when the window up to the boundary is used."""
    if sizes is None:
        return Arrival(boundary.epoch, boundary.position, shards, groups)
    update = update_at(boundary)
    if update is not None:
        epoch, part = update.epoch, update.part if boundary.place == update.place else update.next_part
    elif boundary.begins_epoch and boundary.epoch > 0:
        epoch = boundary.epoch - 1
        part = max((a.next_part for a in boundary.arrivals if a.epoch == epoch), default=1)
    else:
        return Arrival(boundary.epoch, boundary.position, shards, groups)
    return Arrival(epoch, 0, shards, groups, part, sizes.passes, sizes.replay)
