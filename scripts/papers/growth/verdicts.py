"""What must hold after appends, over all cells."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scripts.papers.finished import Cell
from scripts.papers.growth.appends import SAME
from scripts.papers.growth.cells import WITHIN

WORSE = 0.005
"""The relative loss that a resume may cost, under one law."""

MOST_VISITS = 10.0
"""For each new row, in a plain resume."""

ACCURACY, LOSS = 0, 1


@dataclass(frozen=True)
class Verdict:
    text: str
    excess: Callable[[Cell], float]
    """By how much a cell breaks the promise; at most 0 where it is kept."""


def main_test(cell: Cell) -> str:
    """The held-out rows that count: all rows under one law, else those of the new law."""
    return "all" if "all" in cell["before"] else "new"


def figure(cell: Cell, moment: str, which: int, test: str | None = None) -> float:
    return float(cell[moment][test or main_test(cell)][which])


def loss_change(cell: Cell) -> float:
    """Of the plain resume, relative to the loss before."""
    return figure(cell, "resumed", LOSS) / figure(cell, "before", LOSS) - 1.0


def half_gain_missing(cell: Cell) -> float:
    """Half of what a fresh run gains in accuracy, minus what the plain resume gains."""
    before = figure(cell, "before", ACCURACY)
    return (figure(cell, "fresh", ACCURACY) - before) / 2.0 - (figure(cell, "resumed", ACCURACY) - before)


VERDICTS = (
    Verdict(f"plain resume: loss at most {WORSE:.1%} above the loss before", lambda cell: loss_change(cell) - WORSE),
    Verdict(
        f"after --epochs +1: accuracy within {WITHIN:g} of a fresh run of three epochs",
        lambda cell: figure(cell, "fresh", ACCURACY) - WITHIN - figure(cell, "more", ACCURACY),
    ),
    Verdict(
        f"plain resume: at most {MOST_VISITS:g} row visits for each new row",
        lambda cell: cell["visits"] / cell["new_rows"] - MOST_VISITS,
    ),
)


def verdict_lines(cells: list[Cell]) -> Iterable[str]:
    same = [cell for cell in cells if cell["kind"] == SAME]
    for verdict in VERDICTS:
        broken = sorted((cell for cell in same if verdict.excess(cell) > 1e-9), key=verdict.excess, reverse=True)
        yield f"- {verdict.text}: {len(same) - len(broken)} of {len(same)} cells of the same law"
        for cell in broken[:5]:
            yield f"  - {name_of(cell)}: by {verdict.excess(cell):.4f}; {command_of(cell)}"
    if same:
        missing = statistics.median(map(half_gain_missing, same))
        held = sum(half_gain_missing(cell) <= 1e-9 for cell in same)
        yield (
            f"- plain resume: at least half of the gain of a fresh run in accuracy: the median cell "
            f"{'has it' if missing <= 1e-9 else 'lacks it'} (by {abs(missing):.4f}); {held} of {len(same)} cells have it"
        )


def name_of(cell: Cell) -> str:
    return (
        f"{cell['table']}, {cell['kind']} law, {cell['epochs']} epochs, +{cell['share']:.0%}, seed {cell['seed']} "
        f"({cell['old_rows']:,} + {cell['new_rows']:,} rows)"
    )


def command_of(cell: Cell) -> str:
    return (
        f"python -m scripts.papers.growth --tables {cell['table']} --kinds {cell['kind']} --epochs {cell['epochs']} "
        f"--shares {cell['share']:g} --first-seed {cell['seed']} --seeds 1"
    )
