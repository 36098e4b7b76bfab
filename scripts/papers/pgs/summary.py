"""Medians and quartiles of cells, as Markdown tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scripts.papers.finished import Cell
from scripts.papers.pgs.plan import Plan

VISITS, SECONDS, FIGURE = range(3)
NEVER = float("inf")


@dataclass(frozen=True)
class Spread:
    """The median, and the quartiles, of runs."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        """By order, because a run that never gets there counts as infinite."""
        low, median, high = np.quantile(np.array(values), (0.25, 0.5, 0.75), method="lower")
        return Spread(float(low), float(median), float(high))


def reached(cell: Cell, target: float, what: int) -> Spread:
    """Visits or seconds until the accuracy."""
    found = [next((look[what] for look in run if look[FIGURE] >= target), NEVER) for run in cell["runs"]]
    return Spread.of(found)


def those(cells: list[Cell], **chosen: Any) -> list[Cell]:
    """By rows, in ascending order."""
    found = [cell for cell in cells if all(cell[name] == value for name, value in chosen.items())]
    return sorted(found, key=lambda cell: cell["rows"])


def count(number: float) -> str:
    if number == NEVER:
        return "never"
    return f"{number / 1000:,.0f}k" if number >= 10_000 else f"{number:,.0f}"


def clock(number: float) -> str:
    return "never" if number == NEVER else f"{number:.3g}"


def summary(cells: list[Cell], plan: Plan) -> list[str]:
    lines: list[str] = []
    for table, targets in plan.targets.items():
        for experiment in ("climb", "batch"):
            here = those(cells, experiment=experiment, table=table, limits=plan.limits.as_list())
            for method in dict.fromkeys(cell["method"] for cell in here):
                lines += _climbs(experiment, table, method, those(here, method=method), targets)
    return [*lines, *_steps(cells, plan), *_final(cells, plan), *_files(cells), *_toys(cells)]


def _table(heading: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    lines = ["", f"{heading}:", "", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _climbs(experiment: str, table: str, method: str, cells: list[Cell], targets: list[float]) -> list[str]:
    solver = "PGS" if experiment == "climb" else "L-BFGS"
    rows = []
    for cell in cells:
        row = [f"{cell['rows']:,}", f"{cell['sigma']:.1e}"]
        for target in targets:
            visits, seconds = reached(cell, target, VISITS), reached(cell, target, SECONDS)
            row.append("never" if visits.median == NEVER else f"{count(visits.median)} / {clock(seconds.median)}")
        rows.append(row)
    columns = ["rows", "σ", *(f"{target:g}" for target in targets)]
    return _table(f"{table}, {solver}, {method}: row visits / seconds to accuracies", columns, rows)


def _steps(cells: list[Cell], plan: Plan) -> list[str]:
    rows = []
    for experiment, cost in (("climb", "nonzeros"), ("printed", "n")):
        for cell in those(cells, experiment=experiment, table="synthetic", rows=plan.rows_of_the_paper):
            if "as printed" in cell["method"] and "squared" not in cell["method"] and "least" not in cell["method"]:
                last = cell["runs"][0][-1]
                speed = last[VISITS] / last[SECONDS]
                times = [clock(reached(cell, target, SECONDS).median) for target in plan.targets["synthetic"]]
                rows.append([cell["method"], f"O({cost})", f"{speed:,.0f}", *times])
    columns = ["method", "step", "rows/s", *(f"{target:g}" for target in plan.targets["synthetic"])]
    return _table("Seconds to accuracies by the cost of a step", columns, rows)


def _final(cells: list[Cell], plan: Plan) -> list[str]:
    rows = []
    for cell in those(cells, experiment="final", limits=plan.final.as_list()):
        last = [run[-1][FIGURE] for run in cell["runs"]]
        seconds = [run[-1][SECONDS] for run in cell["runs"]]
        plain = cell["method"].removesuffix(", as printed").replace("k = 300", "k = 1")
        others = those(cells, experiment="batch", method=plain, rows=cell["rows"], limits=cell["limits"])
        batch = f"{others[0]['runs'][0][-1][FIGURE]:.4f}" if others else "-"
        batch_seconds = f"{others[0]['runs'][0][-1][SECONDS]:.0f}" if others else "-"
        accuracy = f"{np.median(last):.4f} ± {np.std(last):.4f}"
        rows.append(
            [cell["method"], f"{cell['sigma']:.1e}", accuracy, f"{np.median(seconds):.1f}", batch, batch_seconds]
        )
    columns = ["method", "σ", "PGS accuracy", "PGS seconds", "L-BFGS accuracy", "L-BFGS seconds"]
    return _table("Table II", columns, rows)


def files_reached(cell: Cell, what: int) -> Spread:
    return Spread.of([run[what] if run[3] else NEVER for run in cell["runs"]])


def _files(cells: list[Cell]) -> list[str]:
    here = those(cells, experiment="files")
    rows = []
    for cell in here:
        seconds = files_reached(cell, SECONDS)
        quartiles = f"{clock(seconds.median)} ({clock(seconds.low)} to {clock(seconds.high)})"
        rows.append([cell["method"], f"{cell['rows']:,}", count(files_reached(cell, VISITS).median), quartiles])
    return _table("streampgs train, from files, with its defaults", ["accuracy", "rows", "row visits", "seconds"], rows)


def toy_iterations(cell: Cell) -> Spread:
    return Spread.of([NEVER if each is None else each for each in cell["iterations"]])


def _toys(cells: list[Cell]) -> list[str]:
    rows = []
    for cell in those(cells, experiment="toy"):
        found = toy_iterations(cell)
        rows.append([cell["table"], cell["method"], f"{cell['rows']:,}", f"{cell['sigma']:.1e}"])
        rows[-1] += [count(found.low), count(found.median), count(found.high)]
    columns = ["table", "method", "rows", "σ", "lower quartile", "median", "upper quartile"]
    return _table("Iterations until ‖w* − w‖ ≤ .05", columns, sorted(rows, key=lambda row: (row[0], row[1])))
