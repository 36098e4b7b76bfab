"""Windows of a stream: new rows in the order of their coming, as many as fit, and rows drawn from the reservoir, all in one
random order. Which rows make a window depends on the rows before it and on nothing else.

Two windows in turn, as for shards: while one is trained on, a thread fills the next. Window n draws from the sample of all
windows before n - 1: while a window is trained on, the reservoir stays as it is, and a checkpoint may take it from there.

What a pause keeps: the reservoir, the window that is to be offered to it next, and the rows that have come behind that
one, which the next session puts before those that are still to come.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta
from numpy.typing import NDArray

from streampgs.checks import Count, Positive, require
from streampgs.errors import DataError, RunError
from streampgs.kernels.randomness import key_of, permuted, shuffled
from streampgs.kernels.reservoir_loop import copy_rows
from streampgs.options import MOST_REPLAY
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Pieces, WindowPlan
from streampgs.reading.blocks import Stopped
from streampgs.reading.prefetch import ReadyWindows, StopAsked
from streampgs.reading.reservoir import Reservoir
from streampgs.reading.stream_input import StreamInput
from streampgs.reading.stream_rows import (
    StreamEncoder,
    StreamRows,
    empty_rows,
    file_batches,
    file_schema,
    rows_of_file,
)
from streampgs.reading.window import RowShape, Window

Ints = NDArray[np.int64]
RESERVOIR, WINDOW, WAITING = 0, 1, 2
"""Parts of a file."""
_NO_INTS = np.empty(0, np.int64)
_ROW_BYTES = 40  # its number, and where it begins and ends, as it came and in the order of visit


@dataclass(frozen=True)
class StreamSizes:
    """What decides which rows of a stream are trained on when: recorded with the run."""

    window_bytes: Positive
    """Of new rows."""
    replay: Annotated[float, Meta(ge=0, le=MOST_REPLAY)]
    """Rows from the reservoir for each new one."""
    reservoir_bytes: Count
    horizon: Positive
    """Rows that stand for an epoch where the weight of the regularizer is looked for."""

    def __post_init__(self) -> None:
        least = 2 * self.window_bytes if self.replay else 0  # room for the longest row of a window
        require(least <= self.reservoir_bytes, f"a reservoir of {self.reservoir_bytes} bytes")

    def row_bytes(self, shape: RowShape) -> int:
        """What a row of a window takes, beside its entries."""
        return _ROW_BYTES + 2 * shape.cell_bytes


def warm_up(shape: RowShape) -> None:
    """Compile, or load from the cache, the loops that windows of a stream need."""
    nothing = empty_rows(shape, 0)
    nothing.copied(shape)
    Reservoir(0, shape, 0, 0).offer(nothing)
    shuffled(np.uint64(0), 0)


class Room:
    """One of the two windows."""

    def __init__(self, sizes: StreamSizes, shape: RowShape) -> None:
        self.sizes, self.shape = sizes, shape
        self.window = Window()
        self._row_bytes = sizes.row_bytes(shape)
        most = int((1.0 + sizes.replay) * sizes.window_bytes)
        rows = most // self._row_bytes + 1
        # Memory is taken where it is written to: not more than the window holds, whether its rows are many or long.
        self._numbers, self._starts, self._stops = (np.empty(rows, np.int64) for _ in range(3))
        self._labels, self._weights = shape.cell_arrays(rows)
        self._indices, self._values = shape.entry_arrays(most // shape.entry_bytes + 1)
        self.begin()

    def begin(self) -> None:
        self.fresh = self.rows = self._entries = self._used = 0
        self.bad_numbers, self.bad_reasons = _NO_INTS, _NO_INTS

    def take(self, rows: StreamRows, first: int) -> int:
        """Copy new rows from `first` on, as many as fit; gives where those begin that do not."""
        lengths = rows.stops[first:] - rows.starts[first:]
        reached = self._used + np.cumsum(self._row_bytes + self.shape.entry_bytes * lengths)
        count = int(np.searchsorted(reached, self.sizes.window_bytes, side="right"))
        if count:
            self._used = int(reached[count - 1])
            self._append(rows, np.arange(first, first + count), rows.numbers[first : first + count])
            self.fresh += count
        elif len(lengths) and not self.fresh:
            raise DataError(
                f"row {rows.numbers[first]:,} of the stream has {lengths[0]:,} entries; a window holds "
                f"{self.sizes.window_bytes / 1e6:,.1f} MB",
                "start a new run with a larger --window",
            )
        return first + count

    def replay(self, reservoir: Reservoir, start: int, seed: int) -> None:
        """Rows drawn from the reservoir behind the new ones, none of them twice."""
        wanted = min(round(self.sizes.replay * self.fresh), reservoir.filled)
        if not wanted:
            return
        picks = permuted(key_of(seed, "replay", start), reservoir.filled, np.arange(wanted, dtype=np.int64))
        taken = np.cumsum(self._row_bytes + self.shape.entry_bytes * reservoir.lengths[picks])
        fitting = int(np.searchsorted(taken, int(self.sizes.replay * self.sizes.window_bytes), side="right"))
        self._append(reservoir.rows(), picks[:fitting], None)

    def _append(self, rows: StreamRows, picks: Ints, numbers: Ints | None) -> None:
        here = slice(self.rows, self.rows + len(picks))
        lengths = rows.stops[picks] - rows.starts[picks]
        stops = self._entries + np.cumsum(lengths)
        self._stops[here] = stops
        self._starts[here] = stops - lengths
        self._labels[here] = rows.labels[picks]
        if self.shape.weighted:
            self._weights[here] = rows.weights[picks]
        self._numbers[here] = 0 if numbers is None else numbers
        copy_rows(
            picks, rows.starts, rows.stops, rows.indices, rows.values, self._starts[here], self._indices, self._values
        )
        self.rows = here.stop
        self._entries = int(stops[-1]) if len(stops) else self._entries

    def finish(self, plan: WindowPlan) -> Window:
        """The window, its rows in the order of visit."""
        window, slots = self.window, shuffled(np.uint64(plan.shuffle_key), self.rows)
        for name, array in (("starts", self._starts), ("stops", self._stops), ("weights", self._weights)):
            if array.size:
                window.reserve(name, self.rows)[slots] = array[: self.rows]
        cells, several = np.empty((self.rows, self.shape.cells)), self.shape.labels > 1
        cells[slots] = self._labels[: self.rows]
        labels = np.ascontiguousarray(cells[:, : self.shape.labels])
        window.labels = labels if several else labels.ravel()
        window.offsets = cells[:, -1].copy() if self.shape.offset else np.empty(0)
        window.number_rows = partial(self._numbers_of, slots)
        window.seen = np.zeros(self.rows, np.bool_)
        window.seen[slots[self.fresh :]] = True
        window.values = self._values[: self._entries]
        window.indices = self._indices[: self._entries if self.shape.sparse else 0]
        window.plan, window.rows, window.entries = plan, self.rows, self._entries
        window.largest_index = int(window.indices.max(initial=0)) if self._entries else -1
        if not self.shape.sparse and self.rows:
            window.largest_index = self._entries // self.rows - 1
        window.skipped = Counter(self.bad_reasons.tolist())
        return window

    def _numbers_of(self, slots: Ints) -> Ints:
        """Of the window's rows; those that are replayed have none."""
        numbers = np.empty(len(slots), np.int64)
        numbers[slots[: self.fresh]] = self._numbers[: self.fresh]
        numbers[slots[self.fresh :]] = -1
        return numbers

    def contents(self, first: int, stop: int) -> StreamRows:
        """Rows as they came: the new ones, then those from the reservoir."""
        cut = slice(first, stop)
        return StreamRows(
            0, self._numbers[cut], self._starts[cut], self._stops[cut], self._labels[cut],
            self._weights[cut] if self.shape.weighted else self._weights, self._indices, self._values,
            _NO_INTS, _NO_INTS,
        )  # fmt: skip

    def leave_out(self, numbers: Ints, reasons: Ints) -> None:
        if len(numbers):
            self.bad_numbers = np.concatenate([self.bad_numbers, numbers])
            self.bad_reasons = np.concatenate([self.bad_reasons, reasons])

    def restore(self, parts: Iterable[StreamRows], fresh: int) -> None:
        self.begin()
        for rows in parts:
            self._append(rows, np.arange(len(rows)), rows.numbers)
        self.fresh = fresh


@dataclass
class _Waiting:
    """Rows that have come, from `first` on in no window yet."""

    rows: StreamRows
    first: int = 0


class StreamWindows:
    def __init__(
        self, source: StreamInput, encoder: StreamEncoder, sizes: StreamSizes, seed: int, cursor: Cursor
    ) -> None:
        """`cursor`: where the first window begins, unless there is a file to restore from."""
        self._source = source
        self._stopping = threading.Event()
        source.stop_when(self._stopping.is_set)
        self._encoder = encoder
        self.sizes = sizes
        self._seed = seed
        self._cursor = cursor.at_row(0)
        self.shape = encoder.shape
        longest = sizes.window_bytes
        self._reservoir = Reservoir(seed, self.shape, sizes.reservoir_bytes, longest) if sizes.replay else None
        self._rooms = (Room(sizes, self.shape), Room(sizes, self.shape))
        self._pending: Room | None = None
        """The window that is to be offered to the reservoir next."""
        self._filling = self._rooms[0]
        """The one behind it: empty, on its way or complete."""
        self._waiting: deque[_Waiting] = deque()
        self._reached = 0
        """Rows of the stream that are in windows."""
        self._released: queue.SimpleQueue[Window | None] = queue.SimpleQueue()
        self._ready = ReadyWindows()
        self._turns = threading.Condition()
        self._current: Window | None = None
        """The window that is trained on."""
        self._thread = threading.Thread(target=self._run, name="streampgs-reader", daemon=True)
        self.closed = False

    def start(self) -> None:
        self._thread.start()

    @property
    def seconds_waiting(self) -> float:
        return self._ready.seconds_waiting

    def next(self, stop: StopAsked) -> Window | None:
        window = self._ready.next(stop)
        self._current = window or self._current
        return window

    def release(self, window: Window) -> None:
        self._released.put(window)

    def close(self) -> None:
        """Stop reading. What has come of the stream is there to be saved."""
        self._stopping.set()
        self._released.put(None)
        if self._thread.is_alive():
            self._thread.join()
        if not self.closed:
            self.closed = True
            self._encode_the_rest()

    def _encode_the_rest(self) -> None:
        """What was read is kept as rows, but for those that cannot be used: these shall be met again."""
        self._waiting = deque(_Waiting(waiting.rows.copied(self.shape), waiting.first) for waiting in self._waiting)
        with suppress(DataError):
            for piece in self._source.rest(self._encoder.piece_rows):
                self._waiting.append(_Waiting(self._encoder.rows(*piece).copied(self.shape)))

    # For a checkpoint.

    @property
    def taken(self) -> int:
        """Rows of the stream that a file would hold, or the model has seen: the next session begins behind them."""
        if self.closed and self._waiting:
            return self._waiting[-1].rows.stop
        if self.closed:
            return self._reached
        return self._pending_end

    @property
    def _pending_end(self) -> int:
        if self._pending is None or self._pending.window.plan is None:
            return 0
        return self._pending.window.plan.next.position

    def save(self, write: Callable[[Iterator[pa.RecordBatch], pa.Schema, dict[str, Any]], None]) -> None:
        """Give the batches and the record of a file to `write`. Until it is closed: as of the window that is trained on,
        without what has come behind it."""
        with self._turns:
            self._turns.wait_for(self._is_pending_current)
            waiting = self._rows_waiting() if self.closed else []
            record = {
                "taken": self.taken,
                "skipped": [
                    [int(number), int(reason)]
                    for rows in waiting
                    for number, reason in zip(rows.bad_numbers, rows.bad_reasons, strict=True)
                ],
                "window": self._window_record(),
                "reservoir": self._reservoir.record() if self._reservoir is not None else None,
            }
            write(self._batches(waiting), file_schema(self.shape), record)

    def _is_pending_current(self) -> bool:
        """Whether what came before the window that is trained on is in the reservoir: it soon is."""
        pending = None if self._pending is None else self._pending.window
        return not self._thread.is_alive() or self._current is None or pending is self._current

    def _window_record(self) -> dict[str, Any] | None:
        room = self._pending
        if room is None or room.window.plan is None:
            return None
        plan = room.window.plan
        skipped = {str(reason): count for reason, count in room.window.skipped.items()}
        ends = {"start": plan.start.position, "next": plan.next.position}
        return {**ends, "fresh": room.fresh, "skipped": skipped}

    def _batches(self, waiting: list[StreamRows]) -> Iterator[pa.RecordBatch]:
        if self._reservoir is not None:
            yield from file_batches(self._reservoir.rows(), RESERVOIR, self.shape)
        if self._pending is not None:
            yield from file_batches(self._pending.contents(0, self._pending.rows), WINDOW, self.shape)
        for rows in waiting:
            yield from file_batches(rows, WAITING, self.shape)

    def _rows_waiting(self) -> list[StreamRows]:
        """Those in the window behind the pending one, and those in no window."""
        room = self._filling
        found = [room.contents(0, room.fresh)]
        found[0].bad_numbers, found[0].bad_reasons = room.bad_numbers, room.bad_reasons
        for waiting in self._waiting:
            rows = waiting.rows.rows(waiting.first, len(waiting.rows))
            left = waiting.rows.bad_numbers >= self._reached
            rows.bad_numbers, rows.bad_reasons = waiting.rows.bad_numbers[left], waiting.rows.bad_reasons[left]
            found.append(rows)
        return found

    def restore(self, record: dict[str, Any], batches: Iterator[pa.RecordBatch], cursor: Cursor) -> None:
        """Before the start: go on at the cursor with what a file holds."""
        nothing: tuple[int, Iterator[StreamRows]] = (-1, iter(()))
        parts = (rows_of_file(batch, self.shape) for batch in batches if batch.num_rows)
        groups = ((part, (rows for _, rows in group)) for part, group in groupby(parts, key=itemgetter(0)))
        found, rows = next(groups, nothing)
        for part, take in (
            (RESERVOIR, self._restore_reservoir), (WINDOW, self._restore_window), (WAITING, self._restore_waiting)
        ):  # fmt: skip
            take(record, rows if found == part else iter(()), cursor)
            if found == part:
                found, rows = next(groups, nothing)

    def _restore_reservoir(self, record: dict[str, Any], parts: Iterator[StreamRows], cursor: Cursor) -> None:
        if self._reservoir is not None:
            self._reservoir.restore(record["reservoir"], parts)

    def _restore_window(self, record: dict[str, Any], parts: Iterator[StreamRows], cursor: Cursor) -> None:
        if record["window"] is None:
            return
        start, following = (replace(cursor, position=record["window"][end], row=0) for end in ("start", "next"))
        if cursor.position not in (start.position, following.position):
            raise RunError("the reservoir's file is not that of the checkpoint", "restore both from a copy")
        room = self._rooms[0]
        room.restore(parts, record["window"]["fresh"])
        window = room.finish(self._plan_between(start, following))
        window.skipped = Counter({int(reason): count for reason, count in record["window"]["skipped"].items()})
        self._pending, self._filling = room, self._rooms[1]
        self._cursor, self._reached = following, following.position
        if cursor.position == start.position:
            self._ready.put(window)
        else:
            self._released.put(window)  # it was trained on to its end

    def _restore_waiting(self, record: dict[str, Any], parts: Iterator[StreamRows], cursor: Cursor) -> None:
        blocks = [rows.copied(self.shape) for rows in parts]
        bad = np.array(record["skipped"], np.int64).reshape(-1, 2)
        blocks.append(empty_rows(self.shape, record["taken"]))
        reached = self._reached
        for rows, following in zip(blocks, [*blocks[1:], None], strict=True):
            rows.stop = int(following.numbers[0]) if following is not None and len(following) else record["taken"]
            own = bad[(bad[:, 0] >= reached) & (bad[:, 0] < rows.stop)]
            rows.bad_numbers, rows.bad_reasons, reached = own[:, 0], own[:, 1], rows.stop
            self._waiting.append(_Waiting(rows))

    # The thread.

    def _run(self) -> None:
        try:
            while (window := self._fill()) is not None:
                self._ready.put(window)
                if not self._turn():
                    return
            if self._source.fault is not None:
                raise self._source.fault
            self._ready.put(None)
        except Stopped:
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)

    def _turn(self) -> bool:
        """Offer the window before the one just filled to the reservoir, once it was trained on; its room is free then.
        False on a stop."""
        if self._pending is not None and self._released.get() is None:
            return False
        with self._turns:
            free = self._rooms[1] if self._pending is None else self._pending
            if self._pending is not None and self._reservoir is not None:
                self._reservoir.offer(self._pending.contents(0, self._pending.fresh))
            self._pending = self._filling
            self._turns.notify_all()
        free.begin()
        self._filling = free
        return True

    def _fill(self) -> Window | None:
        """The next window; None when there are no rows left, nor any that were skipped."""
        room, full = self._filling, False
        while not full and (waiting := self._next_rows()) is not None:
            rows, before = waiting.rows, self._reached
            waiting.first = room.take(rows, waiting.first)
            full = waiting.first < len(rows)
            self._reached = int(rows.numbers[waiting.first]) if full else rows.stop
            between = (rows.bad_numbers >= before) & (rows.bad_numbers < self._reached)
            room.leave_out(rows.bad_numbers[between], rows.bad_reasons[between])
            if not full:
                self._waiting.popleft()
        if self._reached == self._cursor.position:
            return None
        if self._reservoir is not None:
            room.replay(self._reservoir, self._cursor.position, self._seed)
        return room.finish(self._plan())

    def _plan(self) -> WindowPlan:
        start = self._cursor
        self._cursor = replace(start, position=self._reached)
        return self._plan_between(start, self._cursor)

    def _plan_between(self, start: Cursor, following: Cursor) -> WindowPlan:
        nothing = Pieces(_NO_INTS, _NO_INTS, _NO_INTS)
        return WindowPlan(start, following, nothing, key_of(self._seed, "stream", start.position), 1)

    def _next_rows(self) -> _Waiting | None:
        if not self._waiting:
            piece = self._source.next_piece(self._encoder.piece_rows)
            if piece is None:
                return None
            self._waiting.append(_Waiting(self._encoder.rows(*piece)))
        return self._waiting[0]
