"""Two windows in turn: while one is used for training, a thread fills the other.

If a window is free before the other one is full, its groups are decoded already. So decoders are never idle at the end
of a window.
"""

from __future__ import annotations

import mmap
import queue
import threading
import time
from functools import partial
from typing import Protocol

from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, WindowPlan
from streampgs.reading.loader import WindowFiller
from streampgs.reading.window import Window, WindowMemory

_STOP_POLL_SECONDS = 0.1
_THREAD_ADDRESS_BYTES = 256 << 20
"""Address space, not memory: stacks and heaps of the reader and the decoders."""


class StopAsked(Protocol):
    reason: str | None


def _check_memory_for_threads() -> None:
    """Python waits forever for a thread that cannot start for lack of memory, so memory is checked in advance."""
    try:
        mmap.mmap(-1, _THREAD_ADDRESS_BYTES).close()
    except OSError as error:
        raise MemoryError("not enough memory for threads") from error


class Pipeline:
    """Windows in order, from a cursor on. An error is raised in place of the window in which it happened."""

    def __init__(self, filler: WindowFiller, schedule: Schedule, cursor: Cursor, last_epoch: int | None) -> None:
        self._filler = filler
        filler.last_epoch = last_epoch
        self._schedule = schedule
        self._last_epoch = last_epoch
        self._free: queue.SimpleQueue[WindowMemory | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Window | BaseException | None] = queue.SimpleQueue()
        self.seconds_waiting = 0.0
        self._begun: tuple[WindowPlan, WindowMemory] | None = None
        self._announced: Cursor | None = None
        memories = WindowMemory(), WindowMemory()
        self._memory_of = {memory.window: memory for memory in memories}
        for memory in memories:
            self._free.put(memory)
        _check_memory_for_threads()
        self._thread = threading.Thread(target=self._run, args=(cursor,), name="streampgs-reader", daemon=True)
        self._thread.start()

    def next(self, stop: StopAsked) -> Window | None:
        """The next window, to be returned with `release`; None after the last epoch, or on a stop request. Errors of the
        other thread are raised here."""
        began = time.perf_counter()
        try:
            while stop.reason is None:
                try:
                    item = self._ready.get(timeout=_STOP_POLL_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(item, BaseException):
                    raise item
                return item
            return None
        finally:
            self.seconds_waiting += time.perf_counter() - began

    def release(self, window: Window) -> None:
        self._free.put(self._memory_of[window])

    def close(self) -> None:
        self._filler.blocks.stop()
        self._free.put(None)
        self._thread.join()
        self._filler.close()

    def _run(self, cursor: Cursor) -> None:
        try:
            following = self._take(cursor, wait=True)
            while following is not None:
                plan, memory = following
                self._begun = None
                self._ready.put(self._filler.fill(plan, memory, partial(self._begin, plan.next)))
                following = self._begun or self._take(plan.next, wait=True)
        except BaseException as error:
            self._ready.put(error)

    def _begin(self, cursor: Cursor) -> None:
        """Announce the window after the one being filled, and start with it as soon as a window is free."""
        if self._announced != cursor and not self._ends_at(cursor):
            self._announced = cursor
            self._filler.announce(self._schedule.window(cursor))
        if self._begun is None:
            self._begun = self._take(cursor, wait=False)
            if self._begun is not None:
                self._filler.start(*self._begun)

    def _ends_at(self, cursor: Cursor) -> bool:
        """An update is completed, even if the limit is a lower one by now."""
        return self._last_epoch is not None and cursor.epoch >= self._last_epoch and not cursor.part

    def _take(self, cursor: Cursor, wait: bool) -> tuple[WindowPlan, WindowMemory] | None:
        """The plan at the cursor and free memory for it; None without a free window, or at the end."""
        if self._ends_at(cursor):
            if wait:
                self._ready.put(None)
            return None
        try:
            memory = self._free.get(wait)
        except queue.Empty:
            return None
        if memory is None:
            self._free.put(None)  # for the next call
            return None
        return self._schedule.window(cursor), memory
