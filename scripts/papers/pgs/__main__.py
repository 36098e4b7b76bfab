"""Figures 5 to 9 and Table II of Zhu et al., "Inverse Time Dependency in Convex Regularized Learning" (ICDM 2009).

    python -m scripts.papers.pgs --data FOLDER [--out FOLDER] [--pictures FOLDER] [--only climbs,batch,…]
    python -m scripts.papers.pgs --quick

Parts: climbs (row visits and seconds of PGS to accuracies), batch (the same of L-BFGS), files (`streampgs train` with its
defaults), others (PGS with least squares and with p = 1.8), final (Table II), steps (k = 1 and k = 300, O(n) and
O(nonzeros)), printed (PGS as in the paper's Figure 1), toys (the Gaussian sets). RCV1 itself is not
available: a generated table has its shape, and package names and Reuters-21578 are real ones; --data is the folder with the
published files of these two, and without it they are left out.

A finished cell is a line of OUT/cells.jsonl: the same command continues after an interruption. Training is in one thread;
seconds are those of the processor for training alone, without judging. --pictures draws from all cells that there are. --quick
takes a few minutes and needs no data.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.machine import machine_line
from scripts.papers.finished import Cell, Finished
from scripts.papers.pgs.climbs import Method
from scripts.papers.pgs.experiments import KEY, Limits, Measured, batch_cell, climb_cell, files_cell, printed_cell
from scripts.papers.pgs.figures import draw
from scripts.papers.pgs.plan import FULL, LOGISTIC, OTHERS, PARTS, PRINTED, QUICK, Plan
from scripts.papers.pgs.rows import Table, loaded
from scripts.papers.pgs.summary import summary
from scripts.papers.pgs.toys import toy_cell, toy_method, toy_rows

_ALL_RUNS_TO_THE_END = 1.0
"""An accuracy that no run reaches."""
Identity = tuple[object, ...]
Cells = Iterator[tuple[Identity, Measured]]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the published files; default: generated tables alone")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-out/pgs"), help="cells, and the tables made from the data"
    )
    parser.add_argument("--pictures", type=Path, help="folder for the pictures")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--tables", default="synthetic,names,reuters", help="tables, separated by commas")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    for part in chosen.only.split(","):
        if part not in PARTS:
            parser.error(f"unknown part '{part}'; choose from {', '.join(PARTS)}")
    if chosen.data is not None and not chosen.data.is_dir():
        parser.error(f"{chosen.data} is not a folder")
    if chosen.pictures is not None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("--pictures needs matplotlib: pip install matplotlib")
    return chosen


class Reproduction:
    def __init__(self, plan: Plan, tables: list[str], data: Path | None, out: Path) -> None:
        self.plan, self._names, self._data, self._out = plan, tables, data, out
        out.mkdir(parents=True, exist_ok=True)
        self.finished = Finished(out / "cells.jsonl", KEY)
        self._table: Table | None = None

    def table(self, name: str) -> Table:
        """One table is in memory at a time."""
        if self._table is None or self._table.name != name:
            self._table = None
            gc.collect()
            plan, data = self.plan, self._data or Path()
            self._table = loaded(name, self._out, data, plan.all_rows, plan.rows[name][-1], plan.limits.held_out)
        return self._table

    def measure(self, part: str) -> None:
        for identity, measured in getattr(self, part)():
            cell: Cell = dict(zip(KEY, identity, strict=True))
            if cell in self.finished:
                continue
            began, load = time.perf_counter(), os.getloadavg()[0]
            cell |= measured() | {"load": round(load, 2)}
            cell["wall_seconds"] = round(time.perf_counter() - began, 1)
            self.finished.add(cell)
            print(f"{identity[:4]}: {cell['wall_seconds']:.0f} s, load {load:.1f}", flush=True)

    def _tables(self) -> Iterator[str]:
        for name in self.plan.rows:
            if name in self._names and (name == "synthetic" or self._data is not None):
                yield name

    def climbs(self) -> Cells:
        for name in self._tables():
            for rows in self.plan.rows[name]:
                yield self._climb(name, LOGISTIC, rows)

    def others(self) -> Cells:
        for method in OTHERS:
            for rows in self.plan.coarse_rows:
                yield self._climb("synthetic", method, rows)

    def printed(self) -> Cells:
        for method in PRINTED:
            for rows in self.plan.printed_rows:
                yield self._climb("synthetic", method, rows)

    def _climb(self, name: str, method: Method, rows: int) -> tuple[Identity, Measured]:
        limits, until = self.plan.limits, max(self.plan.targets[name])
        identity = ("climb", name, method.name, rows, limits.as_list())
        return identity, lambda: climb_cell(self.table(name), method, rows, limits, until)

    def batch(self) -> Cells:
        for name in self._tables():
            for rows in self.plan.batch_rows[name]:
                yield self._batch(name, "logistic", 2.0, rows, self.plan.limits)

    def _batch(self, name: str, loss: str, p: float, rows: int, limits: Limits) -> tuple[Identity, Measured]:
        searched = rows <= self.plan.most_rows_to_search
        identity = ("batch", name, Method(loss, p).name, rows, limits.as_list())
        return identity, lambda: batch_cell(self.table(name), loss, p, rows, limits, searched)

    def steps(self) -> Cells:
        for p in (2.0, 1.8):
            for batch in (1, 300):
                yield self._climb("synthetic", Method(p=p, batch=batch, paper=True), self.plan.rows_of_the_paper)
                yield self._with_slow_steps(p, batch)

    def _with_slow_steps(self, p: float, batch: int) -> tuple[Identity, Measured]:
        limits, rows, method = self.plan.limits, self.plan.rows_of_the_paper, Method(p=p, batch=batch, paper=True)
        identity = ("printed", "synthetic", method.name, rows, limits.as_list())
        return identity, lambda: printed_cell(self.table("synthetic"), method, rows, limits, self._known(method, rows))

    def _known(self, method: Method, rows: int) -> tuple[float, object] | None:
        """The sigma that another part has found."""
        identity = ("climb", "synthetic", method.name, rows, self.plan.limits.as_list())
        found = self.finished.like([dict(zip(KEY, identity, strict=True))])
        return (found[0]["sigma"], found[0]["searched"]) if found else None

    def final(self) -> Cells:
        """Table II: to the end, with about the rows of the paper."""
        for loss, p in (("logistic", 2.0), ("logistic", 1.8), ("squared", 2.0)):
            yield self._batch("synthetic", loss, p, self.plan.rows_of_the_paper, self.plan.final)
            yield self._to_the_end(Method(loss, p))
            yield self._to_the_end(Method(loss, p, 1 if p == 2.0 else 300, paper=True))

    def _to_the_end(self, method: Method) -> tuple[Identity, Measured]:
        limits, rows = self.plan.final, self.plan.rows_of_the_paper
        identity = ("final", "synthetic", method.name, rows, limits.as_list())
        return identity, lambda: climb_cell(
            self.table("synthetic"), method, rows, limits, _ALL_RUNS_TO_THE_END, self._known(method, rows)
        )

    def files(self) -> Cells:
        limits, all_rows = self.plan.limits, self.plan.all_rows
        for target in self.plan.targets_of_files:
            for rows in self.plan.rows_of_files:
                yield (
                    ("files", "synthetic", f"{target:g}", rows, limits.as_list()),
                    lambda rows=rows, target=target: files_cell(self._out, rows, all_rows, target, limits),
                )

    def toys(self) -> Cells:
        plan = self.plan
        for features in plan.toy_features:
            for used in plan.toy_rows:
                for paper in (False, True):
                    identity = ("toy", f"{features} features", toy_method(paper).name, used)
                    yield (
                        (*identity, [plan.toy_runs, plan.toy_visits]),
                        lambda features=features, used=used, paper=paper: toy_cell(
                            toy_rows(self._out, features, plan.toy_rows[-1]),
                            features,
                            used,
                            paper,
                            plan.toy_runs,
                            plan.toy_visits,
                        ),
                    )


def main() -> None:
    chosen = parsed()
    plan = QUICK if chosen.quick else FULL
    print(machine_line(), flush=True)
    work = Reproduction(plan, chosen.tables.split(","), chosen.data, chosen.out)
    for part in chosen.only.split(","):
        work.measure(part)
    cells = work.finished.cells
    print("\n".join(summary(cells, plan)))
    if chosen.pictures is not None:
        chosen.pictures.mkdir(parents=True, exist_ok=True)
        draw(cells, plan, chosen.pictures)


def with_one_thread() -> None:
    """Start again with one thread for linear algebra: the waiting of others would count as processor time."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    if any(os.environ.get(name) != "1" for name in names):
        os.environ.update(dict.fromkeys(names, "1"))
        os.execv(sys.executable, [sys.executable, "-m", "scripts.papers.pgs", *sys.argv[1:]])


if __name__ == "__main__":
    with_one_thread()
    main()
