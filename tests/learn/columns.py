"""Columns made in memory of a window of rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from streampgs.order.columns import ColumnVisit
from streampgs.reading.columns import Columns, MemoryLayer, Part, column_window, joined, transposed
from streampgs.reading.window import Window


def columns_of(rows: Any, dense: bool = False) -> Columns:
    """All columns of a window of tests/learn/windows.py, or of the product."""
    window = Window()
    window.starts, window.stops, window.indices, window.values = rows.starts, rows.stops, rows.indices, rows.values
    window.rows = len(rows.starts)
    window.largest_index = int(rows.indices.max()) if rows.indices.size else -1
    return transposed(window, dense)


def epoch_of_columns(
    columns: Columns, epoch: int = 1, blocks: int = 1, sweeps: int = 5, seed: int = 0
) -> Iterator[Window]:
    """The windows of an epoch over the columns, cut into blocks of about equally many lines, in their order."""
    cuts = np.linspace(0, len(columns), blocks + 1).astype(int)
    for position, (first, stop) in enumerate(pairwise(cuts)):
        part = Part(MemoryLayer(columns), int(first), int(stop))
        block = joined([part], int(columns.columns[first]), int(columns.columns[stop - 1]) + 1, columns.dense)
        for sweep in range(sweeps):
            yield column_window(block, ColumnVisit(epoch, position, blocks, sweep, sweeps), seed)[0]
