"""A window: rows in memory, in visiting order, and the memory that is filled with them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
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


@dataclass
class RowCounts:
    """Counts over rows that were visited for the first time."""

    skipped: Counter[int] = field(default_factory=Counter)
    """How many rows were skipped, by reason."""
    clipped: Counter[str] = field(default_factory=Counter)
    """How many values were clipped, by column."""
    clipped_examples: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By column: the name of a row, and its value."""

    def add(self, other: RowCounts) -> None:
        self.skipped.update(other.skipped)
        self.clipped.update(other.clipped)
        self.clipped_examples = other.clipped_examples | self.clipped_examples


@dataclass(eq=False)
class Window(Rows):
    """The rows of a span of the order. The entries are in visiting order, or group by group if they were decoded straight
    into the window."""

    span: WindowSpan | None = None
    """None: the rows are in the order of the table."""
    kept: NDArray[np.bool_] | None = None
    """Which of the requested rows are in the window, in their order; None: all."""
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def is_whole_table(self) -> bool:
        """Whether it is one whole epoch."""
        span = self.span
        return span is not None and self.has_whole_epochs and span.next.epoch == span.start.epoch + 1

    @property
    def has_whole_epochs(self) -> bool:
        """Whether it has all rows of the table."""
        span = self.span
        if span is None or not span.start.begins_epoch or not span.next.begins_epoch:
            return False
        return span.next.epoch > span.start.epoch

    @property
    def different_rows(self) -> int:
        """How many rows come before the first one that comes again: a window may hold several epochs."""
        span = self.span
        return len(self) if span is None else len(self) // max(1, span.next.epoch - span.start.epoch)

    @property
    def requested_rows(self) -> int:
        """How many rows it would have if none had been left out."""
        return len(self) if self.kept is None else len(self.kept)

    def epoch_at(self, row: int) -> int:
        """The epoch that training is in when the rows before this one were trained on."""
        span = self.span
        assert span is not None
        return span.next.epoch if row == len(self) else span.start.epoch + row // self.different_rows

    def end_of_epoch(self, row: int) -> int:
        """The first row after this one that is of another epoch, or the end of the window."""
        return min(len(self), (row // self.different_rows + 1) * self.different_rows)


class WindowMemory:
    """The memory of a window, which is filled again and again. Its arrays keep their memory and only grow."""

    def __init__(self) -> None:
        self.window = Window()
        self._buffers: dict[str, NDArray[Any]] = {}
        self._expected = 0
        self._taken = 0
        """Entries given to rows so far, if rows get them one block after the other."""
        self._turns = threading.Condition()
        self._copying = 0

    def _reserve(self, name: str, size: int) -> NDArray[Any]:
        """The array of that name with `size` entries of undefined content."""
        current = getattr(self.window, name)
        room = self._buffers.get(name)
        if room is None or room.size < size:
            self._buffers.pop(name, None)
            setattr(self.window, name, np.empty(0, current.dtype))  # free the old memory before the new is allocated
            del current, room
            room = self._buffers[name] = np.empty(size + size // 16, getattr(self.window, name).dtype)
        setattr(self.window, name, room[:size])
        return room[:size]

    def lay_out(self, lengths: NDArray[np.int64], slots: NDArray[np.int64], shape: RowShape) -> None:
        """Place all rows in visiting order; lengths[k] is the length of the row for slots[k]."""
        self.allocate(len(lengths), int(lengths.sum()), shape)
        window = self.window
        window.stops[slots] = lengths
        np.cumsum(window.stops, out=window.stops)
        if lengths.size:
            window.starts[0] = 0
            window.starts[1:] = window.stops[:-1]

    def allocate(self, rows: int, entries: int, shape: RowShape) -> None:
        """Reserve memory for so many rows with at most so many entries in all. `lay_out_next` places them."""
        self._reserve("starts", rows)
        self._reserve("stops", rows)
        labels = self._reserve("labels", rows * shape.labels)
        if shape.labels > 1:
            self.window.labels = labels.reshape(rows, shape.labels)
        self._reserve("weights", rows if shape.weighted else 0)
        self._reserve("offsets", rows if shape.offset else 0)
        self._reserve("values", entries)
        self._reserve("indices", entries if shape.sparse else 0)
        self._expected, self._taken = entries, 0

    def lay_out_next(self, lengths: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Place the rows for these slots one after the other in the next free entries."""
        stops = self._taken + np.cumsum(lengths)
        self._taken += int(lengths.sum())
        if self._taken > self.window.values.size:
            self._grow_entries()
        self.window.stops[slots] = stops
        self.window.starts[slots] = stops - lengths

    @contextmanager
    def room_for(self, lengths: NDArray[np.int64] | None, slots: NDArray[np.int64]) -> Iterator[None]:
        """While it lasts, rows may be copied to the slots, by several threads at a time. `lengths` of sparse rows may add up
        to more than expected; then the arrays grow while no thread copies."""
        with self._turns:
            if lengths is not None:
                if self._taken + int(lengths.sum()) > self.window.values.size:
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
            old, room = getattr(self.window, name), self._buffers[name]
            if room.size < self._taken:
                room = self._buffers[name] = np.empty(int(_GROWTH * self._taken), old.dtype)
                room[: old.size] = old
            setattr(self.window, name, room)

    def complete(self, features: int, dropped: list[NDArray[np.int64]], counts: RowCounts) -> Window:
        """The window, after all rows were copied; the dropped ones are left out, and the others keep their order."""
        window = self.window
        window.features, window.counts, window.kept = features, counts, None
        if dropped:
            window.kept = keep = np.ones(len(window), np.bool_)
            keep[np.concatenate(dropped)] = False
            for name in ("starts", "stops", "labels", "weights", "offsets"):
                array = getattr(window, name)
                if array.size:
                    kept = array[keep]
                    array[: len(kept)] = kept
                    setattr(window, name, array[: len(kept)])
            if window.number_rows is not None:
                window.number_rows = partial(_numbers_of_kept, window.number_rows, keep)
        return window


def _numbers_of_kept(number_rows: Callable[[], NDArray[np.int64]], keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    return number_rows()[keep]
