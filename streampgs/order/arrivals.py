"""Shards arrive and leave: what the arrivals in a cursor say about a place, and how a further one is added.

The arrivals of a cursor are in the order of their places. Shards that arrive in the middle of an epoch join it at the
next window. Shards that arrive at its end are visited in an update: further parts of the epoch that is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from streampgs.options.commands import MOST_PASSES, MOST_REPLAY, PASSES, REPLAY, Growth
from streampgs.order.cursor import Arrival, Cursor, Place, Span

_FAR = 1 << 62  # beyond every position


@dataclass(frozen=True)
class UpdateSizes:
    """How often an update visits rows."""

    passes: Annotated[int, Meta(ge=1, le=MOST_PASSES)] = PASSES
    """Over the new rows."""
    replay: Annotated[float, Meta(ge=0.0, le=MOST_REPLAY)] = REPLAY
    """Old rows visited for each new one."""

    def changed_by(self, growth: Growth) -> UpdateSizes:
        """With the given numbers instead of those before."""
        given = {name: getattr(growth, name) for name in ("passes", "replay")}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


USUAL_UPDATES = UpdateSizes()


def known_at(arrivals: Iterable[Arrival], place: Place) -> int:
    """How many groups have arrived at a place."""
    return max((a.groups for a in arrivals if a.place <= place), default=0)


def known_in(cursor: Cursor) -> int:
    """How many groups have arrived at the end of the cursor's part."""
    return known_at(cursor.arrivals, (cursor.epoch, cursor.part, _FAR))


def of_part(cursor: Cursor) -> list[Arrival]:
    """The arrivals in the cursor's part."""
    return [a for a in cursor.arrivals if (a.epoch, a.part) == (cursor.epoch, cursor.part)]


def later_positions(cursor: Cursor) -> list[int]:
    """Positions after the cursor, in its part, at which groups arrive or leave."""
    return [a.position for a in of_part(cursor) if a.position > cursor.position]


def retired_before(cursor: Cursor) -> list[Span]:
    """Groups that were not used any more when the cursor's part began."""
    start = (cursor.epoch, cursor.part, 0)
    return [span for a in cursor.arrivals if a.place <= start for span in a.retired]


def retired_within(cursor: Cursor) -> list[Span]:
    """Groups that have left in the cursor's part, after its beginning and up to the cursor."""
    return [span for a in of_part(cursor) if 0 < a.position <= cursor.position for span in a.retired]


def update_at(cursor: Cursor) -> Arrival | None:
    """The update that the cursor is in."""
    of_epoch = (a for a in cursor.arrivals if a.passes and a.epoch == cursor.epoch)
    return next((a for a in of_epoch if a.part <= cursor.part < a.part + a.parts), None)


def fresh_spans(cursor: Cursor) -> list[Span]:
    """Groups whose rows are visited for the first time in the cursor's part."""
    update = update_at(cursor)
    if update is not None:
        return [(update.since, update.groups)] if cursor.part == update.part else []
    first = max((a.groups for a in cursor.arrivals if a.place < (cursor.epoch, 0, 0)), default=0)
    return [(first, known_in(cursor))]


def next_part(cursor: Cursor) -> Cursor:
    """The beginning of the part after the cursor's, or of the next epoch."""
    stop = max((a.next_part for a in cursor.arrivals if a.epoch == cursor.epoch), default=1)
    if cursor.part + 1 < stop:
        return replace(cursor, part=cursor.part + 1, position=0, slice=0, row=0)
    return replace(cursor, epoch=cursor.epoch + 1, part=0, position=0, slice=0, row=0)


def owed_until(cursor: Cursor) -> int:
    """The first epoch in which training may end."""
    return max((arrival.until for arrival in cursor.arrivals), default=0)


# How arrivals are added.


def with_retired(arrivals: tuple[Arrival, ...], place: Place, spans: tuple[Span, ...]) -> tuple[Arrival, ...]:
    """The arrivals after groups have left at a place. Groups that have not arrived there leave when they arrive."""
    if not spans:
        return arrivals
    found = [a for a in arrivals if a.place <= place]
    last = found[-1]
    here = _clipped(spans, 0, last.groups)
    if here and last.place == place:
        found[-1] = replace(last, retired=_united(last.retired, here))
    elif here:
        epoch, part, position = place
        found.append(Arrival(epoch, position, last.shards, last.groups, part, retired=here))
    known = last.groups
    for arrival in (a for a in arrivals if a.place > place):
        own = _clipped(spans, known, arrival.groups)
        found.append(replace(arrival, retired=_united(arrival.retired, own)))
        known = arrival.groups
    return tuple(found)


def with_new(arrivals: tuple[Arrival, ...], arrival: Arrival) -> tuple[Arrival, ...]:
    """The arrivals with another one, which takes the place of those that have not begun there."""
    before = tuple(a for a in arrivals if a.place < arrival.place)
    waiting = arrivals[len(before) :]
    retired = _united(*(a.retired for a in waiting), arrival.retired)
    since = before[-1].groups if before and arrival.passes else 0
    holds_out = bool(arrival.passes) and not any(a.passes for a in before)
    return (*before, replace(arrival, retired=retired, since=since, holds_out=holds_out))


def without_waiting(cursor: Cursor) -> Cursor:
    """Without the groups of which no row was used; the cursor may be at a place without blocks."""
    is_begun = [
        a.place < cursor.place or (a.place == cursor.place and not cursor.is_between_blocks) for a in cursor.arrivals
    ]
    arrivals = cursor.arrivals[: max(1, sum(is_begun))]
    groups, waiting = arrivals[-1].groups, cursor.arrivals[len(arrivals) :]
    if any(a.passes and a.place == cursor.place for a in waiting):
        cursor = replace(cursor, epoch=cursor.epoch + 1, part=0)
    for arrival in waiting:
        spans = _clipped(arrival.retired, 0, groups)
        arrivals = with_retired(arrivals, (arrival.epoch + 1, 0, 0) if arrival.passes else arrival.place, spans)
    return replace(cursor, arrivals=arrivals)


def shortened(arrivals: tuple[Arrival, ...], cursor: Cursor) -> tuple[Arrival, ...]:
    """The arrivals, merged where they need not be told apart: two entries are enough for all parts that are over, the last
    update and the latest arrival after it."""
    update = update_at(replace(cursor, arrivals=arrivals))
    present = (cursor.epoch, cursor.part if update is None else update.part)
    kept: list[Arrival] = []
    for arrival in arrivals:
        if (arrival.epoch, arrival.part) < present:
            arrival = replace(arrival, position=0)
            while kept and (arrival.passes or not kept[-1].passes):
                before = kept.pop()
                arrival = replace(
                    arrival, retired=_united(before.retired, arrival.retired), until=max(before.until, arrival.until)
                )
        kept.append(arrival)
    return tuple(kept)


def _clipped(spans: tuple[Span, ...], first: int, stop: int) -> tuple[Span, ...]:
    return tuple((max(a, first), min(b, stop)) for a, b in spans if a < stop and b > first)


def _united(*spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The spans in order; those that meet are one."""
    found: list[Span] = []
    for first, stop in sorted(span for some in spans for span in some):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        elif stop > first:
            found.append((first, stop))
    return tuple(found)
