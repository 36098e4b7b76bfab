"""The uniform sample of a stream's rows that is replayed among the new ones, in memory of a fixed size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.stage import Bundle
from streampgs.kernels.randomness import key_of
from streampgs.kernels.reservoir_loop import COUNTS, DRAWS, END, FILLED, LIVE, NEXT, PASSED, SIZE, offer_rows
from streampgs.reading.stream_rows import StreamRows
from streampgs.reading.window import RowShape

Ints = NDArray[np.int64]
_SLOT_BYTES = 24  # start, length and capacity of a row
_SPARE_FOR_LONGER_ROWS = 1.25
_MOST_ROWS = 1 << 48
_LARGEST_COUNT = 1 << 61
_SMALLEST_KEY = 2.0**-200
_CHECKED_ROWS = 1 << 16  # at a time


class Reservoir:
    """Uniform over all rows that were offered. The number of slots is chosen from the length of the first rows."""

    def __init__(self, seed: int, shape: RowShape, size_bytes: int, longest_bytes: int) -> None:
        """`longest_bytes`: the size of the longest possible row."""
        self.shape = shape
        self._key = np.uint64(key_of(seed, "reservoir"))
        self._size_bytes = size_bytes
        self._longest_bytes = longest_bytes
        self._counts = np.zeros(COUNTS, np.int64)
        self._largest_key = np.ones(1)
        self._allocate(0, 0)

    def _allocate(self, slots: int, entries: int) -> None:
        self.starts, self._lengths, self._capacities = (np.zeros(slots, np.int64) for _ in range(3))
        self.labels, self.weights = self.shape.cell_arrays(slots)
        self.indices, self.values = self.shape.entry_arrays(entries)

    @property
    def filled(self) -> int:
        return int(self._counts[FILLED])

    @property
    def lengths(self) -> Ints:
        return self._lengths[: self.filled]

    @property
    def stops(self) -> Ints:
        return self.starts + self._lengths

    def offer(self, rows: StreamRows) -> None:
        """The next rows of the stream that were trained on."""
        lengths = rows.stops - rows.starts
        if not self._counts[SIZE] and len(rows):
            slots = self._slots_for(float(lengths.mean()))
            self._counts[SIZE] = slots
            self._allocate(slots, self._entries_for(slots))
        offer_rows(
            self._key, self._counts, self._largest_key, self.starts, self._lengths, self._capacities, self.labels,
            self.weights, self.indices, self.values, rows.starts, lengths, rows.labels, rows.weights, rows.indices,
            rows.values,
        )  # fmt: skip

    def _slots_for(self, mean_length: float) -> int:
        """Slots for rows of that mean length, with enough memory left for the longest row."""
        spare = _SPARE_FOR_LONGER_ROWS if self.shape.sparse else 1.0
        each = _SLOT_BYTES + self.shape.cell_bytes + spare * self.shape.entry_bytes * mean_length
        return max(1, int((self._size_bytes - self._longest_bytes) / each))

    def _entries_for(self, slots: int) -> int:
        return (self._size_bytes - slots * (_SLOT_BYTES + self.shape.cell_bytes)) // self.shape.entry_bytes

    def rows(self) -> StreamRows:
        cut = slice(0, self.filled)
        starts, stops, numbers = self.starts[cut], self.stops[cut], np.zeros(self.filled, np.int64)
        return StreamRows(starts, stops, self.labels[cut], self.weights[cut], self.indices, self.values, numbers)

    # For a checkpoint: the slots in use, and the part of the entries that has been written to.

    def state(self) -> Bundle:
        counts = self._counts.tolist()
        arrays = {name: array[: _saved_size(name, counts)] for name, array in self._arrays().items()}
        arrays["starts"] = np.where(arrays["capacities"] > 0, arrays["starts"], 0)  # of an empty row it may be anything
        values = {
            "counts": counts,
            "largest_key": float(self._largest_key[0]),
            "slots": len(self.starts),
        }
        return Bundle(values, arrays)

    def restore(self, bundle: Bundle, check: Callable[[StreamRows], None]) -> None:
        """`check` raises ValueError for rows that cannot be rows of this stream."""
        counts, largest_key, slots = (bundle.values[name] for name in ("counts", "largest_key", "slots"))
        require(len(counts) == COUNTS and all(type(count) is int for count in counts), f"counts {counts!r:.200}")
        require(0 <= min(counts) <= max(counts) <= _LARGEST_COUNT, f"counts {counts!r:.200}")
        require(type(largest_key) is float and _SMALLEST_KEY <= largest_key <= 1.0, f"largest key {largest_key!r:.50}")
        require(type(slots) is int and 0 <= slots <= self._slots_for(0.0), f"a reservoir of {slots!r:.50} slots")
        self._check_counts(counts, slots)
        self._allocate(slots, self._entries_for(slots) if slots else 0)
        for name, array in self._arrays().items():
            saved, size = bundle.arrays[name], min(len(array), _saved_size(name, counts))
            right = saved.dtype == array.dtype and saved.shape == (size, *array.shape[1:])
            require(right, f"{name} of the reservoir of type {saved.dtype} and shape {saved.shape}")
            array[:size] = saved
        self._counts[:] = counts
        self._largest_key[0] = largest_key
        self._check_places()
        rows = self.rows()
        for first in range(0, len(rows), _CHECKED_ROWS):
            check(rows.rows(first, first + _CHECKED_ROWS).copied(self.shape))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "starts": self.starts, "lengths": self._lengths, "capacities": self._capacities, "labels": self.labels,
            "weights": self.weights, "indices": self.indices, "values": self.values,
        }  # fmt: skip

    def _check_counts(self, counts: list[int], slots: int) -> None:
        if not slots:
            require(not any(counts), f"counts {counts} of an empty reservoir")
            return
        require(1 <= counts[SIZE] <= slots and counts[FILLED] <= counts[SIZE], f"counts {counts}")
        require(counts[LIVE] <= counts[END] <= self._entries_for(slots), f"entries {counts[LIVE]} to {counts[END]}")
        require(counts[FILLED] <= counts[PASSED] <= min(counts[NEXT], _MOST_ROWS), f"counts {counts}")
        require(counts[DRAWS] <= _LARGEST_COUNT >> 1, f"{counts[DRAWS]} draws")

    def _check_places(self) -> None:
        """No row reaches into another one."""
        used = slice(0, self.filled)
        starts, lengths, capacities = self.starts[used], self._lengths[used], self._capacities[used]
        require(bool(((lengths >= 0) & (lengths <= capacities)).all()), "rows longer than their slots")
        require(int(lengths.sum()) == self._counts[LIVE], "rows of other lengths than are counted")
        order = np.argsort(starts, kind="stable")
        ends = (starts + capacities)[order]
        bounds = np.append(starts[order], self._counts[END])
        require(bool((starts >= 0).all() and (ends >= 0).all()), "rows outside of the reservoir")
        occupied = capacities[order] > 0
        require(
            bool((np.maximum.accumulate(ends[occupied])[:-1] <= bounds[:-1][occupied][1:]).all()), "rows that overlap"
        )
        require(int(ends.max(initial=0)) <= self._counts[END], "rows outside of the reservoir")


def _saved_size(name: str, counts: list[int]) -> int:
    return counts[END] if name in ("indices", "values") else counts[FILLED]
