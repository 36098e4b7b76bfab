"""The position of training: a few integers that determine all following rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from streampgs.base.checks import Count
from streampgs.options.commands import MOST_PASSES, MOST_REPLAY

Place = tuple[int, int, int]
"""(epoch, part, position)"""
Span = tuple[int, int]
"""Groups [first, stop)"""


@dataclass(frozen=True)
class Arrival:
    """From this place on, the first `shards` shards and `groups` groups of the catalog are used."""

    epoch: Count
    position: Count
    shards: Count
    groups: Count
    part: Count = 0
    passes: Annotated[int, Meta(ge=0, le=MOST_PASSES)] = 0
    """The passes of the update that has the new groups: parts `part`, `part` + 1, … of the epoch; 0: they join an epoch."""
    replay: Annotated[float, Meta(ge=0.0, le=MOST_REPLAY)] = 0.0
    """How many old rows the update visits for each new one."""
    holds_out: bool = False
    """Whether the update has one more pass, for the rows that were held out from the others."""
    since: Count = 0
    """The first group of the update."""
    retired: tuple[Span, ...] = ()
    """Groups that are no longer used."""
    until: Count = 0
    """The epoch before which training does not end, because a solver of whole passes owes passes to the new groups."""

    @property
    def place(self) -> Place:
        return self.epoch, self.part, self.position

    @property
    def parts(self) -> int:
        """The parts of an update: its passes and the one for rows held out."""
        return self.passes + self.holds_out

    @property
    def next_part(self) -> int:
        """The first part of the epoch that is free for another update."""
        return self.part + self.parts if self.passes else self.part + 1


@dataclass(frozen=True)
class Cursor:
    """The first row not yet used: row `row` of the window that starts at `position` of `part` of `epoch`.

    Part 0 has the rows of an epoch. Each pass of an update, by shards that arrive when all rows of the epoch were used,
    is another part. `position` counts the blocks used in the part. `slice` counts the
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
    def is_between_blocks(self) -> bool:
        return self.slice == self.row == 0

    @property
    def is_first_part(self) -> bool:
        """Whether it is in the first epoch."""
        return (self.epoch, self.part) == (0, 0)

    @property
    def begins_part(self) -> bool:
        return self.position == 0 and self.is_between_blocks

    @property
    def begins_epoch(self) -> bool:
        return self.part == 0 and self.begins_part
