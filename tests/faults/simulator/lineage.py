"""The checkpoints of a simulated run: how the state in each came about, and which of them must still be there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.data.refresh import Look, Refreshed, Table
from streampgs.options.commands import Growth
from streampgs.order.arrivals import UpdateSizes
from streampgs.order.cursor import Cursor
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.shard_input import ShardInput
from tests.faults.simulator.laws import LawBroken
from tests.faults.simulator.nodes import Node
from tests.faults.simulator.plain_order import Coming, PlainOrder


@dataclass(frozen=True)
class Placed:
    """Shards were given a place in the order of rows."""

    rows: int
    """Trained on before."""
    cursor: Cursor
    coming: Coming
    look: Look
    lost: frozenset[int] | None
    """The numbers of shards that are gone or were replaced; None: new shards join."""
    growth: Growth
    updates: UpdateSizes
    sources: tuple[str, ...]
    files: Mapping[str, Node]


@dataclass(frozen=True)
class Lineage:
    """How the state of a checkpoint came about."""

    base: ShardInput
    order: PlainOrder
    """What is owed to each row. It changes as training goes on: each checkpoint has its own copy."""
    placed: tuple[Placed, ...] = ()

    def copy(self) -> Lineage:
        return replace(self, order=self.order.copy())

    def resumed(self) -> Lineage:
        """What has not begun has never happened."""
        order = self.order.copy()
        order.resume()
        kept = (_remains_of(placed, order) for placed in self.placed)
        return Lineage(self.base, order, tuple(placed for placed in kept if placed is not None))


def _remains_of(placed: Placed, order: PlainOrder) -> Placed | None:
    coming = order.remains_of(placed.coming)
    if coming is None or coming is placed.coming:
        return None if coming is None else placed
    return replace(placed, coming=coming)


def order_of(base: ShardInput) -> PlainOrder:
    catalog = base.table.catalog
    return PlainOrder(catalog.row_starts.tolist(), catalog.groups)


def coming_of(table: Table, lost: frozenset[int] | None, refreshed: Refreshed) -> Coming:
    """What a look has found, in groups."""
    starts = table.catalog.shard_starts.tolist()
    going = frozenset(group for shard in lost or () for group in range(starts[shard], starts[shard + 1]))
    sizes = refreshed.table.updates
    return Coming(refreshed.table.catalog.groups, going, sizes.passes, sizes.replay)


def rewinds(table: Table, refreshed: Refreshed) -> bool:
    """Whether the window of the cursor begins again."""
    return table.cursor.row > 0 and refreshed.table.cursor.row == 0


class Checkpoints:
    """Of one run, numbered in the order in which they were begun."""

    def __init__(self) -> None:
        self.reported = 0
        """The newest one that was said to be written, or that training continued from."""
        self.spoiled: set[str] = set()
        """The names of those that the simulator has damaged."""
        self._begun = 0
        self._known: dict[str, tuple[int, Lineage]] = {}
        """By what they hold."""

    def begin(self, sections: Mapping[str, Bundle], rows: int, lineage: Lineage) -> int:
        self._begun += 1
        self._known[_identity(sections, rows)] = self._begun, lineage
        return self._begun

    def wrote(self, number: int, name: str) -> None:
        self.reported = number
        self.spoiled.discard(name)

    def found(self, checkpoint: Checkpoint | None) -> tuple[int, Lineage] | None:
        """The number and the lineage of the one that the product has chosen."""
        if checkpoint is None:
            if self.reported:
                raise LawBroken(f"checkpoint {self.reported} was written, and there is none")
            return None
        number, lineage = self._known.get(_identity(checkpoint.sections, rows_of(checkpoint)), (0, None))
        if lineage is None:
            raise LawBroken(f"'{checkpoint.path.name}' was never written")
        spoiled = any(path.name in self.spoiled for path, _ in checkpoint.damaged)
        if checkpoint.damaged and not spoiled:
            raise LawBroken(f"a crash has damaged {[path.name for path, _ in checkpoint.damaged]}")
        if number < self.reported and not spoiled:
            raise LawBroken(f"checkpoint {self.reported} was written, and {number} is used")
        return number, lineage

    def returns_to(self, checkpoint: Checkpoint) -> None:
        """Training continues from this one at the next start; if the command is killed, perhaps from a later one."""
        number, lineage = self._known.get(_identity(checkpoint.sections, rows_of(checkpoint)), (0, None))
        if lineage is None:
            raise LawBroken(f"'{checkpoint.path.name}' was never written")
        self.reported = min(self.reported, number)

    def refused_all(self, error: RunError) -> None:
        """All checkpoints are damaged."""
        if not self.spoiled:
            raise LawBroken(f"a crash has damaged all checkpoints: {error.found}") from error


def rows_of(checkpoint: Checkpoint) -> int:
    rows = checkpoint.sections["meter"].values["rows"]
    assert isinstance(rows, int)
    return rows


def _identity(sections: Mapping[str, Bundle], rows: int) -> str:
    """What a checkpoint holds besides arrays and times."""
    values = {name: bundle.values for name, bundle in sections.items() if name != "meter"}
    return json.dumps([rows, values], sort_keys=True)
