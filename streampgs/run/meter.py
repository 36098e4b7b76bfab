"""Rows and seconds of a run, and the status and the report that are made of them."""

from __future__ import annotations

import time
from collections import deque

from streampgs.base.checks import Count, decode
from streampgs.base.stage import Bundle
from streampgs.data.source import Source
from streampgs.engine.worker import Worker
from streampgs.options.commands import Limits
from streampgs.order.arrivals import owed_until
from streampgs.run.memory import rss_bytes
from streampgs.run.models import Models
from streampgs.run.report import Status

_WINDOW_SECONDS = 30.0
_SAMPLE_SECONDS = 0.25
_FEWEST_SECONDS = 3.0


class Pace:
    """Rows per second over the last half minute. It is unknown for the first seconds: the first call of a loop may compile
    it, and the first window waits for a decoder."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        """Seconds and rows, oldest first."""

    def add(self, now: float, rows: int) -> None:
        """`rows` are trained on at the time `now`. The first sample follows the first call of the engine."""
        if self._samples and now - self._samples[-1][0] < _SAMPLE_SECONDS:
            return
        self._samples.append((now, rows))
        while now - self._samples[0][0] > _WINDOW_SECONDS and len(self._samples) > 2:
            self._samples.popleft()

    def restart(self) -> None:
        """The time until the next sample does not count: training waited for new shards."""
        self._samples.clear()

    def rows_per_second(self) -> float | None:
        if not self._samples:
            return None
        (began, before), (now, rows) = self._samples[0], self._samples[-1]
        return (rows - before) / (now - began) if now - began >= _FEWEST_SECONDS else None


class Meter:
    name = "meter"

    def __init__(self) -> None:
        self.rows = 0
        """Trained on, in all sessions of the run."""
        self.seconds_training = 0.0
        self._waited = 0.0
        """Seconds of waiting for sources that are closed."""
        self._source: Source | None = None
        self._start = (0, 0.0)
        """Rows and seconds when this session started."""
        self._pace = Pace()

    @property
    def seconds_waiting(self) -> float:
        return self._waited + (self._source.seconds_waiting if self._source is not None else 0.0)

    @property
    def seconds(self) -> float:
        return self.seconds_training + self.seconds_waiting

    def watch(self, source: Source) -> None:
        """Count the seconds of waiting for this source from now on."""
        self._waited, self._source = self.seconds_waiting, source
        self._pace.restart()

    def add(self, rows: int, began: float) -> None:
        """Rows that were trained on since `began`."""
        now = time.perf_counter()
        self.seconds_training += now - began
        self.rows += rows
        self._pace.add(now, self.rows)

    def state(self) -> Bundle:
        return Bundle(
            {
                "rows": self.rows,
                "seconds_training": self.seconds_training,
                "seconds_waiting": self.seconds_waiting,
            }
        )

    def restore(self, bundle: Bundle) -> None:
        values = bundle.values
        self.rows = decode(Count, values["rows"])
        self.seconds_training = decode(float, values["seconds_training"])
        self._waited = decode(float, values["seconds_waiting"])
        self._start = self.rows, self.seconds

    @property
    def rows_this_call(self) -> int:
        return self.rows - self._start[0]

    def rows_per_second(self) -> float:
        """In this session."""
        rows, seconds = self._start
        return (self.rows - rows) / (self.seconds - seconds) if self.seconds > seconds else 0.0

    def status(self, models: Models, worker: Worker, limits: Limits) -> Status:
        loss, accuracy = models.shown()
        update = worker.source.update_pass(worker.cursor)
        rows = worker.source.update_rows(worker.cursor, worker.window)
        return Status(
            t=models.lanes.steps,
            rows=self.rows,
            epoch=worker.cursor.epoch,
            epoch_fraction=worker.epochs - worker.cursor.epoch,
            rows_per_second=self._pace.rows_per_second() or self.rows_per_second(),
            loss=loss,
            accuracy=accuracy,
            gap=models.gap(),
            lanes=len(models.lanes),
            update=None if update is None else f"pass {update.number + 1} of {update.passes + update.holds_out}",
            fraction=worker.epochs - worker.cursor.epoch if rows is None else rows[0] / max(1.0, rows[1]),
            seconds=self.seconds,
            seconds_left=self._seconds_left(worker, limits),
            rss_bytes=rss_bytes(),
        )

    def _seconds_left(self, worker: Worker, limits: Limits) -> float | None:
        speed = self._pace.rows_per_second()
        estimates = []
        if limits.epochs is not None and limits.relative_gap is None and speed:
            done, total = worker.source.update_rows(worker.cursor, worker.window) or (0.0, 0.0)
            epochs = max(0.0, max(limits.epochs, owed_until(worker.cursor)) - worker.epochs)
            estimates.append((epochs * worker.source.epoch_rows + total - done) / speed)
        if limits.rows is not None and speed:
            estimates.append((limits.rows - self.rows) / speed)
        if limits.seconds is not None:
            estimates.append(limits.seconds - self.seconds)
        return max(0.0, min(estimates)) if estimates else None
