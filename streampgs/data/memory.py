"""Rows that are in memory as a whole, in a random order for each epoch."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streampgs.base.stage import Bundle
from streampgs.kernels.randomness import key_of, shuffled
from streampgs.kernels.rows import Rows
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import UpdatePass, WindowSpan
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import Window

_ROWS_AT_ONCE = 1 << 13
_LATER = 1
"""The position of rows that are not all rows: a window at position 0 begins an epoch."""


class MemorySource:
    """A window holds whole epochs: the first one a single epoch, the others as many as make a window worth its cost."""

    def __init__(self, rows: Rows, seed: int, rows_at_once: int = _ROWS_AT_ONCE, whole_table: bool = True) -> None:
        """`whole_table`: no other rows will follow."""
        self._rows, self._seed, self._rows_at_once, self._whole_table = rows, seed, rows_at_once, whole_table
        self._last_epoch: int | None = None
        self.epoch_rows = len(rows)
        self.seconds_waiting = 0.0

    def values_are(self, values: NDArray[np.float32]) -> None:
        """The same rows with other values from the next window on."""
        self._rows = replace(self._rows, values=values)

    def prepare(self, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        last = self._last_epoch
        if stop.reason is not None or (last is not None and cursor.epoch >= last):
            return None
        began = time.perf_counter()
        epochs = 1 if cursor.epoch == 0 else max(1, self._rows_at_once // max(1, self.epoch_rows))
        stop_epoch = cursor.epoch + epochs if last is None else min(last, cursor.epoch + epochs)
        keys = [key_of(self._seed, "rows in memory", epoch) for epoch in range(cursor.epoch, stop_epoch)]
        orders = [shuffled(np.uint64(key), len(self._rows)) for key in keys]
        start = replace(cursor, position=0 if self._whole_table else _LATER, row=0)
        span = WindowSpan(start, replace(cursor, epoch=stop_epoch, row=0), keys[0])
        found = window_of(self._rows, orders[0] if len(orders) == 1 else np.concatenate(orders), span)
        self.seconds_waiting += time.perf_counter() - began
        return found

    def release(self, window: Window) -> None:
        pass

    def close(self) -> None:
        pass

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        if window is None or window.span is None or cursor.row == 0:
            return float(cursor.epoch)
        return cursor.epoch + (window.span.next.epoch - cursor.epoch) * cursor.row / len(window)

    def has_done(self, cursor: Cursor, epochs: int) -> bool:
        return cursor.epoch >= epochs and not cursor.part

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        return None

    def update_rows(self, cursor: Cursor, window: Window | None) -> tuple[float, float] | None:
        return None

    def state(self) -> Bundle:
        return Bundle()

    def restore(self, bundle: Bundle) -> None:
        """The cursor says everything."""


def first_epoch(rows: Rows, seed: int) -> Window:
    """All rows of a table, once."""
    key = key_of(seed, "rows in memory", 0)
    return window_of(rows, shuffled(np.uint64(key), len(rows)), _first_span(key))


def in_order(rows: Rows) -> Window:
    """All rows of a table, in their order."""
    return window_of(rows, np.arange(len(rows)), _first_span(0))


def _first_span(key: int) -> WindowSpan:
    return WindowSpan(Cursor(()), Cursor((), epoch=1), key)


def window_of(rows: Rows, order: NDArray[np.int64], span: WindowSpan) -> Window:
    """Rows in the order of their visits; they may come several times."""
    visits = rows.at(order)
    return Window(
        visits.starts, visits.stops, visits.indices, visits.values, visits.labels, visits.weights, visits.offsets,
        visits.number_rows, visits.features, table=rows, span=span,
    )  # fmt: skip
