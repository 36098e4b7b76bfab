"""Windows of a stream: as many new rows as fit, in the order of the stream, mixed with rows drawn from the reservoir. Which
rows make up a window depends on the rows before it and on nothing else.

There are two windows, as for shards: while one is trained on, a thread fills the other. Window n draws from the sample of
all windows before n - 1: while a window is trained on, the reservoir does not change, so that a checkpoint can be written.

A checkpoint has the reservoir, the window that will be offered to it next, and, when reading has ended, the rows that were
read after that window: the next session trains on them before it reads more.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import DataError
from streampgs.base.stage import Bundle
from streampgs.kernels.randomness import key_of, shuffled
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import WindowSpan
from streampgs.reading.blocks import Stopped
from streampgs.reading.mixed_window import MixedWindow, StreamSizes
from streampgs.reading.prefetch import ReadyWindows, StopAsked
from streampgs.reading.reservoir import Reservoir
from streampgs.reading.stream_input import StreamInput
from streampgs.reading.stream_rows import StreamEncoder, StreamRows, rows_of_state, rows_state
from streampgs.reading.stream_state import check_waiting, check_window, part_of, rows_taken
from streampgs.reading.window import RowShape, Window

Ints = NDArray[np.int64]


def warm_up(shape: RowShape) -> None:
    """Compile, or load from the cache, the loops that windows of a stream need."""
    nothing = StreamRows.with_memory_for(shape, 0, 0)
    nothing.copied(shape)
    Reservoir(0, shape, 0, 0).offer(nothing)
    shuffled(np.uint64(0), 0)


class StreamWindows:
    def __init__(
        self, source: StreamInput, encoder: StreamEncoder, sizes: StreamSizes, seed: int, cursor: Cursor
    ) -> None:
        """`cursor`: where training begins: at the start of a window, or inside of the window that `restore` brings back."""
        self._source = source
        self._stopping = threading.Event()
        source.stop_when(self._stopping.is_set)
        self._encoder = encoder
        self.sizes = sizes
        self._seed = seed
        self._cursor, self._row = cursor.at_row(0), cursor.row
        self.shape = encoder.shape
        longest = sizes.window_bytes
        self._reservoir = Reservoir(seed, self.shape, sizes.reservoir_bytes, longest) if sizes.replay else None
        self._mixed = (MixedWindow(sizes, self.shape), MixedWindow(sizes, self.shape))
        self._pending: MixedWindow | None = None
        """The window that is to be offered to the reservoir next."""
        self._filling = self._mixed[0]
        """The one after it: empty, being filled or complete."""
        self._waiting: deque[StreamRows] = deque()
        """Rows that were read."""
        self._used = 0
        """The number of rows of the first of these blocks that are in windows."""
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
        """Stop reading. The rows that were read are kept for a checkpoint."""
        self._stopping.set()
        self._released.put(None)
        if self._thread.is_alive():
            self._thread.join()
        if not self.closed:
            self.closed = True
            self._encode_the_rest()

    def _encode_the_rest(self) -> None:
        """Rows that were read are kept, except from the first one on that is an error: it will be read again."""
        self._waiting = deque(rows.copied(self.shape) for rows in self._waiting)
        with suppress(DataError):
            for batch in self._source.rest(self._encoder.batch_rows):
                self._waiting.append(self._encoder.rows(*batch).copied(self.shape))

    # For a checkpoint.

    @property
    def taken(self) -> int:
        """Rows of the stream that a checkpoint would hold or that the model has seen: the next session begins after
        them."""
        if self.closed and self._waiting:
            return self._waiting[-1].stop
        if self.closed:
            return self._reached
        if self._pending is None or self._pending.window.plan is None:
            return 0
        return self._pending.window.plan.next.position

    def state(self) -> Bundle:
        """As of the window that is trained on; once reading has ended, with all rows that were read after it. The arrays
        are views, which do not change before the next call of `release`."""
        with self._turns:
            self._turns.wait_for(self._is_pending_current)
        nothing = StreamRows.with_memory_for(self.shape, 0, 0)
        waiting = self._rows_waiting() if self.closed else []
        window = [] if self._pending is None else [self._pending.contents(0, self._pending.rows)]
        bundle = Bundle({"taken": self.taken, "window": self._window_values(), "reservoir": None})
        for part, blocks in (("window", window), ("waiting", waiting)):
            arrays = rows_state([*blocks, nothing])
            bundle.joined.update({f"{part}.{name}": array for name, array in arrays.items()})
        if self._reservoir is not None:
            reservoir = self._reservoir.state()
            bundle.values["reservoir"] = reservoir.values
            bundle.arrays.update({f"reservoir.{name}": array for name, array in reservoir.arrays.items()})
        return bundle

    def _is_pending_current(self) -> bool:
        """Whether the window before the one that is trained on has reached the reservoir: it soon has."""
        pending = None if self._pending is None else self._pending.window
        return not self._thread.is_alive() or self._current is None or pending is self._current

    def _window_values(self) -> dict[str, Any] | None:
        pending = self._pending
        if pending is None or pending.window.plan is None:
            return None
        plan = pending.window.plan
        skipped = {str(reason): count for reason, count in pending.window.skipped.items()}
        return {
            "start": plan.start.position, "next": plan.next.position, "fresh": pending.fresh, "skipped": skipped
        }  # fmt: skip

    def _rows_waiting(self) -> list[StreamRows]:
        """Rows of the window after the pending one, and rows of no window yet."""
        filling = self._filling
        found = [filling.contents(0, filling.fresh)]
        found[0].bad_numbers, found[0].bad_reasons = filling.bad_numbers, filling.bad_reasons
        for place, block in enumerate(self._waiting):
            rows = block.rows(0 if place else self._used, len(block))
            left = block.bad_numbers >= self._reached
            rows.bad_numbers, rows.bad_reasons = block.bad_numbers[left], block.bad_reasons[left]
            found.append(rows)
        return found

    def restore(self, bundle: Bundle) -> None:
        """Before the start: continue at the cursor that was given."""
        taken = rows_taken(bundle)
        require(
            (bundle.values["reservoir"] is None) == (self._reservoir is None), "a reservoir where none is used, or none"
        )
        if self._reservoir is not None:
            self._reservoir.restore(
                Bundle(bundle.values["reservoir"], part_of(bundle, "reservoir")), self._encoder.check
            )
        self._restore_window(bundle.values["window"], rows_of_state(part_of(bundle, "window"), self.shape, 0))
        waiting = rows_of_state(part_of(bundle, "waiting"), self.shape, taken)
        check_waiting(waiting, self._reached, taken)
        self._encoder.check(waiting)
        if taken > self._reached:
            self._waiting.append(waiting)

    def _restore_window(self, saved: dict[str, Any] | None, rows: StreamRows) -> None:
        if saved is None:
            require(not len(rows) and self._cursor.position == self._row == 0, "no window where one is used")
            return
        check_window(saved, rows, self.sizes, self.shape, self._cursor.position, self._row)
        self._encoder.check(rows)
        start, following = (replace(self._cursor, position=saved[end]) for end in ("start", "next"))
        mixed = self._mixed[0]
        mixed.restore(rows, saved["fresh"])
        window = mixed.finish(self._plan_between(start, following))
        window.skipped = Counter({int(reason): count for reason, count in saved["skipped"].items()})
        used_up = self._cursor.position == following.position
        self._pending, self._filling = mixed, self._mixed[1]
        self._cursor, self._reached = following, following.position
        if used_up:
            self._released.put(window)
        else:
            self._ready.put(window)

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
        """Offer the window before the one just filled to the reservoir, once it was trained on; its memory is free then.
        False on a stop."""
        if self._pending is not None and self._released.get() is None:
            return False
        with self._turns:
            free = self._mixed[1] if self._pending is None else self._pending
            if self._pending is not None and self._reservoir is not None:
                self._reservoir.offer(self._pending.contents(0, self._pending.fresh))
            self._pending = self._filling
            self._turns.notify_all()
        free.begin()
        self._filling = free
        return True

    def _fill(self) -> Window | None:
        """The next window; None when neither rows nor skipped rows are left."""
        filling, full = self._filling, False
        while not full and (rows := self._next_rows()) is not None:
            bad = int(np.searchsorted(rows.bad_numbers, self._reached))
            stop = filling.stop_of(rows, bad)
            self._used = filling.take(rows, self._used, int(np.searchsorted(rows.numbers, stop)))
            if self._used < len(rows):
                stop = min(stop, int(rows.numbers[self._used]))
            self._reached, full = stop, stop < rows.stop
            filling.leave_out(rows, bad, int(np.searchsorted(rows.bad_numbers, stop)))
            if not full:
                self._waiting.popleft()
                self._used = 0
        if self._reached == self._cursor.position:
            return None
        if self._reservoir is not None:
            filling.replay(self._reservoir, self._cursor.position, self._seed)
        window = filling.finish(self._plan())
        window.clipped, self._encoder.clipped = self._encoder.clipped, Counter()
        window.clipped_examples = self._encoder.examples
        return window

    def _plan(self) -> WindowSpan:
        start = self._cursor
        self._cursor = replace(start, position=self._reached)
        return self._plan_between(start, self._cursor)

    def _plan_between(self, start: Cursor, following: Cursor) -> WindowSpan:
        return WindowSpan(start, following, key_of(self._seed, "stream", start.position))

    def _next_rows(self) -> StreamRows | None:
        if not self._waiting:
            batch = self._source.next_batch(self._encoder.batch_rows)
            if batch is None:
                return None
            self._waiting.append(self._encoder.rows(*batch))
        return self._waiting[0]
