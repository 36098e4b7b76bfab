"""One window of a stream: new rows in the order of the stream, and rows drawn from the reservoir, all in one random order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streampgs.base.checks import Count, Positive, require
from streampgs.base.errors import DataError
from streampgs.kernels.randomness import key_of, permuted, shuffled
from streampgs.kernels.reservoir_loop import copy_rows
from streampgs.options.commands import MOST_STREAM_REPLAY
from streampgs.order.schedule import WindowSpan
from streampgs.reading.reservoir import Reservoir
from streampgs.reading.stream_rows import StreamRows
from streampgs.reading.window import RowShape, Window

Ints = NDArray[np.int64]
_NO_INTS = np.empty(0, np.int64)
_MOST_LEFT_OUT = 1 << 20
_ROW_BYTES = 40  # number, start and stop of a row, as it was read and in the order of visit


@dataclass(frozen=True)
class StreamSizes:
    """Which rows of a stream are trained on when follows from these: recorded with the run."""

    window_bytes: Positive
    """Of new rows."""
    replay: Annotated[float, Meta(ge=0, le=MOST_STREAM_REPLAY)]
    """Rows from the reservoir for each new one."""
    reservoir_bytes: Count
    horizon: Positive
    """Rows that count as an epoch when sigma is searched for."""

    def __post_init__(self) -> None:
        least = 2 * self.window_bytes if self.replay else 0  # memory for the longest row of a window
        require(least <= self.reservoir_bytes, f"a reservoir of {self.reservoir_bytes} bytes")

    def row_bytes(self, shape: RowShape) -> int:
        """The size of a row of a window without its entries."""
        return _ROW_BYTES + 2 * shape.cell_bytes + shape.mapped_bytes


class MixedWindow:
    """Rows as they were read, and the window that is made of them."""

    def __init__(self, sizes: StreamSizes, shape: RowShape) -> None:
        self.sizes, self.shape = sizes, shape
        self.window = Window()
        self._row_bytes = sizes.row_bytes(shape)
        most = int((1.0 + sizes.replay) * sizes.window_bytes)
        rows = most // self._row_bytes + 1
        # Memory is taken as it is written to, so that many short rows and few long ones both fit.
        self._read = StreamRows.with_memory_for(shape, rows, most // shape.entry_bytes + 1)
        self.begin()

    def begin(self) -> None:
        self.fresh = self.rows = self._entries = self._used = 0
        self.bad_numbers, self.bad_reasons = _NO_INTS, _NO_INTS

    def stop_of(self, rows: StreamRows, bad: int) -> int:
        """The number of the row where the window must end, because it notes only so many rows that were left out; `bad`:
        the first of them that is not noted yet."""
        room = _MOST_LEFT_OUT - len(self.bad_numbers)
        return int(rows.bad_numbers[bad + room]) if len(rows.bad_numbers) - bad > room else rows.stop

    def take(self, rows: StreamRows, first: int, stop: int) -> int:
        """Copy new rows from `first` on, as many as fit before `stop`; returns the first row that was not taken."""
        lengths = rows.stops[first:stop] - rows.starts[first:stop]
        reached = self._used + np.cumsum(self._row_bytes + self.shape.entry_bytes * lengths)
        count = int(np.searchsorted(reached, self.sizes.window_bytes, side="right"))
        if count:
            self._used = int(reached[count - 1])
            self._append(rows, np.arange(first, first + count))
            self.fresh += count
        elif len(lengths) and not self.fresh:
            raise DataError(
                f"row {rows.numbers[first]:,} of the stream has {lengths[0]:,} entries; a window holds "
                f"{self.sizes.window_bytes / 1e6:,.1f} MB",
                "start a new run with a larger --window",
            )
        return first + count

    def replay(self, reservoir: Reservoir, start: int, seed: int) -> None:
        """Append rows drawn from the reservoir, none of them twice."""
        wanted = min(round(self.sizes.replay * self.fresh), reservoir.filled)
        if not wanted:
            return
        picks = permuted(key_of(seed, "replay", start), reservoir.filled, np.arange(wanted, dtype=np.int64))
        taken = np.cumsum(self._row_bytes + self.shape.entry_bytes * reservoir.lengths[picks])
        fitting = int(np.searchsorted(taken, int(self.sizes.replay * self.sizes.window_bytes), side="right"))
        self._append(reservoir.rows(), picks[:fitting])

    def _append(self, rows: StreamRows, picks: Ints) -> None:
        read, here = self._read, slice(self.rows, self.rows + len(picks))
        lengths = rows.stops[picks] - rows.starts[picks]
        stops = self._entries + np.cumsum(lengths)
        read.stops[here] = stops
        read.starts[here] = stops - lengths
        read.labels[here] = rows.labels[picks]
        if self.shape.weighted:
            read.weights[here] = rows.weights[picks]
        read.numbers[here] = rows.numbers[picks]
        copy_rows(
            picks, rows.starts, rows.stops, rows.indices, rows.values, read.starts[here], read.indices, read.values
        )
        self.rows = here.stop
        self._entries = int(stops[-1]) if len(stops) else self._entries

    def finish(self, plan: WindowSpan) -> Window:
        """The window, with its rows in the order of visit."""
        window, read, slots = self.window, self._read, shuffled(np.uint64(plan.shuffle_key), self.rows)
        for name in ("starts", "stops", "weights"):
            array = getattr(read, name)
            if array.size:
                window.reserve(name, self.rows)[slots] = array[: self.rows]
        cells, several = np.empty((self.rows, self.shape.cells)), self.shape.labels > 1
        cells[slots] = read.labels[: self.rows]
        labels = np.ascontiguousarray(cells[:, : self.shape.labels])
        window.labels = labels if several else labels.ravel()
        window.offsets = cells[:, -1].copy() if self.shape.offset else np.empty(0)
        window.number_rows = partial(self._numbers_of, slots)
        window.seen = np.zeros(self.rows, np.bool_)
        window.seen[slots[self.fresh :]] = True
        window.values = read.values[: self._entries]
        window.indices = read.indices[: self._entries if self.shape.sparse else 0]
        window.plan, window.rows, window.entries = plan, self.rows, self._entries
        window.largest_index = int(window.indices.max(initial=0)) if self._entries else -1
        if not self.shape.sparse and self.rows:
            window.largest_index = self._entries // self.rows - 1
        window.skipped = Counter(self.bad_reasons.tolist())
        return window

    def _numbers_of(self, slots: Ints) -> Ints:
        """Numbers of the window's rows; rows that are replayed have -1."""
        numbers = np.empty(len(slots), np.int64)
        numbers[slots[: self.fresh]] = self._read.numbers[: self.fresh]
        numbers[slots[self.fresh :]] = -1
        return numbers

    def contents(self, first: int, stop: int) -> StreamRows:
        """Rows as they were read: the new ones, then those from the reservoir."""
        return self._read.rows(first, stop)

    def leave_out(self, rows: StreamRows, first: int, stop: int) -> None:
        """Note a part of the rows that were left out."""
        if first < stop:
            self.bad_numbers = np.concatenate([self.bad_numbers, rows.bad_numbers[first:stop]])
            self.bad_reasons = np.concatenate([self.bad_reasons, rows.bad_reasons[first:stop]])

    def restore(self, rows: StreamRows, fresh: int) -> None:
        self.begin()
        self._append(rows, np.arange(len(rows)))
        self.fresh = fresh
