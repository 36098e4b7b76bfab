"""What a run in training shows to its observer and logs: its choices before the first step, then its status."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from streampgs.data.budget import Forecast
from streampgs.engine.worker import Worker
from streampgs.options.commands import Limits, Resources
from streampgs.order.schedule import UpdatePass
from streampgs.reading.window import Window
from streampgs.run.fitting import Fit
from streampgs.run.lineages import bytes_besides
from streampgs.run.memory import peak_rss_bytes, rss_bytes
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.report import Session
from streampgs.run.saver import Log
from streampgs.run.shard_input import ShardInput
from streampgs.run.words import announced, few_blocks_hints, large_model_hints
from streampgs.selection.held_out import bytes_of_held_rows

_STATUS_SECONDS = 0.2
_STATUS_SHARE = 50.0  # a status takes at most one part in so many of the time
_SMALL_OBJECTS = 4 << 20  # plans, records and stacks of threads: measured while a process trained
_METRICS_SECONDS = 5.0


class Shown:
    def __init__(self, log: Log, session: Session, resources: Resources) -> None:
        self.forecast: Forecast | None = None
        """Once the choices were shown."""
        self._log, self._session, self._resources = log, session, resources
        self._process_bytes = self._reached_bytes = 0
        self._joined = ""
        """Shards that have joined and were not noted yet, in words."""
        self._searched = 0.0
        self._due = [0.0, 0.0]
        """When status and metrics are due."""

    def begin(self, models: Models) -> None:
        if self.forecast is None:
            self._process_bytes = rss_bytes() - models.nbytes + _SMALL_OBJECTS
            self._reached_bytes = peak_rss_bytes()
        now = time.perf_counter()
        self._due = [now + _STATUS_SECONDS, now + _METRICS_SECONDS]

    def fit(self, data: ShardInput, resumed: bool) -> Fit:
        return Fit(data.form, self._resources, data.forecast, self._process_bytes, resumed)

    def searched(self, share: float) -> None:
        """So much more of the search for values that were left open has been done."""
        self._searched += share
        if time.perf_counter() >= self._due[0]:
            self._due[0] = time.perf_counter() + _STATUS_SECONDS
            self._session.observer.searching(min(1.0, self._searched))

    def announce(
        self, data: ShardInput, models: Models, window: Window, update: UpdatePass | None, rows: int, resumed: bool
    ) -> None:
        """Show every choice before the first step. Before the first step of an update only check that it fits into memory."""
        racing = len(models.lanes) > 1 and models.race.next_mark is not None
        of_feature, of_window = bytes_besides(models.lineages, window, update, data.form.options.threads)
        of_window += bytes_of_held_rows(models.race, window)
        if models.maps.map is not None:
            of_window += models.maps.map.table_bytes
        forecast = self.fit(data, resumed).checked(
            models.lanes, max(models.features, models.expected_features), racing, of_feature, of_window
        )
        is_first, self.forecast = self.forecast is None, replace(forecast, reached=self._reached_bytes)
        if not is_first:
            return
        choices = announced(data, models, window, self.forecast)
        self._session.observer.choices(choices)
        self._log.metrics({"event": "started", "rows": rows, "choices": choices})
        self._session.tell(large_model_hints(self.forecast, self._resources.budget, data.form.encoding))
        self._session.tell(few_blocks_hints(data, window))

    def joined(self, text: str) -> None:
        """Shards have joined. Later in a call, what they say about the model is on the same line."""
        self.judged([])
        self._joined = text
        if self.forecast is None:
            self.judged([])

    def judged(self, texts: Sequence[str]) -> None:
        """Note the shards that have joined, and how well the model predicted their rows, if that is known."""
        joined, self._joined = self._joined, ""
        first = "; ".join(filter(None, [joined, *texts[:1]]))
        self._session.tell(filter(None, [first, *texts[1:]]))

    def status(self, meter: Meter, models: Models, worker: Worker, limits: Limits) -> None:
        """If it is time for it."""
        now = time.perf_counter()
        if now >= self._due[0]:
            status = meter.status(models, worker, limits)
            # The certificate needs all weights: with many of them it is computed less often.
            self._due[0] = now + max(_STATUS_SECONDS, _STATUS_SHARE * (time.perf_counter() - now))
            self._session.observer.status(status)
            if now >= self._due[1]:
                self._due[1] = now + _METRICS_SECONDS
                record: dict[str, Any] = {"event": "status", **asdict(status)}
                self._log.metrics(record)
