"""Validate the rows of a stream that are read back from a checkpoint: they could have been written by a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.stage import Bundle
from streampgs.reading.bad_rows import REASONS
from streampgs.reading.mixed_window import StreamSizes
from streampgs.reading.stream_rows import StreamRows
from streampgs.reading.window import RowShape

Ints = NDArray[np.int64]
_MOST_ROWS = 1 << 48


def rows_taken(bundle: Bundle) -> int:
    """Rows of the stream that were taken until a checkpoint was written."""
    taken = bundle.values["taken"]
    require(type(taken) is int and 0 <= taken < _MOST_ROWS, f"{taken!r:.100} rows of the stream taken")
    return int(taken)


def part_of(bundle: Bundle, name: str) -> dict[str, NDArray[Any]]:
    """The arrays of one part of the section."""
    return {key.removeprefix(f"{name}."): array for key, array in bundle.arrays.items() if key.startswith(f"{name}.")}


def check_window(
    saved: dict[str, Any], rows: StreamRows, sizes: StreamSizes, shape: RowShape, position: int, row: int
) -> None:
    """`position`, `row`: of the cursor."""
    start, following, fresh, skipped = (saved[name] for name in ("start", "next", "fresh", "skipped"))
    whole = all(type(number) is int for number in (start, following, fresh, *skipped.values()))
    require(whole, "numbers of a window that are not whole")
    require(0 <= start < following < _MOST_ROWS, f"a window of rows {start} to {following}")
    require(position in (start, following), "a window at another place than the cursor")
    require(row <= (len(rows) if position == start else 0), f"row {row} of a window of {len(rows)}")
    for reason, count in skipped.items():
        known = reason.isdecimal() and int(reason) in REASONS
        require(known and count > 0, f"{count} rows skipped for {reason!r:.50}")
    require(0 <= fresh <= len(rows), f"{fresh} new rows of {len(rows)}")
    require(fresh + sum(skipped.values()) == following - start, f"{fresh} new rows of {following - start}")
    _check_numbers(rows.numbers[:fresh], start, following)
    size = sizes.row_bytes(shape) + shape.entry_bytes * (rows.stops - rows.starts)
    require(int(size[:fresh].sum()) <= sizes.window_bytes, "more new rows than a window holds")
    replayed = int(sizes.replay * sizes.window_bytes)
    require(int(size[fresh:].sum()) <= replayed, "more replayed rows than a window holds")


def check_waiting(rows: StreamRows, reached: int, taken: int) -> None:
    """Each row after the window either waits or was left out."""
    require(reached <= taken, f"{taken} rows taken, and {reached} used")
    numbers = np.concatenate([rows.numbers, rows.bad_numbers])
    require(len(numbers) == taken - reached, "other rows than were taken")
    for each in (rows.numbers, rows.bad_numbers, np.sort(numbers)):
        _check_numbers(each, reached, taken)


def _check_numbers(numbers: Ints, first: int, stop: int) -> None:
    """Of rows of the stream, in its order."""
    require(not numbers.size or (first <= int(numbers[0]) and int(numbers[-1]) < stop), "rows of another place")
    require(bool((np.diff(numbers) > 0).all()), "rows in another order than that of the stream")
