"""Columns in memory: rows are transposed window by window, and a block of columns joins the parts of all windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.transposing_loop import append_parts, count_entries, transpose, transpose_dense
from streampgs.order.columns import ColumnVisit, lines_in_order
from streampgs.reading.window import Window

Ints = NDArray[np.int64]
Indices = NDArray[np.uint32]
Values = NDArray[np.float32]
_ENTRIES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Columns:
    """Line k has entries [bounds[k], bounds[k + 1]), of feature columns[k]. Features ascend, and so do the rows of a line."""

    rows: int
    columns: Ints
    bounds: Ints
    indices: Indices
    """Row numbers; empty for dense columns, which have a value for each row."""
    values: Values
    dense: bool

    def __len__(self) -> int:
        return len(self.columns)


class Layer(Protocol):
    """The columns of one window of rows."""

    @property
    def rows(self) -> int: ...

    @property
    def dense(self) -> bool: ...

    def __len__(self) -> int:
        """Its lines."""

    def lines(self, first: int, stop: int) -> tuple[Ints, Ints]:
        """The features of these lines, and the bounds of their entries in the layer: one more."""

    def entries(self, first: int, stop: int) -> tuple[Indices, Values]:
        """Row numbers, which dense layers need not have, and values."""


@dataclass(frozen=True)
class MemoryLayer:
    whole: Columns

    @property
    def rows(self) -> int:
        return self.whole.rows

    @property
    def dense(self) -> bool:
        return self.whole.dense

    def __len__(self) -> int:
        return len(self.whole)

    def lines(self, first: int, stop: int) -> tuple[Ints, Ints]:
        return self.whole.columns[first:stop], self.whole.bounds[first : stop + 1]

    def entries(self, first: int, stop: int) -> tuple[Indices, Values]:
        return self.whole.indices[first:stop], self.whole.values[first:stop]


class Room:
    """Memory that blocks use one after the other: if it were freed and allocated for each, it would be fragmented."""

    def __init__(self) -> None:
        self._indices, self._values = np.empty(0, np.uint32), np.empty(0, np.float32)

    def take(self, entries: int, dense: bool) -> tuple[Indices, Values]:
        if len(self._values) < entries:
            self._indices, self._values = np.empty(0, np.uint32), np.empty(0, np.float32)
            self._values = np.empty(entries, np.float32)
        if not dense and len(self._indices) < entries:
            self._indices = np.empty(len(self._values), np.uint32)
        return self._indices[: 0 if dense else entries], self._values[:entries]


@dataclass(frozen=True)
class Part:
    """Lines [first, stop) of a layer."""

    layer: Layer
    first: int
    stop: int


def transposed(window: Window, dense: bool) -> Columns:
    """The rows of a window as columns; rows are numbered in visiting order."""
    features = window.largest_index + 1
    if dense:
        features = int((window.stops - window.starts).max(initial=0))
        values = np.empty(features * window.rows, np.float32)
        transpose_dense(window.starts, window.values, features, values)
        bounds = np.arange(features + 1, dtype=np.int64) * window.rows
        return Columns(
            window.rows, np.arange(features, dtype=np.int64), bounds, np.empty(0, np.uint32), values, True
        )  # fmt: skip
    places = np.zeros(features + 1, np.int64)
    count_entries(window.starts, window.stops, window.indices, places[1:])
    columns = np.flatnonzero(places[1:])
    np.cumsum(places, out=places)
    bounds = np.append(places[columns], places[-1])
    entries = int(bounds[-1])
    indices, values = np.empty(entries, np.uint32), np.empty(entries, np.float32)
    transpose(window.starts, window.stops, window.indices, window.values, places, indices, values)
    return Columns(window.rows, columns, bounds, indices, values, False)


def warm_up() -> None:
    """Compile the loops, or load them from their cache."""
    window = Window()
    columns = transposed(window, False)
    transposed(window, True)
    joined([Part(MemoryLayer(columns), 0, 0)] * 2, 0, 0, False)
    nothing, first = np.empty(0, np.int64), np.zeros(1, np.int64)
    append_parts(nothing, first, 0, 0, columns.indices, columns.values, 0, nothing, columns.indices, columns.values)


def joined(parts: Sequence[Part], first: int, stop: int, dense: bool, room: Room | None = None) -> Columns:
    """The features [first, stop) of all layers; each part has the lines of its layer that are in this range. The block is
    in `room`, if it is given."""
    if len(parts) == 1 and isinstance(parts[0].layer, MemoryLayer) and parts[0].layer.dense == dense:
        return _slice(parts[0])
    rows = sum(part.layer.rows for part in parts)
    counts = np.zeros(stop - first, np.int64)
    for part in parts:
        columns, bounds = part.layer.lines(part.first, part.stop)
        counts[columns - first] += np.diff(bounds)
    if dense:
        counts[...] = rows
    used = np.flatnonzero(counts)
    bounds = np.zeros(len(used) + 1, np.int64)
    np.cumsum(counts[used], out=bounds[1:])
    line_of = counts  # not needed any more
    line_of[used] = np.arange(len(used))
    entries = int(bounds[-1])
    indices, values = (room or Room()).take(entries, dense)
    if dense:
        values[...] = 0.0  # a layer may lack features
    block = Columns(rows, used + first, bounds, indices, values, dense)
    places, first_row = bounds[:-1].copy(), 0
    for part in parts:
        columns, own = part.layer.lines(
            part.first, part.stop
        )  # again: those of all layers together take too much memory
        if dense:
            places = bounds[:-1] + first_row  # a layer may lack the last features
        _append(block, part.layer, line_of[columns - first], own, first_row, places)
        first_row += part.layer.rows
    return block


def _append(block: Columns, layer: Layer, lines: Ints, bounds: Ints, first_row: int, places: Ints) -> None:
    begin, end = int(bounds[0]), int(bounds[-1])
    for first in range(begin, end, _ENTRIES_AT_ONCE):
        stop = min(end, first + _ENTRIES_AT_ONCE)
        low = int(np.searchsorted(bounds, first, side="right")) - 1
        high = int(np.searchsorted(bounds, stop, side="left"))
        indices, values = layer.entries(first, stop)
        if layer.dense and not block.dense:
            indices = (np.arange(first, stop) % layer.rows).astype(np.uint32)
        append_parts(
            lines[low:high], bounds[low : high + 1], first, stop, indices, values, first_row, places, block.indices,
            block.values,
        )  # fmt: skip


def _slice(part: Part) -> Columns:
    columns, bounds = part.layer.lines(part.first, part.stop)
    indices, values = part.layer.entries(int(bounds[0]), int(bounds[-1]))
    return Columns(part.layer.rows, columns, bounds - bounds[0], indices, values, part.layer.dense)


def column_window(block: Columns, visit: ColumnVisit, seed: int) -> tuple[Window, int]:
    """A sweep over a block: its lines in random order, and the key of this order."""
    order, key = lines_in_order(seed, visit, len(block))
    window = Window()
    window.visit, window.columns = visit, block.columns[order]
    window.starts, window.stops = block.bounds[:-1][order], block.bounds[1:][order]
    window.indices, window.values = block.indices, block.values
    window.rows, window.entries = len(order), int(block.bounds[-1] - block.bounds[0])
    return window, key
