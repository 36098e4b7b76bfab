"""Where training stands: a few integers from which the reader finds every following row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from streampgs.checks import Count

Place = tuple[int, int, int]
"""(epoch, part, position)"""
Span = tuple[int, int]
"""Groups [first, stop)"""

MOST_COPIES = 10_000


@dataclass(frozen=True)
class Arrival:
    """From a place on, the first `shards` shards and `groups` groups of the catalog take part."""

    epoch: Count
    position: Count
    shards: Count
    groups: Count
    part: Count = 0
    copies: Annotated[int, Meta(ge=1, le=MOST_COPIES)] = 1
    """How often the groups that are new come in the epoch that they arrive in."""
    since: Count = 0
    """Of an arrival that begins a part: the first group that comes in it."""
    retired: tuple[Span, ...] = ()
    """Groups that take no more part."""

    @property
    def place(self) -> Place:
        return self.epoch, self.part, self.position


@dataclass(frozen=True)
class Cursor:
    """The first row not yet used: row `row` of the window that starts at `position` of `part` of `epoch`.

    An epoch has one part, unless shards arrive when all else has been used up in the last epoch that is wanted: these
    are a part of their own. `position` counts blocks (rows, when drawing independently) used up in the part; `slice`
    counts the blocks used of a group that is too large for a window and is therefore spread over several.
    """

    arrivals: tuple[Arrival, ...]
    epoch: Count = 0
    position: Count = 0
    slice: Count = 0
    row: Count = 0
    part: Count = 0

    def at_row(self, row: int) -> Cursor:
        return replace(self, row=row)

    @property
    def place(self) -> Place:
        return self.epoch, self.part, self.position

    @property
    def begins_epoch(self) -> bool:
        return (self.part, self.position, self.slice, self.row) == (0, 0, 0, 0)
