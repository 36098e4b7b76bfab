"""What appending rows does to a model: quality on held-out rows before and after a plain resume, after one more epoch, and
of new runs on all rows.

    python -m scripts.papers.growth [--tables synthetic,a9a,…] [--kinds same,inverted,later] [--shares 0.01,0.1,1,9]
        [--epochs 1,3,10,30] [--seeds 3] [--out FOLDER] [--plot growth.png]
    python -m scripts.papers.growth --quick

A cell is a table, a kind of new rows (of the same law; with a third of the labels of some rows inverted; later in time), a
size (new rows as a share of the old ones), a number of epochs before the append, and a seed. The first run chooses sigma by
default. Held-out rows are never trained on; if there are two laws, there are held-out rows of each, and of the next part in
time. Each finished cell is a line of FOLDER/growth.jsonl; the same command continues after an interruption. The real tables
are read from the folder --source. --quick takes a minute and needs no data.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts import real_data
from scripts.machine import machine_line
from scripts.papers.finished import Cell, Finished
from scripts.papers.growth.appends import DRIFTING, INVERTED, LATER, SAME, Sizes, kinds_of
from scripts.papers.growth.cells import Case, folders_of, ordered_epochs
from scripts.papers.growth.plots import plot_appends
from scripts.papers.growth.summary import summary
from scripts.papers.growth.tables import MADE_HERE, TABLES, Folders
from scripts.papers.growth.verdicts import verdict_lines

_CELL = ("table", "kind", "share", "seed", "epochs", "options", "rows_of")
_ALL = (*TABLES, *DRIFTING)
_QUICK = {"tables": "synthetic,rotation", "shares": "0.1,1", "epochs": "1,10", "seeds": 1}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(_ALL))
    parser.add_argument("--kinds", default=f"{SAME},{INVERTED},{LATER}")
    parser.add_argument("--shares", default="0.01,0.1,1,9", help="new rows for each old one")
    parser.add_argument("--epochs", default="1,3,10,30", help="before the append")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=40_000, help="of a table, at most")
    parser.add_argument("--old-rows", type=int, default=20_000, help="at most")
    parser.add_argument("--test-rows", type=int, default=10_000, help="held out, at most")
    parser.add_argument("--passes", type=int, help="of the resume; default: its own")
    parser.add_argument("--replay", type=float, help="of the resume; default: its own")
    parser.add_argument("--out", type=Path, default=Path("bench-out/growth"))
    parser.add_argument("--source", type=Path, default=real_data.SOURCE, help="folder of the published files")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    for name, value in _QUICK.items() if chosen.quick else ():
        setattr(chosen, name, value)
    for name in chosen.tables.split(","):
        if name not in _ALL:
            parser.error(f"unknown table '{name}'; choose from {', '.join(_ALL)}")
        if name not in (*MADE_HERE, *DRIFTING) and not chosen.source.is_dir():
            parser.error(f"{chosen.source} is no folder; name the folder of the published files with --source")
    return chosen


def main() -> None:
    chosen = parsed()
    folders = folders_of(chosen.source, chosen.out)
    options = {name: value for name in ("passes", "replay") if (value := getattr(chosen, name)) is not None}
    print(machine_line(), flush=True)
    cells = measured(chosen, folders, options)
    print(f"{len(cells)} cells, {sum(cell['seconds'] for cell in cells):.0f} s without the first runs")
    print("\n".join(summary(cells)))
    print("\nMust hold:\n")
    print("\n".join(verdict_lines(cells)))
    if chosen.plot is not None:
        plot_appends(cells, chosen.plot)


def measured(chosen: argparse.Namespace, folders: Folders, options: dict[str, Any]) -> list[Cell]:
    """All cells that were asked for; those that are missing are measured now."""
    finished = Finished(chosen.out / "growth.jsonl", _CELL)
    sizes = Sizes(chosen.old_rows, chosen.test_rows, chosen.rows)
    limits = {"rows_of": [chosen.old_rows, chosen.test_rows, chosen.rows], "options": options}
    wanted: list[Cell] = []
    for case in cases(chosen):
        cells: list[Cell] = [asdict(case) | limits | {"epochs": number} for number in ordered_epochs(chosen.epochs)]
        wanted += cells
        missing = [cell["epochs"] for cell in cells if cell not in finished]
        if missing:
            for cell in case.measured(missing, sizes, folders, options):
                finished.add(cell | limits)
    return finished.like(wanted)


def cases(chosen: argparse.Namespace) -> list[Case]:
    return [
        Case(table, kind, float(share), seed)
        for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds)
        for table in chosen.tables.split(",")
        for kind in kinds_of(table)
        if kind in chosen.kinds.split(",")
        for share in chosen.shares.split(",")
    ]


if __name__ == "__main__":
    main()
