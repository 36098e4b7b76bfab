"""The position of training: a few integers that determine all following rows."""

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
    """From this place on, the first `shards` shards and `groups` groups of the catalog are used."""

    epoch: Count
    position: Count
    shards: Count
    groups: Count
    part: Count = 0
    copies: Annotated[int, Meta(ge=1, le=MOST_COPIES)] = 1
    """How often the new groups are visited in the epoch in which they arrive."""
    since: Count = 0
    """The first group of the part, if the arrival begins one."""
    retired: tuple[Span, ...] = ()
    """Groups that are no longer used."""

    @property
    def place(self) -> Place:
        return self.epoch, self.part, self.position


@dataclass(frozen=True)
class Cursor:
    """The first row not yet used: row `row` of the window that starts at `position` of `part` of `epoch`.

    An epoch has one part, unless shards arrive after all others have been used in the last epoch: the new ones form
    another part. `position` counts the blocks used in the part (rows, with independent draws). `slice` counts the
    blocks used of a group that is too large for one window.
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
