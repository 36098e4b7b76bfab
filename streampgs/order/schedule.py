"""Epochs → windows → rows.

Files consist of GROUPS (record batches, row groups). The unit of shuffling and reading is the BLOCK: a slice of a group
that can be read in place, or a whole group that must be decoded (in its first epoch, or in every epoch if it is not
cached). A WINDOW takes the next blocks of the epoch's order; its rows are visited in random order.

All results are functions of the seed, the sizes of the groups and the cursor. Shards that arrive in the middle of an
epoch open a new layer of its order: a new permutation of the remaining and the new blocks together, so that no row is
repeated or lost. Shards that arrive after the end of an epoch may become another part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import Positive
from streampgs.errors import RunError
from streampgs.kernels.randomness import key_of, permuted, random_fractions
from streampgs.order.cursor import MOST_COPIES, Arrival, Cursor, Place, Span

Ints = NDArray[np.int64]

_LOOK_AHEAD = 256  # blocks that are planned together
_FAR = 1 << 62  # beyond every place
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
    picks: tuple[Ints, ...] | None = None
    """Rows drawn from each piece (repeats allowed), counted from its start; None: every row once."""
    repeated: NDArray[np.bool_] | None = None
    """Which pieces were visited before: in an earlier epoch, or as an earlier copy; None: unknown."""

    def rows(self) -> int:
        if self.picks is not None:
            return sum(len(rows) for rows in self.picks)
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
class _Run:
    """The blocks of one arrival, each repeated `copies` times, in the numbering of a part."""

    start: int
    first_block: int
    stop_block: int
    copies: int

    @property
    def stop(self) -> int:
        return self.start + (self.stop_block - self.first_block) * self.copies


@dataclass(frozen=True)
class _PartLayout:
    whole: NDArray[np.bool_]
    """Whether a group is one block, per group."""
    starts: Ints
    """The first block of each group, followed by the number of blocks."""
    runs: list[_Run]
    layers: list[tuple[int, int]]
    """(first position, number of known positions)"""

    @property
    def length(self) -> int:
        return self.layers[-1][1]

    def blocks(self, numbers: Ints) -> tuple[Ints, Ints]:
        """The blocks with these numbers in the part, and which copy each is."""
        run = np.searchsorted([run.start for run in self.runs], numbers, side="right") - 1
        starts, firsts, stops = (
            np.array([getattr(run, name) for run in self.runs]) for name in ("start", "first_block", "stop_block")
        )
        copies, blocks = np.divmod(numbers - starts[run], (stops - firsts)[run])
        return firsts[run] + blocks, copies


@dataclass(frozen=True)
class _Ahead:
    group: Ints
    start: Ints
    stop: Ints
    copy: Ints
    reached_bytes: NDArray[np.float64]
    is_all: bool
    """Whether no later block could share a window with these."""
    large_group: int
    """The next group, if it exceeds a window; else -1."""
    large_copy: int


class Schedule:
    def __init__(self, seed: int, groups: GroupSizes, sizes: Sizes, sampling: str = "epoch") -> None:
        self.seed = seed
        self.groups = groups
        self.sizes = sizes
        self.sampling = sampling
        group_bytes = groups.rows * groups.row_bytes
        slices = np.maximum(1, np.ceil(group_bytes / sizes.block_bytes)).astype(np.int64)
        self.slice_rows: Ints = np.maximum(1, -(-groups.rows // slices))
        """Rows in each slice of a group; the last slice may have fewer."""
        self.slices: Ints = -(-groups.rows // self.slice_rows)

    def is_whole(self, epoch: int, group: int, arrivals: tuple[Arrival, ...]) -> bool:
        """Whether the group is one block in this epoch."""
        return bool(self._whole(epoch, arrivals)[group])

    def window(self, cursor: Cursor) -> WindowPlan:
        """The window that starts at the cursor; its `row` is ignored."""
        start = cursor.at_row(0)
        return self._independent_window(start) if self.sampling == "independent" else self._epoch_window(start)

    def part_length(self, cursor: Cursor) -> int:
        """Positions in the cursor's part: blocks, or rows with independent draws."""
        known = _known(cursor.arrivals, (cursor.epoch, cursor.part, _FAR))
        if self.sampling == "independent":
            return int(self._row_starts(cursor, known)[-1])
        return self._layout(cursor, _FAR).length

    def rows_in_epoch(self, cursor: Cursor) -> int:
        """How many different rows the cursor's epoch has at its end."""
        known = _known(cursor.arrivals, (cursor.epoch, cursor.part, _FAR))
        return int(self._live_rows(cursor)[:known].sum())

    def epoch_fraction(self, cursor: Cursor, position: float) -> float:
        """The fraction of the epoch that is done at a position of the cursor's part."""
        done = min(1.0, position / max(1, self.part_length(cursor)))
        since, live = _since(cursor), self._live_rows(cursor)
        rows = _known(cursor.arrivals, (cursor.epoch, cursor.part, _FAR))
        before = float(live[:since].sum() / max(1, live[:rows].sum()))
        return before + (1.0 - before) * done

    # Shards arrive and leave.

    def arrive(
        self,
        cursor: Cursor,
        shards: int,
        groups: int,
        last_epoch: int | None = None,
        catching_up: bool = False,
        retired: tuple[Span, ...] = (),
    ) -> Cursor:
        """The cursor after the catalog has grown to `groups` groups. The new groups are used from the next window on: once
        in this epoch, or with `catching_up` as often as the old ones by its end. If training ends before `last_epoch` and
        all earlier epochs are over, the new groups become another part of the last one. `retired`: groups that leave;
        allowed only at the end of an epoch."""
        boundary = cursor
        if cursor.row > 0 or cursor.slice > 0:
            boundary = self.window(cursor).next
            while boundary.slice > 0:
                boundary = self.window(boundary).next
        begun, waiting = _begun_before(cursor.arrivals, boundary.epoch)
        is_over = last_epoch is not None and boundary.begins_epoch and boundary.epoch >= max(1, last_epoch)
        if is_over and self._has_rows(begun[-1].groups, groups, cursor.arrivals, retired):
            epoch, since = boundary.epoch - 1, begun[-1].groups
            catching_up = catching_up or any(arrival.copies > 1 for arrival in waiting)
            going = (span for a in cursor.arrivals if a.place >= boundary.place for span in a.retired)
            retired = (*going, *retired)
            boundary = replace(cursor, epoch=epoch, part=_last_part(begun, epoch) + 1, position=0, slice=0, row=0)
        else:
            begun, since = cursor.arrivals, 0
        copies = min(boundary.epoch + 1, MOST_COPIES) if catching_up else 1
        arrival = Arrival(boundary.epoch, boundary.position, shards, groups, boundary.part, copies, since, retired)
        cursor = boundary if cursor.row == cursor.slice == 0 else cursor
        return replace(cursor, arrivals=_shortened((*begun, arrival), cursor))

    def _has_rows(self, first: int, stop: int, arrivals: tuple[Arrival, ...], retired: tuple[Span, ...]) -> bool:
        rows = self.groups.rows.copy()
        for going, gone in (*(span for a in arrivals for span in a.retired), *retired):
            rows[going:gone] = 0
        return bool(rows[first:stop].any())

    def begin_again(self, cursor: Cursor, shards: int, groups: int, retired: tuple[Span, ...]) -> Cursor:
        """Groups have disappeared: the cursor's epoch starts again with the remaining ones."""
        again = Cursor((), cursor.epoch, part=cursor.part + (not cursor.begins_epoch))
        arrival = Arrival(again.epoch, 0, shards, groups, again.part, retired=retired)
        begun = (a for a in cursor.arrivals if a.place <= cursor.place)
        return replace(again, arrivals=_shortened((*begun, arrival), again))

    # The order of an epoch.

    def _whole(self, epoch: int, arrivals: tuple[Arrival, ...]) -> NDArray[np.bool_]:
        fresh = _fresh(epoch, arrivals)
        groups = len(fresh)
        return np.asarray(self.groups.decoded[:groups] & (fresh | ~self.groups.cached[:groups]))

    def _live_rows(self, cursor: Cursor) -> Ints:
        rows = self.groups.rows.copy()
        for first, stop in _retired(cursor):
            rows[first:stop] = 0
        return rows

    def _layout(self, cursor: Cursor, position: int) -> _PartLayout:
        """The layout of the cursor's part as known at a position."""
        whole = self._whole(cursor.epoch, cursor.arrivals)
        blocks = np.where(whole, 1, self.slices[: len(whole)])
        for first, stop in _retired(cursor):
            blocks[first:stop] = 0
        starts = np.concatenate([[0], np.cumsum(blocks)])
        own = [a for a in cursor.arrivals if (a.epoch, a.part) == (cursor.epoch, cursor.part)]
        before = _known(cursor.arrivals, (cursor.epoch, cursor.part, -1))
        since = _since(cursor)
        runs = [_Run(0, int(starts[since]), int(starts[before]), 1)] if before > since else []
        layers: list[tuple[int, int]] = [(0, runs[-1].stop if runs else 0)]
        for arrival in own:
            if arrival.position > position:
                break
            length = runs[-1].stop if runs else 0
            new = max(before, since)
            before = max(new, arrival.groups)
            run = _Run(length, int(starts[new]), int(starts[before]), arrival.copies)
            runs.append(run)
            if layers[-1][0] == arrival.position:
                layers.pop()
            layers.append((arrival.position, run.stop))
        return _PartLayout(whole, starts, runs, layers)

    def _blocks_at(self, cursor: Cursor, layout: _PartLayout, positions: Ints) -> tuple[Ints, Ints]:
        """Numbers of the blocks at `positions` of the cursor's part, and which copy each is.

        A layer (first position, known length) permutes the blocks that its predecessor had left and the new ones.
        """
        found = np.empty_like(positions)
        open_places = np.arange(len(positions))
        for number in range(len(layout.layers) - 1, -1, -1):
            first, length = layout.layers[number]
            known_before = layout.layers[number - 1][1] if number else 0
            left = known_before - first
            key = _key(self.seed, "blocks", cursor, number)
            drawn = permuted(key, left + length - known_before, positions - first)
            old = drawn < left
            found[open_places[~old]] = drawn[~old] - left + known_before
            positions, open_places = first + drawn[old], open_places[old]
            if len(positions) == 0:
                break
        return layout.blocks(found)

    def _epoch_window(self, cursor: Cursor) -> WindowPlan:
        layout = self._layout(cursor, cursor.position)
        part_end = layout.length
        ahead = self._blocks_ahead(cursor, layout, min([part_end, *_later(cursor)]))
        if len(ahead.group) == 0:
            if ahead.large_group < 0:
                raise _no_place()
            return self._part_of_large_group(cursor, ahead.large_group, ahead.large_copy, part_end)
        fits = max(1, int(np.searchsorted(ahead.reached_bytes, self._share(ahead), side="right")))
        group, copy = ahead.group[:fits], ahead.copy[:fits]
        repeated = ~_fresh(cursor.epoch, cursor.arrivals)[group] | (copy > 0)
        pieces = Pieces(group, ahead.start[:fits], ahead.stop[:fits], repeated=repeated)
        return self._plan(cursor, _after(cursor, cursor.position + fits, part_end), pieces)

    def _blocks_ahead(self, cursor: Cursor, layout: _PartLayout, stop_at: int) -> _Ahead:
        """Enough blocks from the cursor on for two windows, up to `stop_at` or to a group that exceeds a window."""
        whole, block_starts = layout.whole, layout.starts
        parts: list[tuple[Ints, Ints, Ints, Ints]] = [(np.empty(0, np.int64),) * 4]
        position, reached, large_group, large_copy = cursor.position, 0.0, -1, 0
        while position < stop_at and reached < 2 * self.sizes.window_bytes and large_group < 0:
            positions = np.arange(position, min(stop_at, position + _LOOK_AHEAD), dtype=np.int64)
            blocks, copy = self._blocks_at(cursor, layout, positions)
            if blocks.min() < 0 or blocks.max() >= block_starts[-1]:
                raise _no_place()
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
                large_group, large_copy = int(group[count]), int(copy[count])
                group, start, stop, copy = group[:count], start[:count], stop[:count], copy[:count]
            parts.append((group, start, stop, copy))
            reached += float(((stop - start) * self.groups.row_bytes[group]).sum())
            position += len(group)
        group, start, stop, copy = (np.concatenate(column) for column in zip(*parts, strict=True))
        reached_bytes = np.cumsum((stop - start) * self.groups.row_bytes[group])
        is_all = position >= stop_at or large_group >= 0
        return _Ahead(group, start, stop, copy, reached_bytes, is_all, large_group, large_copy)

    def _share(self, ahead: _Ahead) -> float:
        """Bytes for the next window. The last two windows are made equal, because a small window would mix badly."""
        left, most = float(ahead.reached_bytes[-1]), float(self.sizes.window_bytes)
        return left / 2 if ahead.is_all and most < left <= _HALVED * most else most

    def _part_of_large_group(self, cursor: Cursor, group: int, copy: int, part_end: int) -> WindowPlan:
        """A window of some slices of a group that exceeds a window. The slices have their own random order."""
        slices, slice_rows = int(self.slices[group]), int(self.slice_rows[group])
        fitting = max(1, int(self.sizes.window_bytes // (slice_rows * self.groups.row_bytes[group])))
        windows = -(-(slices - cursor.slice) // fitting)
        first, stop = cursor.slice, cursor.slice + -(-(slices - cursor.slice) // windows)
        key = key_of(self.seed, "slices", cursor.epoch, group)
        part = permuted(key, slices, np.arange(first, stop, dtype=np.int64))
        start = part * slice_rows
        stops = np.minimum(start + slice_rows, self.groups.rows[group])
        repeated = np.full(len(part), copy > 0 or not _fresh(cursor.epoch, cursor.arrivals)[group])
        pieces = Pieces(np.full(len(part), group), start, stops, repeated=repeated)
        following = replace(cursor, slice=stop) if stop < slices else _after(cursor, cursor.position + 1, part_end)
        return self._plan(cursor, following, pieces, blocks=1)

    def _independent_window(self, cursor: Cursor) -> WindowPlan:
        groups = _known(cursor.arrivals, cursor.place)
        row_starts = self._row_starts(cursor, groups)
        total = int(row_starts[-1])
        mean_bytes = float((np.diff(row_starts) * self.groups.row_bytes[:groups]).sum()) / max(1, total)
        fitting = max(1, int(self.sizes.window_bytes // max(1.0, mean_bytes)))
        stop_at = min([total, *_later(cursor), cursor.position + fitting])
        key = _key(self.seed, "draws", cursor)
        draws = np.arange(cursor.position, stop_at, dtype=np.uint64)
        row = np.sort(np.minimum((random_fractions(key, draws) * total).astype(np.int64), total - 1))
        group = np.searchsorted(row_starts, row, side="right") - 1
        inside = row - row_starts[group]
        part = inside // self.slice_rows[group]
        firsts = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(part, prepend=-1))
        start = part[firsts] * self.slice_rows[group[firsts]]
        stop = np.minimum(start + self.slice_rows[group[firsts]], self.groups.rows[group[firsts]])
        picks = tuple(np.split(inside - np.repeat(start, np.diff(firsts, append=len(row))), firsts[1:]))
        repeated = ~_fresh(cursor.epoch, cursor.arrivals)[group[firsts]]
        pieces = Pieces(group[firsts], start, stop, picks, repeated)
        return self._plan(cursor, _after(cursor, stop_at, total), pieces)

    def _row_starts(self, cursor: Cursor, groups: int) -> Ints:
        """Where the rows of each group start among all rows that are drawn from in the cursor's part."""
        rows = self._live_rows(cursor)[:groups]
        rows[: _since(cursor)] = 0
        return np.concatenate([[0], np.cumsum(rows)])

    def _plan(self, start: Cursor, following: Cursor, pieces: Pieces, blocks: int | None = None) -> WindowPlan:
        key = _key(self.seed, "rows", start, start.position, start.slice)
        return WindowPlan(start, following, key, pieces, len(pieces.group) if blocks is None else blocks)


def _no_place() -> RunError:
    return RunError(
        "the position in the checkpoint does not exist with the run's block sizes",
        "restore the run's folder from a copy, or start a new run",
    )


def _key(seed: int, purpose: str, cursor: Cursor, *counters: int) -> int:
    part = (f"part {cursor.part}",) if cursor.part else ()
    return key_of(seed, purpose, cursor.epoch, *counters, *part)


def _fresh(epoch: int, arrivals: tuple[Arrival, ...]) -> NDArray[np.bool_]:
    """Which of the groups known in an epoch have arrived in it."""
    first_epoch = np.empty(_known(arrivals, (epoch, _FAR, _FAR)), np.int64)
    known = 0
    for arrival in arrivals:
        if arrival.epoch <= epoch:
            first_epoch[known : arrival.groups] = arrival.epoch
            known = arrival.groups
    return np.asarray(first_epoch == epoch)


def _known(arrivals: tuple[Arrival, ...], place: Place) -> int:
    """How many groups have arrived at a place."""
    return max((a.groups for a in arrivals if a.place <= place), default=0)


def _later(cursor: Cursor) -> list[int]:
    """Positions after the cursor, in its part, at which more groups arrive."""
    same_part = (a for a in cursor.arrivals if (a.epoch, a.part) == (cursor.epoch, cursor.part))
    return [a.position for a in same_part if a.position > cursor.position]


def _retired(cursor: Cursor) -> list[Span]:
    """Groups that are no longer used."""
    return [span for a in cursor.arrivals if (a.epoch, a.part) <= (cursor.epoch, cursor.part) for span in a.retired]


def _since(cursor: Cursor) -> int:
    """The first group of the cursor's part."""
    return next((a.since for a in cursor.arrivals if a.place == (cursor.epoch, cursor.part, 0)), 0)


def _begun_before(arrivals: tuple[Arrival, ...], epoch: int) -> tuple[tuple[Arrival, ...], tuple[Arrival, ...]]:
    """The arrivals used in earlier epochs, and those that wait for this one. Groups that replaced others count as used,
    because they may hold the same rows."""
    seen = 0
    for number, arrival in enumerate(arrivals):
        replaces = arrival.retired and number > 0 and arrival.groups > arrivals[number - 1].groups
        if arrival.place < (epoch, 0, 0) or replaces:
            seen = number + 1
    return arrivals[:seen], arrivals[seen:]


def _last_part(arrivals: tuple[Arrival, ...], epoch: int) -> int:
    return max((a.part for a in arrivals if a.epoch == epoch), default=0)


def _shortened(arrivals: tuple[Arrival, ...], cursor: Cursor) -> tuple[Arrival, ...]:
    """The arrivals, merged where they need not be told apart: in a finished part the position of an arrival does not
    matter, and neither does the part in epochs before the previous one, which may still get another part."""
    kept: list[Arrival] = []
    for arrival in arrivals:
        if kept and (arrival.epoch, arrival.part) < (cursor.epoch, cursor.part):
            before = kept[-1]
            if before.epoch == arrival.epoch or arrival.epoch < cursor.epoch - 1:
                kept.pop()
                retired = (*before.retired, *arrival.retired)
                arrival = replace(arrival, position=0, copies=1, since=0, retired=retired)
        kept.append(arrival)
    return tuple(kept)


def _after(cursor: Cursor, position: int, part_end: int) -> Cursor:
    """The cursor at `position`, which may be the end of its part, or of its epoch."""
    if position < part_end:
        return replace(cursor, position=position, slice=0)
    if cursor.part < _last_part(cursor.arrivals, cursor.epoch):
        return replace(cursor, part=cursor.part + 1, position=0, slice=0)
    return replace(cursor, epoch=cursor.epoch + 1, part=0, position=0, slice=0)
