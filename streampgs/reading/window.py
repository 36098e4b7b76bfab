"""A window: rows in memory, in the order in which they will be visited."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.errors import DataError
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

    @property
    def cells(self) -> int:
        """Labels and offset."""
        return self.labels + self.offset

    @property
    def entry_bytes(self) -> int:
        return 8 if self.sparse else 4

    @property
    def cell_bytes(self) -> int:
        """Labels, offset and weight."""
        return 8 * (self.cells + self.weighted)

    def entry_arrays(self, entries: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Memory is used when they are written to."""
        return np.empty(entries if self.sparse else 0, np.uint32), np.empty(entries, np.float32)

    def cell_arrays(self, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.empty((rows, self.cells)), np.empty(rows if self.weighted else 0)


class Window:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows).

    Rows lie in visiting order, or block by block where they were decoded straight into the window.

    The arrays keep their memory from window to window and only ever grow.
    """

    def __init__(self) -> None:
        self.plan: WindowSpan | None = None
        self.rows = 0
        self.entries = 0
        """Of all rows asked for; `values` may have more room than they take."""
        self.largest_index = -1
        self.skipped: Counter[int] = Counter()
        self.kept: NDArray[np.bool_] | None = None
        """Which of the rows asked for are here, in their order; None: all."""
        self.seen: NDArray[np.bool_] | None = None
        """Which rows were trained on before, in another window; None: none, as far as windows know."""
        self.starts: NDArray[np.int64] = np.empty(0, np.int64)
        self.stops: NDArray[np.int64] = np.empty(0, np.int64)
        self.labels: NDArray[np.float64] = np.empty(0)
        self.weights: NDArray[np.float64] = np.empty(0)
        self.offsets: NDArray[np.float64] = np.empty(0)
        """Added to the rows' scores; empty: none."""
        self.number_rows: Callable[[], NDArray[np.int64]] | None = None
        """Computes the numbers of all rows asked for, in their order."""
        self.indices: NDArray[np.uint32] = np.empty(0, np.uint32)
        self.values: NDArray[np.float32] = np.empty(0, np.float32)
        self._room: dict[str, NDArray[Any]] = {}
        self._foretold = 0
        self._taken = 0
        """Entries that rows have been given, where they are given as rows come."""
        self._turns = threading.Condition()
        self._copying = 0

    def reserve(self, name: str, size: int) -> NDArray[Any]:
        """The array of that name with `size` entries, their content undefined."""
        current = getattr(self, name)
        room = self._room.get(name)
        if room is None or room.size < size:
            self._room.pop(name, None)
            setattr(self, name, np.empty(0, current.dtype))  # let go of the old memory before the new is taken
            del current, room
            room = self._room[name] = np.empty(size + size // 16, getattr(self, name).dtype)
        setattr(self, name, room[:size])
        return room[:size]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The global number of each row, computed when it is asked for: its place among all rows of the catalog, or in
        the stream. -1: a replayed row of a stream, whose number is not kept. A sample has no numbers."""
        assert self.number_rows is not None, "the rows of a sample have no numbers"
        numbers = self.number_rows()
        return numbers if self.kept is None else numbers[self.kept]

    def lay_out(self, lengths: NDArray[np.int64], slots: NDArray[np.int64], shape: RowShape) -> None:
        """Give each slot its place, in visiting order; lengths[k] is the length of the row that goes to slots[k]."""
        self.make_room(len(lengths), int(lengths.sum()), shape)
        self.stops[slots] = lengths
        np.cumsum(self.stops, out=self.stops)
        if self.rows:
            self.starts[0] = 0
            self.starts[1:] = self.stops[:-1]

    def make_room(self, rows: int, entries: int, shape: RowShape) -> None:
        """For so many rows with at most so many entries in all. `lay_out_next` gives them their places."""
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
        self._foretold, self._taken = entries, 0

    def lay_out_next(self, lengths: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Rows for the given slots lie one behind the other in the first entries that no row has yet."""
        stops = self._taken + np.cumsum(lengths)
        self._taken += int(lengths.sum())
        if self._taken > self.values.size:
            self._grow_entries()
        self.stops[slots] = stops
        self.starts[slots] = stops - lengths

    @contextmanager
    def room_for(self, lengths: NDArray[np.int64] | None, slots: NDArray[np.int64]) -> Iterator[None]:
        """While it lasts, rows may be copied to the slots, by several threads at a time. The lengths of sparse rows are
        told here: they may turn out longer than was foretold, and then the arrays grow while no one copies."""
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
        if self._taken > _MOST_GROWTH * max(self._foretold, _FEW_ENTRIES):
            raise DataError(
                f"rows are more than {_MOST_GROWTH} times as long as they were in the sample at the start: a window has "
                f"{self._taken:,} entries, {self._foretold:,} were foretold",
                "start a new run with a --window a tenth as large, or on data in a random order (streampgs pack --shuffle)",
            )
        for name in ("values", "indices"):
            old, room = getattr(self, name), self._room[name]
            if room.size < self._taken:
                room = self._room[name] = np.empty(int(_GROWTH * self._taken), old.dtype)
                room[: old.size] = old
            setattr(self, name, room)

    def complete(self, largest_index: int, skipped: Counter[int], dropped: list[NDArray[np.int64]]) -> None:
        """All rows are in their places, or are to be left out."""
        self.entries = int(self.stops.sum() - self.starts.sum())
        self.largest_index = largest_index
        self.skipped = skipped
        if dropped:
            self.drop(np.concatenate(dropped))

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Leave out the rows in these slots; the others keep their order."""
        keep = np.ones(self.rows, np.bool_)
        keep[slots] = False
        self.kept = keep
        self.rows = int(np.count_nonzero(keep))
        for name in ("starts", "stops", "labels", "weights", "offsets"):
            array = getattr(self, name)
            if array.size:
                array[: self.rows] = array[keep]
                setattr(self, name, array[: self.rows])

    @property
    def nbytes(self) -> int:
        return sum(room.nbytes for room in self._room.values())


def joined(windows: Iterable[Window]) -> Window:
    """The rows of all of them, in one window; each may be used again as soon as the next is asked for."""
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
