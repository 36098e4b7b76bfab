"""What a companion of a checkpoint says is looked at before it is used, as `understood` does for other files.

Loops copy its rows into windows and into the reservoir, and go on counting where it stopped, without a look at bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.checks import require, typed
from streampgs.kernels.placing_loop import place_sparse, repeat_table
from streampgs.kernels.reservoir_loop import COUNTS, DRAWS, END, FILLED, LIVE, NEXT, PASSED, SIZE
from streampgs.order.cursor import Cursor
from streampgs.reading.bad_rows import REASONS
from streampgs.reading.placing import LARGEST_INDEX
from streampgs.reading.reservoir import entries_beside, most_slots
from streampgs.reading.stream_rows import StreamEncoder, StreamRows, file_schema, rows_of_file
from streampgs.reading.stream_windows import RESERVOIR, WAITING, WINDOW, StreamSizes
from streampgs.reading.window import RowShape

Ints = NDArray[np.int64]
_MOST_ROWS = 1 << 48
_LARGEST_COUNT = 1 << 61
_SMALLEST_KEY = 2.0**-200


@dataclass(frozen=True)
class _Window:
    start: int
    next: int
    fresh: int
    skipped: dict[str, int]


@dataclass(frozen=True)
class _Sample:
    counts: list[int]
    largest_key: float
    slots: int
    entries: int


@dataclass(frozen=True)
class _Companion:
    taken: int
    skipped: list[list[int]]
    window: _Window | None
    reservoir: _Sample | None

    @property
    def reached(self) -> int:
        """The first row of the stream behind the window."""
        return 0 if self.window is None else self.window.next


@dataclass
class _Found:
    """Rows of one part."""

    numbers: list[Ints] = field(default_factory=list)
    lengths: list[Ints] = field(default_factory=list)

    def add(self, rows: StreamRows) -> None:
        self.numbers.append(rows.numbers)
        self.lengths.append(rows.stops - rows.starts)

    def joined(self) -> tuple[Ints, Ints]:
        nothing = np.empty(0, np.int64)
        return np.concatenate([nothing, *self.numbers]), np.concatenate([nothing, *self.lengths])


def rows_taken(taken: Any) -> int:
    """Of the stream, as a companion or a checkpoint tells."""
    require(type(taken) is int and 0 <= taken < _MOST_ROWS, f"{taken!r:.100} rows of the stream taken")
    return int(taken)


def check_companion(
    record: dict[str, Any],
    batches: Sequence[pa.RecordBatch],
    encoder: StreamEncoder,
    sizes: StreamSizes,
    cursor: Cursor,
    given: int,
) -> None:
    """Its rows are such as the stream brings, and there is room for them. `given`: what the checkpoint says was taken."""
    require(rows_taken(record["taken"]) == given, f"{record['taken']} rows of the stream taken, and not {given}")
    window, sample = record["window"], record["reservoir"]
    said = typed(
        _Companion(
            given,
            record["skipped"],
            None if window is None else _Window(**window),
            None if sample is None else _Sample(**sample),
        )
    )
    found = _look_at_rows(batches, encoder)
    _check_reservoir(said.reservoir, found[RESERVOIR], encoder.shape, sizes)
    _check_window(said.window, found[WINDOW], encoder.shape, sizes, cursor)
    _check_waiting(said, found[WAITING])


def _look_at_rows(batches: Sequence[pa.RecordBatch], encoder: StreamEncoder) -> dict[int, _Found]:
    found = {part: _Found() for part in (RESERVOIR, WINDOW, WAITING)}
    reached = RESERVOIR
    for batch in batches:
        _check_columns(batch, encoder.shape)
        if not batch.num_rows:
            continue
        part, rows = rows_of_file(batch, encoder.shape)
        require(part in found and part >= reached, f"rows of part {part} behind those of part {reached}")
        require(bool((np.array(batch.column("part")) == part).all()), "rows of several parts together")
        _check_rows(rows, encoder)
        found[part].add(rows)
        reached = part
    return found


def _check_columns(batch: pa.RecordBatch, shape: RowShape) -> None:
    """Their types, that nothing is null, and that indices and values are of the same rows."""
    schema = file_schema(shape)
    require(batch.schema.equals(schema), f"columns {batch.schema.to_string(show_schema_metadata=False)!r:.200}")
    for name, column in zip(schema.names, batch.columns, strict=True):
        inner = column.values if name in ("labels", "indices", "values") else column
        require(column.null_count == 0 and inner.null_count == 0, f"nulls in column '{name}'")
    labels, entries = len(batch.column("labels").values), batch.column("values")
    require(labels == batch.num_rows * shape.cells, f"{labels} labels of {batch.num_rows} rows")
    if shape.sparse:
        indices = batch.column("indices")
        require(indices.offsets.equals(entries.offsets), "rows whose indices and values differ in number")


def _check_rows(rows: StreamRows, encoder: StreamEncoder) -> None:
    lengths = rows.stops - rows.starts
    require(bool((lengths >= 0).all()), "rows of negative lengths")
    if encoder.shape.sparse:
        _check_entries(rows, encoder.rules.features or LARGEST_INDEX + 1)
    else:
        require(bool((lengths == encoder.width).all()), f"rows of other lengths than {encoder.width}")
        require(bool(np.isfinite(rows.values).all()), "a feature that is no finite number")
    require(bool(np.isfinite(rows.labels).all()), "a label that is no finite number")
    if encoder.rules.classifies:
        count = encoder.rules.columns.class_count or 2
        known = np.arange(count) if count > 2 else [-1, 1]
        require(bool(np.isin(rows.labels[:, : encoder.shape.labels], known).all()), "a label of an unknown class")
    require(bool((np.isfinite(rows.weights) & (rows.weights >= 0.0)).all()), "a weight that is none")


def _check_entries(rows: StreamRows, limit: int) -> None:
    """By the loop that looks at them when they come."""
    reasons, offsets = np.zeros(len(rows), np.uint8), np.append(rows.starts, rows.stops[-1])
    places = np.arange(len(rows))
    place_sparse(
        places, places, offsets, rows.indices, rows.values, rows.starts, np.empty_like(rows.indices),
        np.empty_like(rows.values), np.uint64(limit), reasons,
        repeat_table(int((rows.stops - rows.starts).max(initial=0))), False,
    )  # fmt: skip
    bad = reasons[np.flatnonzero(reasons)]
    require(not bad.size, f"a row with {REASONS[int(bad[0])][1] if bad.size else None}")


def _check_reservoir(sample: _Sample | None, found: _Found, shape: RowShape, sizes: StreamSizes) -> None:
    """Slots and arena are those that were taken for it, and the counts are of the rows that are there."""
    _, lengths = found.joined()
    require((sample is None) == (sizes.replay == 0.0), "a reservoir where none is used, or none")
    if sample is None:
        require(not lengths.size, "rows of a reservoir that there is not")
        return
    counts = sample.counts
    require(len(counts) == COUNTS and 0 <= min(counts) <= max(counts) <= _LARGEST_COUNT, f"counts {counts!r:.200}")
    require(_SMALLEST_KEY <= sample.largest_key <= 1.0, f"a largest key of {sample.largest_key}")
    if not sample.slots:
        require(not any(counts) and sample.entries == 0 == lengths.size, f"counts {counts} of an empty reservoir")
        return
    most = most_slots(shape, sizes.reservoir_bytes, sizes.window_bytes)
    require(0 < sample.slots <= most, f"a reservoir of {sample.slots} rows")
    arena = entries_beside(sample.slots, shape, sizes.reservoir_bytes)
    require(sample.entries == arena, f"a reservoir of {sample.entries} entries, and not {arena}")
    require(1 <= counts[SIZE] <= sample.slots and counts[FILLED] <= counts[SIZE], f"counts {counts}")
    require(len(lengths) == counts[FILLED], f"a reservoir of {len(lengths)} rows, and not {counts[FILLED]}")
    require(int(lengths.sum()) == counts[LIVE] <= counts[END] <= arena, f"entries {counts[LIVE]} to {counts[END]}")
    require(counts[FILLED] <= counts[PASSED] <= min(counts[NEXT], _MOST_ROWS), f"counts {counts}")
    require(counts[DRAWS] <= _LARGEST_COUNT >> 1, f"{counts[DRAWS]} draws")


def _check_window(window: _Window | None, found: _Found, shape: RowShape, sizes: StreamSizes, cursor: Cursor) -> None:
    numbers, lengths = found.joined()
    if window is None:
        require(not lengths.size and cursor.position == cursor.row == 0, "no window where one is used")
        return
    require(0 <= window.start < window.next < _MOST_ROWS, f"a window of rows {window.start} to {window.next}")
    require(cursor.row <= (len(lengths) if cursor.position == window.start else 0), f"row {cursor.row} of the window")
    for reason, count in window.skipped.items():
        require(reason.isdecimal() and int(reason) in REASONS and count > 0, f"{count} rows skipped for {reason!r:.50}")
    skipped, fresh = sum(window.skipped.values()), window.fresh
    require(0 <= fresh <= len(lengths) and fresh + skipped == window.next - window.start, f"{fresh} new rows")
    _check_numbers(numbers[:fresh], window.start, window.next)
    taken = sizes.row_bytes(shape) + shape.entry_bytes * lengths
    require(int(taken[:fresh].sum()) <= sizes.window_bytes, "more new rows than a window holds")
    require(
        int(taken[fresh:].sum()) <= int(sizes.replay * sizes.window_bytes), "more replayed rows than a window holds"
    )


def _check_waiting(said: _Companion, found: _Found) -> None:
    """Each row behind the window either waits or was left out."""
    require(said.reached <= said.taken, f"{said.taken} rows taken, and {said.reached} used")
    require(all(len(pair) == 2 and pair[1] in REASONS for pair in said.skipped), "rows left out for no reason")
    numbers, _ = found.joined()
    left_out = np.array([pair[0] for pair in said.skipped], np.int64)
    require(len(numbers) + len(left_out) == said.taken - said.reached, "other rows than were taken")
    for each in (numbers, left_out, np.sort(np.concatenate([numbers, left_out]))):
        _check_numbers(each, said.reached, said.taken)


def _check_numbers(numbers: Ints, first: int, stop: int) -> None:
    """Of rows of the stream, in their order."""
    require(not numbers.size or (first <= int(numbers[0]) and int(numbers[-1]) < stop), "rows from elsewhere")
    require(bool((np.diff(numbers) > 0).all()), "rows in another order than they came")
