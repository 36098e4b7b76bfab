"""Where training stands: a few integers from which the reader finds every following row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Arrival:
    """From (epoch, position) on, the first `shards` shards and `groups` groups of the catalog take part."""

    epoch: int
    position: int
    shards: int
    groups: int


@dataclass(frozen=True)
class Cursor:
    """The first row not yet used: row `row` of the window that starts at `position` of `epoch`.

    `position` counts blocks (rows, when drawing independently) used up in the epoch; `slice` counts the blocks used
    of a group that is too large for a window and is therefore spread over several.
    """

    arrivals: tuple[Arrival, ...]
    epoch: int = 0
    position: int = 0
    slice: int = 0
    row: int = 0

    def at_row(self, row: int) -> Cursor:
        return replace(self, row=row)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any]) -> Cursor:
        arrivals = tuple(Arrival(**arrival) for arrival in record["arrivals"])
        return Cursor(arrivals, record["epoch"], record["position"], record["slice"], record["row"])
