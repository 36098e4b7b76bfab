"""The cells of the benchmark of appends: one table, one kind of new rows, one size, one seed, several numbers of epochs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.papers.finished import Cell
from scripts.papers.growth.appends import Append, Sizes, append
from scripts.papers.growth.tables import Folders
from scripts.papers.growth.training import NO_END, Place, Quality

FRESH_EPOCHS = 3
WITHIN = 0.001
"""How close to the accuracy of a fresh run a model has to come."""

_QUARTERS = (0.25, 0.5, 0.75)
_MORE_EPOCHS = 3


@dataclass(frozen=True)
class Case:
    table: str
    kind: str
    share: float
    seed: int

    def measured(self, epochs: list[int], sizes: Sizes, folders: Folders, options: dict[str, Any]) -> Iterator[Cell]:
        found = append(self.table, self.kind, self.share, self.seed, sizes, folders)
        place = Place(folders.work / "place", self.seed, found.tests)
        place.arrive(found.old, "old", 4)
        first = place.train("first", epochs=epochs[0])
        for number in epochs:
            if number > epochs[0]:
                place.resume("first", epochs=number)
            place.copy("first", f"before-{number}")
        place.arrive(found.new, "part-of-new")
        fresh = _Fresh(place, found.old.num_rows + found.new.num_rows)
        for number in epochs:
            began = time.perf_counter()
            cell = _cell(place, found, number, fresh, options)
            yield {
                "table": self.table, "kind": self.kind, "share": self.share, "seed": self.seed, "epochs": number,
                "old_rows": found.old.num_rows, "new_rows": found.new.num_rows,
                "sigma": first.chosen["sigma"] if first.chosen else None,
                "seconds": round(time.perf_counter() - began, 2), **cell,
            }  # fmt: skip


def _cell(place: Place, found: Append, epochs: int, fresh: _Fresh, options: dict[str, Any]) -> Cell:
    name = f"before-{epochs}"
    before = place.quality(name)
    rows_before = epochs * found.old.num_rows
    report = place.resume(name, **options)
    resumed, judgements = place.quality(name), place.judgements(name)
    main = next(iter(before)) if len(before) == 1 else "new"
    goal = fresh.quality[main][0] - WITHIN
    more, visits = _more(place, name, report, resumed, main, goal)
    return {
        "before": before, "resumed": resumed, "more": more, "fresh": fresh.quality,
        "same_visits": fresh.after(rows_before + report.rows_this_call),
        "visits": report.rows_this_call, "visits_to_fresh": visits,
        "fresh_visits": FRESH_EPOCHS * fresh.rows, "notes": report.notes,
        "judgement": judgements[-1] if judgements else None,
    }  # fmt: skip


def _more(
    place: Place, name: str, report: Any, resumed: dict[str, Quality], main: str, goal: float
) -> tuple[dict[str, Quality], int | None]:
    """After one more epoch; and the rows visited since the append until the accuracy is that of the goal, if it is."""
    first = report.rows - report.rows_this_call
    visited = [(report.rows_this_call, resumed[main][0])]
    place.copy(name, "quarters")
    for quarter in _QUARTERS:
        if visited[-1][1] < goal:
            rows = report.rows + int(quarter * _table_rows(place, name))
            place.resume("quarters", rows=rows, epochs=NO_END)
            visited.append((rows - first, place.quality("quarters", main)[main][0]))
    rows = place.resume(name, epochs="+1").rows
    more = place.quality(name)
    visited.append((rows - first, more[main][0]))
    for _ in range(1, _MORE_EPOCHS):
        if all(accuracy < goal for _, accuracy in visited):
            rows = place.resume(name, epochs="+1").rows
            visited.append((rows - first, place.quality(name, main)[main][0]))
    return more, next((rows for rows, accuracy in visited if accuracy >= goal), None)


def _table_rows(place: Place, name: str) -> int:
    joined = [event["table_rows"] for event in place.events(name) if "table_rows" in event]
    return int(joined[-1])


class _Fresh:
    """A new run on all rows, which is trained further as more visits are asked for."""

    def __init__(self, place: Place, rows: int) -> None:
        self._place, self.rows = place, rows
        place.train("fresh", epochs=FRESH_EPOCHS)
        self.quality = place.quality("fresh")
        self._visits = FRESH_EPOCHS * rows

    def after(self, visits: int) -> dict[str, Quality]:
        if visits < self._visits:
            self._place.train("fresh", rows=visits, epochs=NO_END)
        elif visits > self._visits:
            self._place.resume("fresh", rows=visits, epochs=NO_END)
        self._visits = visits
        return self._place.quality("fresh")


def ordered_epochs(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def folders_of(source: Path, work: Path) -> Folders:
    work.mkdir(parents=True, exist_ok=True)
    return Folders(source, work)
