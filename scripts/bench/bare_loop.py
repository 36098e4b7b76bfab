"""The bare training loop: steps over windows that were loaded in advance, in one thread."""

from __future__ import annotations

import time

from streampgs.data.budget import choose_sizes, group_sizes
from streampgs.engine.engine import Engine
from streampgs.learn.lane_spec import Target
from streampgs.learn.lanes import Lanes
from streampgs.options.commands import ModelOptions, Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule
from streampgs.reading.loader import WindowFiller
from streampgs.reading.placing import RowRules
from streampgs.reading.window import Window, WindowMemory
from streampgs.selection.grid import candidates_of, lanes_of
from streampgs.table.catalog import build_catalog
from streampgs.table.layout import Columns

_CALL_ROWS = 8192


def windows_in_memory(data: str, resources: Resources, count: int) -> list[Window]:
    """The first windows of a run on `data`, at most those of the first epoch."""
    catalog = build_catalog([data], Columns())
    groups = group_sizes(catalog)
    schedule = Schedule(0, groups, choose_sizes(groups, resources))
    filler = WindowFiller(catalog, schedule.slice_rows, RowRules(Columns(), True, False, None), None)
    cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
    windows: list[Window] = []
    while len(windows) < count and cursor.epoch == 0:
        plan = schedule.window(cursor)
        windows.append(filler.fill(plan, WindowMemory()))
        cursor = plan.next
    filler.close()
    return windows


def lanes_for(options: ModelOptions, window: Window, layout: str) -> Lanes:
    """A lane for each candidate, as a run whose first window this is."""
    features = window.features
    return Lanes(lanes_of(candidates_of(options, window, layout, len(window), features), [Target("label")]), features)


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
    sigmas = tuple(1e-6 * 2.0**lane for lane in range(lanes))
    models = lanes_for(ModelOptions(p=p, sigma=sigmas, t0=5e5, ball="none", returns=returns), windows[0], layout)
    models.grow(max(window.features for window in windows))
    engine = Engine(models, threads)
    engine.advance(windows[0], 0, 1)
    if threads > 1:
        engine.advance(windows[0], 0, len(windows[0]))
    began, rows = time.perf_counter(), 0
    for window in windows:
        first = 0
        while first < len(window):
            first = engine.advance(window, first, min(first + _CALL_ROWS, len(window)), len(window))
        rows += len(window)
    return rows / (time.perf_counter() - began)
