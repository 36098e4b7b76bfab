"""The bare training loop: steps over windows that were loaded in advance, in one thread."""

from __future__ import annotations

import time

from streampgs.data.budget import choose_sizes, group_sizes
from streampgs.engine.engine import Engine
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import PgsOptions
from streampgs.options import Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule
from streampgs.reading.loader import RowRules, WindowFiller
from streampgs.reading.window import Window
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

_PIECE_ROWS = 8192


def windows_in_memory(data: str, resources: Resources, count: int) -> list[Window]:
    """The first windows of a run on `data`, at most those of the first epoch."""
    catalog, _ = build_catalog([data], Columns())
    groups = group_sizes(catalog)
    schedule = Schedule(0, groups, choose_sizes(groups, resources))
    filler = WindowFiller(catalog, schedule.slice_rows, RowRules(Columns(), True, False, None), None)
    cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
    windows: list[Window] = []
    while len(windows) < count and cursor.epoch == 0:
        window, plan = Window(), schedule.window(cursor)
        filler.fill(plan, window)
        windows.append(window)
        cursor = plan.next
    filler.close()
    return windows


def bare_rows_per_second(
    windows: list[Window],
    layout: str,
    *,
    p: float = 2.0,
    returns: str = "suffix",
    lanes: int = 1,
    threads: int = 1,
) -> float:
    """Rows/s of logistic regression, after the loops are loaded; with several lanes each row counts once."""
    own, target = PgsOptions(5e5, None, returns), Target("label")
    specs = [
        LaneSpec("pgs", "logistic", 0.0, PNorm(p), 1e-6 * 2.0**lane, target, 0, 1, 0.1, layout, own)
        for lane in range(lanes)
    ]
    solver = Engine(Lanes(specs, max(window.largest_index for window in windows) + 1), threads)
    solver.advance(windows[0], 0, 1)
    if threads > 1:
        solver.advance(windows[0], 0, windows[0].rows)
    began, rows = time.perf_counter(), 0
    for window in windows:
        first = 0
        while first < window.rows:
            first = solver.advance(window, first, min(first + _PIECE_ROWS, window.rows), window.rows)
        rows += window.rows
    return rows / (time.perf_counter() - began)
