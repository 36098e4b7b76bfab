"""The training loop: windows in, steps, and after each of them a look at limits, marks and the clock."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext

from streampgs.engine.engine import Engine
from streampgs.engine.worker import Worker
from streampgs.learn.lane_spec import LaneSpec
from streampgs.options.commands import MOST_PASSES_OF_A_SOLVER, Limits
from streampgs.order.cursor import Place
from streampgs.reading.window import Window
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.report import StopRequest

LOOK, CONVERGED, END_OF_STREAM = "look", "converged", "end of stream"
"""The reasons to stop: a place where new shards may join, more epochs that would hardly change the model, no more rows."""
# A call of the engine is this much work: short enough for Ctrl-C, long enough to cost nothing. Targets are compared where
# such stretches end, which are fixed rows of a window.
_STRETCH_ROWS = 8192
_STRETCH_ENTRIES = 1 << 21
_ROWS_BEFORE_TARGETS = 1000


def used_up(limits: Limits, meter: Meter) -> str | None:
    """The limit that is reached, and that new rows do not move."""
    if limits.rows is not None and meter.rows >= limits.rows:
        return "rows"
    if limits.seconds is not None and meter.seconds >= limits.seconds:
        return "seconds"
    return None


class Loop(ABC):
    """Training on windows in a fixed order. A run overrides what it does before and after a stretch of rows."""

    def __init__(self, models: Models, meter: Meter, stop: StopRequest) -> None:
        self.models, self.meter, self.stop = models, meter, stop
        self.until: Place | None = None
        """Where to stop to look for new shards."""

    @property
    @abstractmethod
    def worker(self) -> Worker: ...

    @property
    @abstractmethod
    def limits(self) -> Limits: ...

    def step(self) -> AbstractContextManager[None]:
        """The context of all that changes the state."""
        return nullcontext()

    def prepare(self, window: Window) -> Window:
        """The rows of a new window, as the solver takes them."""
        return self.models.prepare(window, self.worker.source.epoch_rows, self.meter.rows)[0]

    def judge(self, window: Window, row: int) -> LaneSpec | None:
        """Called before each stretch of rows. The winner, if this has ended the race of the candidates."""
        with self.step():
            return self.models.judge(window, row, self.meter.rows, self.worker.source.epoch_rows)

    def after_stretch(self) -> None:
        """Called after each stretch of rows."""

    def run(self) -> str:
        """Train until a limit or a stop, and return the reason."""
        while True:
            window = self.worker.open(self.stop)
            with self.step():
                self._engine.reach_epoch(self.worker.cursor.epoch)  # the last rows of an epoch may all be bad
            self._reach()
            if window is None:
                return self.stop.reason or self.reached() or "epochs"
            reached = self._train_on(self.prepare(window))
            if reached is not None:
                return reached
            self.worker.release()

    def _train_on(self, window: Window) -> str | None:
        """The reason to end, or None when the window is used up."""
        stretch, row = self._stretch(window), self.worker.cursor.row
        by_epochs, last_rows = self.models.by_passes, self.models.last_rows(window)
        while row < len(window):
            self.judge(window, row)
            end = window.end_of_epoch(row) if by_epochs else len(window)
            until = min(end, (row // stretch + 1) * stretch)
            if self.models.next_mark is not None:
                until = min(until, row + self.models.next_mark - self.meter.rows)
            if last_rows is not None and row < last_rows:
                until = min(until, last_rows)
            at_stretch_end = True
            if self.limits.rows is not None:
                last = row + max(1, self.limits.rows - self.meter.rows)
                at_stretch_end = until <= last
                until = min(until, last)
            with self.step():
                began = time.perf_counter()
                until, rows = self.models.lineages.advance(window, row, until, end)
                converged = by_epochs and self._engine.reach_epoch(window.epoch_at(until))
                self.meter.add(rows, began)
                if last_rows is not None and row < last_rows <= until:
                    self.models.measure(window, until)
                self.worker.advance_to(until)
                if until == len(window):
                    self.models.end_window(window, self.meter.rows)
                    self._reach()
            row = until
            reached = self.reached(at_stretch_end)
            if reached in (None, LOOK) and converged and not self._is_choosing():
                reached = CONVERGED
            self.after_stretch()
            if reached is not None:
                return reached
        return self.reached()

    def _is_choosing(self) -> bool:
        return self.models.lanes.hold_out()

    @property
    def _engine(self) -> Engine:
        """The engine of the lanes that the run began with: a solver that needs whole epochs has no updates, and so no others."""
        return self.models.lineages.engines[0]

    def _reach(self) -> None:
        """An update may be over."""
        self.models.lineages.reach(self.worker.source.update_pass(self.worker.cursor))

    def _stretch(self, window: Window) -> int:
        """Rows of a call of the engine: whole steps."""
        batch = self.models.form.options.batch
        mean_entries = window.entries / max(1, window.starts.size)
        return batch * max(1, int(min(_STRETCH_ROWS, _STRETCH_ENTRIES / max(1.0, mean_entries))) // batch)

    def reached(self, at_stretch_end: bool = False) -> str | None:
        """The limit that is reached, or the stop that was asked for."""
        limits, rows, cursor = self.limits, self.meter.rows, self.worker.cursor
        total = used_up(limits, self.meter)
        if self.stop.reason is not None:
            return self.stop.reason
        if self.until is not None and cursor.place >= self.until and total is None:
            return LOOK
        if limits.epochs is not None and self.worker.source.has_done(cursor, limits.epochs):
            return "epochs"
        if total is not None:
            return total
        if self._has_converged_before():
            return CONVERGED
        may_end = at_stretch_end and not self.models.lineages.in_update
        if self.models.started and may_end and rows >= _ROWS_BEFORE_TARGETS:
            return self._target_reached()
        return None

    def _has_converged_before(self) -> bool:
        """Whether a solver of whole passes has converged on the present rows with the present sigma, and the user has not
        asked for more epochs."""
        cursor, most = self.worker.cursor, self.limits.relative_gap
        if not (self.models.by_passes and self.models.started and cursor.begins_epoch and cursor.epoch > 0):
            return False
        shards_changed = any(arrival.place == cursor.place for arrival in cursor.arrivals)
        if shards_changed or self.models.changes_sigma or self._is_choosing():
            return False
        if most is not None:
            gap = self.models.relative_gap()
            return gap is not None and gap <= most
        return self.limits.epochs == MOST_PASSES_OF_A_SOLVER and self.models.lanes.have_converged()

    def _target_reached(self) -> str | None:
        limits = self.limits
        if limits.target_accuracy is not None:
            accuracy = self.models.accuracy_for(limits.target_accuracy, self.meter.rows)
            if accuracy is not None and accuracy >= limits.target_accuracy:
                return "target-accuracy"
        if limits.target_gap is not None:
            gap = self.models.gap()
            if gap is not None and gap <= limits.target_gap:
                return "target-gap"
        return None
