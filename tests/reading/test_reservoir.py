"""The reservoir keeps rows unchanged within its memory, and a restored reservoir continues with the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from streampgs.reading.reservoir import Reservoir
from streampgs.reading.stream_rows import StreamRows
from streampgs.reading.window import RowShape

SHAPES = [RowShape(True, 1, False), RowShape(True, 2, True), RowShape(False, 1, True), RowShape(True, 1, True, True)]


def rows_of(shape: RowShape, first: int, count: int, longest: int = 9) -> StreamRows:
    """Rows whose numbers are all the row number. Dense rows have one length."""
    numbers = np.arange(first, first + count)
    lengths = numbers * 7 % (longest + 1) if shape.sparse else np.full(count, longest)
    stops = np.cumsum(lengths)
    entries = np.repeat(numbers, lengths)
    return StreamRows(
        stops - lengths, stops, np.repeat(numbers[:, None], shape.cells, axis=1).astype(float),
        numbers.astype(float) if shape.weighted else np.empty(0),
        entries.astype(np.uint32) if shape.sparse else np.empty(0, np.uint32), entries.astype(np.float32),
        numbers, stop=first + count,
    )  # fmt: skip


def contents(reservoir: Reservoir) -> list[tuple[int, int]]:
    """Number and length of each row, after a check of all its numbers."""
    rows, found = reservoir.rows(), []
    for slot in range(len(rows)):
        number, cut = int(rows.labels[slot, 0]), slice(int(rows.starts[slot]), int(rows.stops[slot]))
        assert (rows.labels[slot] == number).all()
        assert (rows.values[cut] == number).all()
        if reservoir.shape.sparse:
            assert (rows.indices[cut] == number).all()
        if reservoir.shape.weighted:
            assert rows.weights[slot] == number
        found.append((number, cut.stop - cut.start))
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_kept_whole(shape: RowShape) -> None:
    reservoir = Reservoir(1, shape, 40_000, 1_000)
    for first in range(0, 5_000, 250):
        reservoir.offer(rows_of(shape, first, 250))
    found = contents(reservoir)
    assert len({number for number, _ in found}) == len(found) == reservoir.filled
    for number, length in found:
        assert length == (number * 7 % 10 if shape.sparse else 9)
    assert max(number for number, _ in found) > 4_000 > 1_000 > min(number for number, _ in found)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reservoir_stays_within_its_memory(shape: RowShape) -> None:
    reservoir = Reservoir(1, shape, 200_000, 10_000)
    for first in range(0, 20_000, 500):  # later rows are ten times as long
        reservoir.offer(rows_of(shape, first, 500, 9 if first < 5_000 or not shape.sparse else 90))
    arrays = [reservoir.starts, reservoir._lengths, reservoir._capacities, reservoir.labels, reservoir.weights]
    arrays += [reservoir.indices, reservoir.values]
    assert 150_000 < sum(array.nbytes for array in arrays) <= 200_000
    assert reservoir.filled > 100
    contents(reservoir)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_restored_reservoir_continues_like_the_one_that_was_saved(shape: RowShape) -> None:
    kept = Reservoir(3, shape, 30_000, 1_000)
    for first in range(0, 3_000, 300):
        kept.offer(rows_of(shape, first, 300))
    read, checked = Reservoir(3, shape, 30_000, 1_000), []
    read.restore(kept.state(), checked.append)
    assert sum(len(rows) for rows in checked) == kept.filled
    assert contents(read) == contents(kept)
    for reservoir in (kept, read):
        reservoir.offer(rows_of(shape, 3_000, 2_000))
    assert contents(read) == contents(kept)
    assert read.state().values == kept.state().values
