"""Markdown tables of cells."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from scripts.papers.finished import Cell
from scripts.papers.growth.appends import LATER, SAME
from scripts.papers.growth.verdicts import ACCURACY, LOSS, command_of, figure, loss_change, main_test, name_of

MOMENTS = {
    "before": "before",
    "resumed": "resume",
    "more": "`--epochs +1`",
    "same_visits": "new run, same visits",
    "fresh": "new run, 3 epochs",
}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def summary(cells: list[Cell]) -> Iterable[str]:
    if one_law := [cell for cell in cells if cell["kind"] == SAME]:
        yield "\nNew rows of the same law, accuracy/log loss on held-out rows, means over the tables and seeds:\n"
        yield from _means(one_law, ["all"], lambda cell: (f"{cell['share']:.0%}", f"{cell['epochs']}"))
        yield "\nBy table, means over growth, epochs and seeds:\n"
        yield from _means(one_law, ["all"], lambda cell: (cell["table"], ""), ("table", ""))
    for kind in dict.fromkeys(cell["kind"] for cell in cells if cell["kind"] != SAME):
        chosen = [cell for cell in cells if cell["kind"] == kind]
        tests = ["old", "new", "next"] if kind == LATER else ["old", "new"]
        yield f"\nNew rows of another law ({kind}), by held-out rows, means over growth, epochs and seeds:\n"
        yield from _means(chosen, tests, lambda cell: (cell["table"], ""), ("table", ""))
    yield from worst(cells)


def _means(
    cells: list[Cell],
    tests: list[str],
    key: Callable[[Cell], tuple[str, str]],
    names: tuple[str, str] = ("growth", "epochs before"),
) -> Iterable[str]:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    header = [name for name in names if name] + (["held-out rows"] if len(tests) > 1 else []) + list(MOMENTS.values())
    header += ["visits per new row", "visits to the accuracy of the new run / its own"]
    rows = []
    for named, group in groups.items():
        for test in tests:
            having = [cell for cell in group if test in cell["before"]]
            if not having:
                continue
            row = [part for part in named if part] + ([test] if len(tests) > 1 else [])
            row += [_pair(having, moment, test) for moment in MOMENTS]
            row += [f"{_mean(cell['visits'] / cell['new_rows'] for cell in having):.1f}"]
            row += [_way(having) if test == main_test(having[0]) else ""]
            rows.append(row)
    yield from markdown(header, rows)


def _pair(cells: list[Cell], moment: str, test: str) -> str:
    accuracy, loss = (_mean(figure(cell, moment, which, test) for cell in cells) for which in (ACCURACY, LOSS))
    return f"{accuracy:.4f}/{loss:.4f}"


def _way(cells: list[Cell]) -> str:
    """The median share of the visits of a fresh run; in how many cells the accuracy was not reached."""
    ways = [cell["visits_to_fresh"] for cell in cells]
    shares = [1e9 if way is None else way / cell["fresh_visits"] for way, cell in zip(ways, cells, strict=True)]
    missed = sum(way is None for way in ways)
    middle = statistics.median_low(shares)
    return ("more" if middle >= 1e9 else f"{middle:.2f}") + (f" ({missed} of {len(cells)} not)" if missed else "")


def worst(cells: list[Cell], count: int = 8) -> Iterable[str]:
    yield "\nCells in which the plain resume raised the loss most (rows of the new law, where there are two):\n"
    header = ["cell", *list(MOMENTS.values())[:3], "new run, 3 epochs", "loss"]
    moments = ("before", "resumed", "more", "fresh")
    ordered = sorted(cells, key=loss_change, reverse=True)[:count]
    yield from markdown(
        header,
        (
            [
                name_of(cell),
                *(_pair([cell], moment, main_test(cell)) for moment in moments),
                f"{loss_change(cell):+.2%}",
            ]
            for cell in ordered
        ),
    )
    yield "\n" + "\n".join(f"    {command_of(cell)}" for cell in ordered if loss_change(cell) > 0)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)
