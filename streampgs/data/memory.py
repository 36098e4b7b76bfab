"""Rows that are in memory as a whole, in a random order for each epoch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streampgs.base.stage import Bundle
from streampgs.kernels.randomness import key_of, shuffled
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import UpdatePass, WindowSpan
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import Window

_ROWS_AT_ONCE = 1 << 13
_LATER = 1
"""The position of rows that are not all rows: a window at position 0 begins an epoch."""


@dataclass(frozen=True)
class MemoryRows:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows)."""

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """Empty: all rows count once."""
    features: int
    offsets: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Empty: none."""

    def __len__(self) -> int:
        return len(self.starts)


class MemorySource:
    """A window holds whole epochs: the first one a single epoch, the others as many as make a window worth its cost."""

    access: Literal["rows", "columns"] = "rows"
    ends = "epochs"
    rows_taken = None
    has_unsaved = False

    def __init__(
        self, rows: MemoryRows, seed: int, rows_at_once: int = _ROWS_AT_ONCE, whole_table: bool = True
    ) -> None:
        """`whole_table`: no other rows will follow."""
        self._rows, self._seed, self._rows_at_once, self._whole_table = rows, seed, rows_at_once, whole_table
        self._last_epoch: int | None = None
        self.epoch_rows = len(rows)
        self.seconds_waiting = 0.0

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
        found = self._visits(keys)
        start = replace(cursor, position=0 if self._whole_table else _LATER, row=0)
        found.plan = WindowSpan(start, replace(cursor, epoch=stop_epoch, row=0), keys[0])
        self.seconds_waiting += time.perf_counter() - began
        return found

    def _visits(self, keys: Sequence[int]) -> Window:
        """One epoch for each key."""
        rows, window = self._rows, Window()
        orders: list[Any] = [shuffled(np.uint64(key), len(rows)) for key in keys]
        order = orders[0] if len(orders) == 1 else np.concatenate(orders)
        window.starts, window.stops, window.labels = rows.starts[order], rows.stops[order], rows.labels[order]
        if rows.weights.size:
            window.weights = rows.weights[order]
        if rows.offsets.size:
            window.offsets = rows.offsets[order]
        window.indices, window.values = rows.indices, rows.values
        window.rows, window.entries = len(order), int((window.stops - window.starts).sum())
        window.largest_index = rows.features - 1
        window.number_rows = lambda: order
        return window

    def release(self, window: Window) -> None:
        pass

    def close(self) -> None:
        pass

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        if window is None or window.plan is None or cursor.row == 0:
            return float(cursor.epoch)
        return cursor.epoch + (window.plan.next.epoch - cursor.epoch) * cursor.row / window.rows

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
