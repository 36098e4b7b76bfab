"""Where training stands: a few integers from which the reader finds every following row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

Place = tuple[int, int, int]
"""(epoch, part, position)"""
Span = tuple[int, int]
"""Groups [first, stop)"""

MOST_COPIES = 10_000


@dataclass(frozen=True)
class Arrival:
    """From a place on, the first `shards` shards and `groups` groups of the catalog take part."""

    epoch: int
    position: int
    shards: int
    groups: int
    part: int = 0
    copies: int = 1
    """How often the groups that are new come in the epoch that they arrive in."""
    since: int = 0
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
    epoch: int = 0
    position: int = 0
    slice: int = 0
    row: int = 0
    part: int = 0

    def at_row(self, row: int) -> Cursor:
        return replace(self, row=row)

    @property
    def place(self) -> Place:
        return self.epoch, self.part, self.position

    @property
    def begins_epoch(self) -> bool:
        return (self.part, self.position, self.slice, self.row) == (0, 0, 0, 0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any]) -> Cursor:
        arrivals = tuple(
            Arrival(**{**arrival, "retired": tuple((first, stop) for first, stop in arrival.get("retired", ()))})
            for arrival in record["arrivals"]
        )
        return Cursor(
            arrivals, record["epoch"], record["position"], record["slice"], record["row"], record.get("part", 0)
        )
