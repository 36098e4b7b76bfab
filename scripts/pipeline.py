"""Rows/s of training from shards on disk over rows/s of the bare loop on rows in memory, in one run.

The bare loop steps over windows that were read beforehand, laid out in visiting order. Reads the data once before
timing, so that the page cache is warm. Run it when nothing else runs.

    python scripts/pipeline.py DATA [DATA …] [--repeats 3]
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

from streampgs import trainer
from streampgs.options import Limits, ModelOptions, Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule
from streampgs.planning import choose_sizes, group_sizes
from streampgs.reading.filler import RowRules, WindowFiller
from streampgs.reading.window import Window
from streampgs.solver.pgs import Pgs, PgsSettings
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

_PIECE_ROWS = 8192


def windows_in_memory(data: str, resources: Resources, count: int) -> list[Window]:
    catalog, _ = build_catalog([data], Columns())
    schedule = Schedule(0, group_sizes(catalog, False), choose_sizes(group_sizes(catalog, False), resources))
    filler = WindowFiller(catalog, schedule.slice_rows, RowRules(Columns(), True, False, None), None)
    cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
    windows = []
    for _ in range(count):
        window = Window()
        plan = schedule.window(cursor)
        filler.fill(plan, window)
        windows.append(window)
        cursor = plan.next
    filler.close()
    return windows


def bare_rows_per_second(windows: list[Window], layout: str, p: float) -> float:
    settings = PgsSettings("logistic", 0.0, p, 1e-6, 5e5, float("inf"), 1, 0.1, "suffix", 0, layout)
    solver = Pgs(settings)
    solver.grow(max(window.largest_index for window in windows) + 1)
    solver.advance(windows[0], 0, 1)
    began, rows = time.perf_counter(), 0
    for window in windows:
        for first in range(0, window.rows, _PIECE_ROWS):
            solver.advance(window, first, min(first + _PIECE_ROWS, window.rows))
        rows += window.rows
    return rows / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--p", type=float, default=2.0)
    arguments = parser.parse_args()
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    resources = Resources()
    for data in arguments.data:
        catalog, _ = build_catalog([data], Columns())
        windows = windows_in_memory(data, resources, 2)
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(arguments.repeats + 1):
                bare = bare_rows_per_second(windows, catalog.kind, arguments.p)
                run = Path(folder) / str(repeat)
                report = trainer.train(
                    [data], run, ModelOptions(p=arguments.p), Limits(epochs=arguments.epochs), resources
                )
                if repeat == 0:
                    continue  # warms the page cache and the compiled loops
                print(
                    f"{data}: bare loop {bare / 1e6:.2f}M rows/s, training {report.rows_per_second / 1e6:.2f}M rows/s, "
                    f"ratio {report.rows_per_second / bare:.2f} (waiting {report.seconds_reading_wait:.2f} s of "
                    f"{report.seconds_reading_wait + report.seconds_training:.2f} s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
