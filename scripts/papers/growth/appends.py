"""What an append consists of: the rows before it, the new rows, and held-out rows of each law."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from scripts.papers.growth import laws
from scripts.papers.growth.tables import IN_TIME_ORDER, TABLES, Folders, shuffled

DRIFTING = ("rotation", "abrupt", "season")
SAME, INVERTED, LATER = "same", "inverted", "later"
"""How new rows differ: not at all; a third of the labels of some rows are inverted; they are later in time."""

_NIGHTS = 12.0
"""The time that old and new rows of a generated table span."""

Tests = dict[str, pa.Table]


@dataclass(frozen=True)
class Sizes:
    old: int
    test: int
    most: int
    """Rows of an append, old and new."""

    def rows(self, share: float, available: int) -> tuple[int, int]:
        """Old and new rows, if the new rows are this share of the old ones."""
        old = min(self.old, int(min(self.most, available) / (1.0 + share)))
        return old, max(1, round(old * share))


@dataclass(frozen=True)
class Append:
    old: pa.Table
    new: pa.Table
    tests: Tests
    """Held-out rows: `all` if there is one law; `old`, `new` and perhaps `next`, the next part in time."""


def kinds_of(table: str) -> tuple[str, ...]:
    """The kinds of new rows that a table can have."""
    if table in DRIFTING:
        return (LATER,)
    return (SAME, INVERTED, LATER) if table in IN_TIME_ORDER else (SAME, INVERTED)


def append(table: str, kind: str, share: float, seed: int, sizes: Sizes, folders: Folders) -> Append:
    if table in DRIFTING:
        return _generated(table, share, seed, sizes)
    rows = TABLES[table](folders, sizes.most + 3 * sizes.test, seed)
    if kind == LATER:
        return _later(rows, share, seed, sizes)
    test_rows = min(sizes.test, rows.num_rows // 4)
    rows = shuffled(rows, seed)
    test, rows = rows.slice(0, test_rows), rows.slice(test_rows)
    old, new = sizes.rows(share, rows.num_rows)
    found = Append(rows.slice(0, old), rows.slice(old, new), {"all": test})
    if kind == SAME:
        return found
    return replace(found, new=inverted(found.new, seed), tests={"old": test, "new": inverted(test, seed + 1000)})


def inverted(table: pa.Table, seed: int) -> pa.Table:
    """Another law: a third of the labels are inverted in about half of the rows."""
    chosen = _sides(table) & (np.random.default_rng(seed).random(table.num_rows) < 1 / 3)
    labels = table["label"].to_numpy(zero_copy_only=False)
    one, other = np.unique(labels)
    turned = np.where(labels == one, other, one)
    place = table.schema.get_field_index("label")
    return table.set_column(place, "label", pa.array(np.where(chosen, turned, labels), table.schema.field(place).type))


def _sides(table: pa.Table) -> np.ndarray:
    """Rows whose first feature has an even number, or whose first column is above a fixed value."""
    if "indices" in table.column_names:
        return np.array([bool(row) and row[0] % 2 == 0 for row in table["indices"].to_pylist()])
    values = table.column(1 if table.column_names[0] == "label" else 0).to_numpy()
    return np.floor(values / max(1e-9, np.abs(values).mean()) * 8.0) % 2 == 0


def _later(rows: pa.Table, share: float, seed: int, sizes: Sizes) -> Append:
    """The rows in their own order; a fifth of the old and of the new rows is held out, and the next rows are tests."""
    after = rows.num_rows // 10
    rows = rows.slice(max(0, rows.num_rows - after - int(1.25 * sizes.most)))
    old, new = sizes.rows(share, int(0.8 * (rows.num_rows - after)))
    old_all, new_all = int(old / 0.8), max(5, int(new / 0.8))
    first = rows.num_rows - after - old_all - new_all
    old_rows, new_rows = (
        shuffled(rows.slice(first, old_all), seed),
        shuffled(rows.slice(first + old_all, new_all), seed),
    )
    tests = {
        "old": old_rows.slice(0, old_all // 5),
        "new": new_rows.slice(0, new_all // 5),
        "next": rows.slice(rows.num_rows - after),
    }
    return Append(old_rows.slice(old_all // 5), new_rows.slice(new_all // 5), tests)


def _generated(law: str, share: float, seed: int, sizes: Sizes) -> Append:
    """Rows of a drifting table. The append is where an abrupt change happens."""
    old, new = sizes.rows(share, sizes.most)
    middle = _NIGHTS * old / (old + new)
    shift = laws.CHANGE - middle if law == "abrupt" else 0.0
    spans = {"old": (0.0, middle), "new": (middle, _NIGHTS), "next": (_NIGHTS, _NIGHTS + 1.0)}

    def part(name: str, rows: int, number: int) -> pa.Table:
        first, stop = spans[name]
        return laws.drawn(law, shift + np.linspace(first, stop, rows, endpoint=False), seed, number)

    tests = {name: part(name, sizes.test, 2 + number) for number, name in enumerate(spans)}
    return Append(part("old", old, 0), part("new", new, 1), tests)
