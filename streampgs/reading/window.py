"""A window: rows in memory, in visiting order."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.kernels.rows import Rows
from streampgs.order.schedule import WindowSpan

_GROWTH = 1.25
_MOST_GROWTH, _FEW_ENTRIES = 4, 1 << 18


@dataclass(frozen=True)
class RowShape:
    """What the rows of a run consist of."""

    sparse: bool
    labels: int
    weighted: bool
    offset: bool = False
    mapped_bytes: int = 0
    """Of the row's kernel features, which are computed when it is trained on."""

    @property
    def cells(self) -> int:
        """Labels and offset."""
        return self.labels + self.offset

    @property
    def entry_bytes(self) -> int:
        return 8 if self.sparse else 4


class Window:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows).

    The entries are in visiting order, or group by group if they were decoded straight into the window.

    The arrays keep their memory from window to window and only grow.
    """

    def __init__(self) -> None:
        self.plan: WindowSpan | None = None
        self.rows = 0
        self.entries = 0
        """Of all rows; `values` may be longer."""
        self.largest_index = -1
        self.skipped: Counter[int] = Counter()
        self.skipped_before: Counter[int] = Counter()
        """Those of the skipped rows that were visited, and skipped, before."""
        self.clipped: Counter[str] = Counter()
        """How many values were clipped, by column, in rows that were not visited before."""
        self.clipped_examples: dict[str, tuple[str, float]] = {}
        """By column: the name of a row, and its value."""
        self.kept: NDArray[np.bool_] | None = None
        """Which of the requested rows are in the window, in their order; None: all."""
        self.starts: NDArray[np.int64] = np.empty(0, np.int64)
        self.stops: NDArray[np.int64] = np.empty(0, np.int64)
        self.labels: NDArray[np.float64] = np.empty(0)
        self.weights: NDArray[np.float64] = np.empty(0)
        self.offsets: NDArray[np.float64] = np.empty(0)
        """Added to the rows' scores; empty: none."""
        self.table: Rows | None = None
        """All rows of the table, if they are in memory."""
        self.number_rows: Callable[[], NDArray[np.int64]] | None = None
        """Computes the numbers of all requested rows, in their order."""
        self.indices: NDArray[np.uint32] = np.empty(0, np.uint32)
        self.values: NDArray[np.float32] = np.empty(0, np.float32)
        self._buffers: dict[str, NDArray[Any]] = {}
        self._expected = 0
        self._taken = 0
        """Entries given to rows so far, if rows get them one block after the other."""
        self._turns = threading.Condition()
        self._copying = 0

    @property
    def is_whole_table(self) -> bool:
        """Whether it is one whole epoch."""
        span = self.plan
        return span is not None and self.has_whole_epochs and span.next.epoch == span.start.epoch + 1

    @property
    def has_whole_epochs(self) -> bool:
        """Whether it has all rows of the table."""
        span = self.plan
        if span is None or not span.start.begins_epoch or not span.next.begins_epoch:
            return False
        return span.next.epoch > span.start.epoch

    @property
    def different_rows(self) -> int:
        """How many rows come before the first one that comes again: a window may hold several epochs."""
        span = self.plan
        return self.rows if span is None else self.rows // max(1, span.next.epoch - span.start.epoch)

    def epoch_at(self, row: int) -> int:
        """The epoch that training is in when the rows before this one were trained on."""
        span = self.plan
        assert span is not None
        return span.next.epoch if row == self.rows else span.start.epoch + row // self.different_rows

    def end_of_epoch(self, row: int) -> int:
        """The first row after this one that is of another epoch, or the end of the window."""
        return min(self.rows, (row // self.different_rows + 1) * self.different_rows)

    def reserve(self, name: str, size: int) -> NDArray[Any]:
        """The array of that name with `size` entries of undefined content."""
        current = getattr(self, name)
        room = self._buffers.get(name)
        if room is None or room.size < size:
            self._buffers.pop(name, None)
            setattr(self, name, np.empty(0, current.dtype))  # free the old memory before the new is allocated
            del current, room
            room = self._buffers[name] = np.empty(size + size // 16, getattr(self, name).dtype)
        setattr(self, name, room[:size])
        return room[:size]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The global number of each row, computed on request: its place among all rows of the catalog or of the stream.
        -1: a replayed row of a stream, whose number is not kept. A sample has no numbers."""
        assert self.number_rows is not None, "the rows of a sample have no numbers"
        numbers = self.number_rows()
        return numbers if self.kept is None else numbers[self.kept]

    def lay_out(self, lengths: NDArray[np.int64], slots: NDArray[np.int64], shape: RowShape) -> None:
        """Place all rows in visiting order; lengths[k] is the length of the row for slots[k]."""
        self.allocate(len(lengths), int(lengths.sum()), shape)
        self.stops[slots] = lengths
        np.cumsum(self.stops, out=self.stops)
        if self.rows:
            self.starts[0] = 0
            self.starts[1:] = self.stops[:-1]

    def allocate(self, rows: int, entries: int, shape: RowShape) -> None:
        """Reserve memory for so many rows with at most so many entries in all. `lay_out_next` places them."""
        self.reserve("starts", rows)
        self.reserve("stops", rows)
        self.labels = self.reserve("labels", rows * shape.labels)
        if shape.labels > 1:
            self.labels = self.labels.reshape(rows, shape.labels)
        self.reserve("weights", rows if shape.weighted else 0)
        self.reserve("offsets", rows if shape.offset else 0)
        self.reserve("values", entries)
        self.reserve("indices", entries if shape.sparse else 0)
        self.rows = rows
        self.kept = None
        self._expected, self._taken = entries, 0

    def lay_out_next(self, lengths: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Place the rows for these slots one after the other in the next free entries."""
        stops = self._taken + np.cumsum(lengths)
        self._taken += int(lengths.sum())
        if self._taken > self.values.size:
            self._grow_entries()
        self.stops[slots] = stops
        self.starts[slots] = stops - lengths

    @contextmanager
    def room_for(self, lengths: NDArray[np.int64] | None, slots: NDArray[np.int64]) -> Iterator[None]:
        """While it lasts, rows may be copied to the slots, by several threads at a time. `lengths` of sparse rows may add up
        to more than expected; then the arrays grow while no thread copies."""
        with self._turns:
            if lengths is not None:
                if self._taken + int(lengths.sum()) > self.values.size:
                    self._turns.wait_for(lambda: self._copying == 0)
                self.lay_out_next(lengths, slots)
            self._copying += 1
        try:
            yield
        finally:
            with self._turns:
                self._copying -= 1
                self._turns.notify_all()

    def _grow_entries(self) -> None:
        if self._taken > _MOST_GROWTH * max(self._expected, _FEW_ENTRIES):
            raise DataError(
                f"rows are more than {_MOST_GROWTH} times as long as in the sample at the start: a window has "
                f"{self._taken:,} entries, {self._expected:,} were expected",
                "start a new run with a --window a tenth as large, or on data in a random order (`streampgs pack --shuffle`)",
            )
        for name in ("values", "indices"):
            old, room = getattr(self, name), self._buffers[name]
            if room.size < self._taken:
                room = self._buffers[name] = np.empty(int(_GROWTH * self._taken), old.dtype)
                room[: old.size] = old
            setattr(self, name, room)

    def complete(self, largest_index: int, skipped: Counter[int], dropped: list[NDArray[np.int64]]) -> None:
        """Finish after all rows were copied; leave out the dropped ones."""
        self.entries = int(self.stops.sum() - self.starts.sum())
        self.largest_index = largest_index
        self.skipped, self.skipped_before = skipped, Counter()
        self.clipped, self.clipped_examples = Counter(), {}
        if dropped:
            self.drop(np.concatenate(dropped))

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Remove the rows in these slots; the others keep their order."""
        keep = np.ones(self.rows, np.bool_)
        keep[slots] = False
        self.kept = keep
        self.rows = int(np.count_nonzero(keep))
        for name in ("starts", "stops", "labels", "weights", "offsets"):
            array = getattr(self, name)
            if array.size:
                array[: self.rows] = array[keep]
                setattr(self, name, array[: self.rows])

    def part(self, first: int, stop: int) -> Window:
        """Some of the rows, in the same memory."""
        found = copy.copy(self)
        found.rows = stop - first
        for name in ("starts", "stops", "labels", "weights", "offsets"):
            array = getattr(self, name)
            setattr(found, name, array[first:stop] if array.size else array)
        return found

    @property
    def nbytes(self) -> int:
        return sum(room.nbytes for room in self._buffers.values())


def joined(windows: Iterable[Window]) -> Window:
    """The rows of all windows in one; a window may be reused after the next was requested."""
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("starts", "stops", "labels", "weights", "offsets", "indices", "values")
    }
    whole, entries = Window(), 0
    for window in windows:
        for name, arrays in parts.items():
            arrays.append(
                getattr(window, name) + entries if name in ("starts", "stops") else getattr(window, name).copy()
            )
        whole.rows += window.rows
        whole.largest_index = max(whole.largest_index, window.largest_index)
        entries += window.values.size
    for name, arrays in parts.items():
        if arrays:
            setattr(whole, name, np.concatenate(arrays))
    whole.entries = entries
    return whole
