"""The sample of a stream's rows that is replayed beside the new ones, in memory of a size that is fixed beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.randomness import key_of
from streampgs.kernels.reservoir_loop import COUNTS, END, FILLED, LIVE, SIZE, offer_rows
from streampgs.reading.stream_rows import StreamRows
from streampgs.reading.window import RowShape

Ints = NDArray[np.int64]
_SLOT_BYTES = 24  # where a row is, how long, and how long it may be
_ROOM_FOR_LONGER = 1.25
_NO_INTS = np.empty(0, np.int64)


def most_slots(shape: RowShape, room_bytes: int, longest_bytes: int, mean_length: float = 0.0) -> int:
    """Of rows of that length, beside which there is room for the longest one."""
    spread = _ROOM_FOR_LONGER if shape.sparse else 1.0
    each = _SLOT_BYTES + shape.cell_bytes + spread * shape.entry_bytes * mean_length
    return max(1, int((room_bytes - longest_bytes) / each))


def entries_beside(slots: int, shape: RowShape, room_bytes: int) -> int:
    return (room_bytes - slots * (_SLOT_BYTES + shape.cell_bytes)) // shape.entry_bytes


class Reservoir:
    """Uniform over all rows that were offered. How many rows it has is settled by how long the first ones are."""

    def __init__(self, seed: int, shape: RowShape, room_bytes: int, longest_bytes: int) -> None:
        """`longest_bytes`: what the longest row takes."""
        self.shape = shape
        self._key = np.uint64(key_of(seed, "reservoir"))
        self._room_bytes = room_bytes
        self._longest_bytes = longest_bytes
        self._counts = np.zeros(COUNTS, np.int64)
        self._largest_key = np.ones(1)
        self._take_room(0, 0)

    def _take_room(self, size: int, entries: int) -> None:
        self.starts, self._lengths, self._rooms = (np.zeros(size, np.int64) for _ in range(3))
        self.labels, self.weights = self.shape.cell_arrays(size)
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
            self._settle(float(lengths.mean()))
        offer_rows(
            self._key, self._counts, self._largest_key, self.starts, self._lengths, self._rooms, self.labels,
            self.weights, self.indices, self.values, rows.starts, lengths, rows.labels, rows.weights, rows.indices,
            rows.values,
        )  # fmt: skip

    def _settle(self, mean_length: float) -> None:
        size = most_slots(self.shape, self._room_bytes, self._longest_bytes, mean_length)
        self._counts[SIZE] = size
        self._take_room(size, entries_beside(size, self.shape, self._room_bytes))

    # For a checkpoint.

    def record(self) -> dict[str, Any]:
        return {
            "counts": self._counts.tolist(),
            "largest_key": float(self._largest_key[0]),
            "slots": len(self.starts),
            "entries": len(self.values),
        }

    def rows(self) -> StreamRows:
        cut = slice(0, self.filled)
        return StreamRows(
            0, np.zeros(self.filled, np.int64), self.starts[cut], self.stops[cut], self.labels[cut],
            self.weights[cut], self.indices, self.values, _NO_INTS, _NO_INTS,
        )  # fmt: skip

    def restore(self, record: dict[str, Any], parts: Iterator[StreamRows]) -> None:
        """From a record and its rows, slot by slot."""
        self._take_room(record["slots"], record["entries"])
        slot = end = 0
        for rows in parts:
            lengths = rows.stops - rows.starts
            cut, stop = slice(slot, slot + len(rows)), end + int(lengths.sum())
            self._lengths[cut], self._rooms[cut] = lengths, lengths
            self.starts[cut] = end + np.cumsum(lengths) - lengths
            self.labels[cut] = rows.labels
            if self.shape.weighted:
                self.weights[cut] = rows.weights
            first, last = int(rows.starts[0]), int(rows.stops[-1])
            self.values[end:stop] = rows.values[first:last]
            if self.shape.sparse:
                self.indices[end:stop] = rows.indices[first:last]
            slot, end = cut.stop, stop
        self._counts[:] = record["counts"]
        self._counts[END] = self._counts[LIVE]
        self._largest_key[0] = record["largest_key"]
