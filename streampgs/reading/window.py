"""A window: rows in memory, in the order in which they will be visited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.order.schedule import WindowPlan


class Window:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows).

    The arrays keep their memory from window to window and only ever grow.
    """

    def __init__(self) -> None:
        self.plan: WindowPlan | None = None
        self.rows = 0
        self.largest_index = -1
        self.skipped: Counter[int] = Counter()
        self.kept: NDArray[np.bool_] | None = None
        """Which of the rows asked for are here, in their order; None: all."""
        self.starts: NDArray[np.int64] = np.empty(0, np.int64)
        self.stops: NDArray[np.int64] = np.empty(0, np.int64)
        self.labels: NDArray[np.float64] = np.empty(0)
        self.weights: NDArray[np.float64] = np.empty(0)
        self.indices: NDArray[np.uint32] = np.empty(0, np.uint32)
        self.values: NDArray[np.float32] = np.empty(0, np.float32)
        self._room: dict[str, NDArray[Any]] = {}

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

    def lay_out(
        self, lengths: NDArray[np.int64], slots: NDArray[np.int64], sparse: bool, weighted: bool, labels: int = 1
    ) -> None:
        """Give each slot its place; lengths[k] is the length of the row that goes to slots[k], with so many labels."""
        count = len(lengths)
        starts, stops = self.reserve("starts", count), self.reserve("stops", count)
        stops[slots] = lengths
        np.cumsum(stops, out=stops)
        if count:
            starts[0] = 0
            starts[1:] = stops[:-1]
        entries = int(stops[-1]) if count else 0
        self.reserve("values", entries)
        self.reserve("indices", entries if sparse else 0)
        self.labels = self.reserve("labels", count * labels)
        if labels > 1:
            self.labels = self.labels.reshape(count, labels)
        self.reserve("weights", count if weighted else 0)
        self.rows = count
        self.kept = None

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Leave out the rows in these slots; the others keep their order."""
        keep = np.ones(self.rows, np.bool_)
        keep[slots] = False
        self.kept = keep
        self.rows = int(np.count_nonzero(keep))
        for name in ("starts", "stops", "labels", "weights"):
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
        name: [] for name in ("starts", "stops", "labels", "weights", "indices", "values")
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
    return whole
