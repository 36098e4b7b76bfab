"""A run in this process: its stages, from a start or a resume to a limit or a stop."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from streampgs.checks import encode
from streampgs.data.budget import Forecast
from streampgs.data.findings import unused_columns
from streampgs.encoding.encoding import Encoding
from streampgs.engine.worker import Worker, cursor_in
from streampgs.errors import Diverged
from streampgs.options import Resources
from streampgs.order.cursor import Cursor
from streampgs.reading.window import Window
from streampgs.run.announcing import announce, tell
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.fitting import Fit
from streampgs.run.folder import RunFolder
from streampgs.run.history import CHOSEN, JUDGED, SIGMA, STOPPED
from streampgs.run.input import Input
from streampgs.run.log import Log
from streampgs.run.loop import LOOK, Loop
from streampgs.run.memory import rss_bytes
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.record import RunRecord
from streampgs.run.report import NOTHING_NEW, PAUSED, TRAINED, Report, Session, StopRequest
from streampgs.run.saver import Saver
from streampgs.run.words import (
    chosen_text,
    clipped_notes,
    cross_validated_text,
    judged_texts,
    nothing_to_do,
    resume_command,
)

_STATUS_SECONDS = 0.2
_METRICS_SECONDS = 5.0


class Trainer:
    def __init__(
        self, folder: RunFolder, data: Input, session: Session, stop: StopRequest, resources: Resources
    ) -> None:
        self.folder, self.observer, self.stop, self.resources = folder, session, stop, resources
        self.data = data
        self.models = Models(data.form)
        self.meter = Meter()
        self.saver = Saver(folder, session)
        self._log = Log(folder, session)
        self.worker: Worker | None = None
        self.forecast: Forecast | None = None
        self._process_bytes = 0
        self._due = [0.0, 0.0, 0.0]
        """When the last status, metrics and checkpoint were given."""

    def restore(self, checkpoint: Checkpoint) -> None:
        sections = checkpoint.sections
        if "lanes" in sections:  # of a stream there may be rows without a model
            self.models.lineages.restore_all(checkpoint)
            self.models.take_in(self.data.form)
            checkpoint.restore(self.models)
        checkpoint.restore(self.meter)
        self.worker = self._new_worker()
        checkpoint.restore(self.worker)
        before = self.data.record.as_of(sections["run"])
        changes_sigma = sections["models"].values["changes_sigma"]
        self.saver.restored(
            checkpoint.path, _key(self.meter.rows, cursor_in(sections["worker"]), before, changes_sigma)
        )

    def continue_on(self, data: Input) -> None:
        """Train on other data from now on: shards have come or gone."""
        before, form = self.data.form, data.form
        grown = form.encoding is not before.encoding or form.options.classes != before.options.classes
        self.data = data
        if grown:
            self.models.take_in(form)
        self.models.form = form
        worker, self.worker = self.worker, self._new_worker()
        if worker is not None:
            self.worker.continue_counts(worker)

    def _new_worker(self) -> Worker:
        worker = Worker(self.data.source(self.data.form.rules(self.models.features)), self.data.cursor)
        self.meter.watch(worker.source)
        return worker

    def train(self, looks_for_more: bool = False) -> Report:
        """Train until a limit or a stop; or, looking for more, to the end of the current epoch."""
        self.worker = worker = self.worker or self._new_worker()
        limits = self.data.record.limits
        until_epoch = worker.cursor.epoch + 1 if looks_for_more else None
        loop = Loop(self.models, self.meter, worker, self.saver, limits, self.stop, until_epoch)
        reached = loop.reached()
        if reached is not None and not (reached == self.stop.reason and worker.source.rows_taken is not None):
            if reached != self.stop.reason and not looks_for_more:
                self.observer.note(nothing_to_do(reached, limits, self.folder.path))
            self._save()
            return self.report(reached)
        epochs = [epoch for epoch in (limits.epochs, until_epoch) if epoch is not None]
        known = set(worker.clipped)
        stopped_by = self._run(loop, worker, min(epochs, default=None))
        clipped = {column: count for column, count in worker.clipped.items() if column not in known}
        tell([*self.data.remarks(worker.source), *self.models.remarks()], self.observer)
        if loop.updates and stopped_by == "epochs":
            self.observer.note(f"to train on all rows once more: {resume_command(self.folder.path, False)} --epochs +1")
        tell(clipped_notes(clipped, worker.clipped_examples), self.observer)
        self._save()
        report = self.report(stopped_by)
        if stopped_by != LOOK:
            taken = {} if report.stream_rows is None else {"stream_rows": report.stream_rows}
            self.event(STOPPED, by=stopped_by, epochs=report.epochs, accuracy=report.judged_accuracy, **taken)
        self._log.metrics({"event": "stopped", **report.record()})
        return report

    def _run(self, loop: Loop, worker: Worker, last_epoch: int | None) -> str:
        worker.source.prepare(last_epoch)
        self.models.warm_up()
        if self.forecast is None:
            self._process_bytes = rss_bytes() - self.models.nbytes
        self._due = [time.perf_counter()] * 3
        try:
            if self.models.changes_sigma:
                self._save()
            return loop.run(self._prepare, self._judge, self._after_stretch)
        except Diverged:
            raise
        except BaseException:
            self._save()
            raise
        finally:
            worker.source.close()

    # Called by the loop.

    def _prepare(self, window: Window) -> None:
        if self.models.started:
            self.models.refuse_too_wide(window)
        self._keep_before_update()
        # Shards that arrive before the first step replace this window: nothing of it may be saved until then.
        with self.saver.step():
            self._begin(window)

    def _keep_before_update(self) -> None:
        """The checkpoint from before an update is kept for some time: new data may turn out to be wrong."""
        assert self.worker is not None
        update, record = self.worker.source.update_pass(self.worker.cursor), self.data.record
        if update is None or not self.models.started:
            return
        begun = record.with_update(update.epoch, update.first_part, self.meter.rows)
        if begun is not record:
            self._save()
            self.data = self.data.with_record(begun)

    def _begin(self, window: Window) -> None:
        assert self.worker is not None
        begins = not self.models.started or self.models.changes_sigma
        before = self.models.prepare(window, self.worker.source.epoch_rows, self.meter.rows, self._fit.check)
        if before is not None:
            after = [candidate.sigma for candidate in self.models.race.candidates]
            self.event(SIGMA, before=before.sigma, after=after)
        update = self.worker.source.update_pass(self.worker.cursor)
        if self.forecast is None or (update is not None and not self.models.lineages.in_update):
            fit, observer = self._fit, self.observer
            self.forecast, choices = announce(self.models, self.data, fit, self.resources, window, update, observer)
            self._log.metrics({"event": "started", "rows": self.meter.rows, "choices": choices})
        row, epoch_rows = self.worker.cursor.row, self.worker.source.epoch_rows
        judged = self.models.lineages.prepare(window, update, row, self.meter.rows, epoch_rows)
        if judged is not None:
            self.event(JUDGED, judged=encode(judged))
            tell(judged_texts(judged), self.observer)
        if begins and self.models.race.progress.dropped:
            self.observer.note(cross_validated_text(self.models.race))
            self.event(CHOSEN, **(self.models.chosen() or {}))

    def _judge(self, window: Window, row: int) -> None:
        assert self.worker is not None
        with self.saver.step():
            winner = self.models.judge(window, row, self.meter.rows, self.worker.source.epoch_rows)
        if winner is not None:
            self.observer.note(f"after {self.meter.rows:,} rows {chosen_text(winner)} is the best of the candidates")
            self.event(CHOSEN, **(self.models.chosen() or {}))

    def _after_stretch(self) -> None:
        assert self.worker is not None
        now = time.perf_counter()
        # The certificate needs all features: with millions of them it is computed less often.
        if now - self._due[0] >= _STATUS_SECONDS * max(1.0, self.models.features / 1e6):
            self._due[0] = now
            status = self.meter.status(self.models, self.worker, self.data.record.limits)
            self.observer.status(status)
            if now - self._due[1] >= _METRICS_SECONDS:
                self._due[1] = now
                self._log.metrics({"event": "status", **asdict(status)})
        if now - self._due[2] >= self.resources.checkpoint_seconds:
            self._save()
            self._due[2] = time.perf_counter()

    @property
    def _fit(self) -> Fit:
        resumed = self.saver.checkpoint is not None
        return Fit(self.data.form, self.resources, self.data.forecast, self._process_bytes, resumed)

    # Saving and reporting.

    def _save(self) -> None:
        worker, models = self.worker, self.models
        assert worker is not None
        if not models.started and not worker.source.rows_taken:
            return
        record = self.data.record
        key = _key(self.meter.rows, worker.cursor, record, models.changes_sigma)
        self.saver.save(key, worker.source.has_unsaved, self.meter.rows, self._sections, record.kept)

    def _sections(self) -> dict[str, Any]:
        assert self.worker is not None
        stages = [*(self.models.stages() if self.models.started else [self.models]), self.meter, self.worker]
        return {"run": self.data.record.changes(), **{stage.name: stage.state() for stage in stages}}

    def place(self) -> tuple[int, int]:
        """Rows and steps."""
        return self.meter.rows, self.models.lanes.steps

    def event(self, kind: str, **facts: Any) -> None:
        self._log.event(kind, *self.place(), **{**self.data.facts(), **facts})

    def report(self, stopped_by: str) -> Report:
        """Of this call, as of now."""
        assert self.worker is not None
        total = self.forecast.total if self.forecast is not None else 0
        outcome = TRAINED if self.meter.rows_this_call else NOTHING_NEW
        if stopped_by == self.stop.reason:
            outcome = PAUSED
            if not self.meter.rows_this_call:
                resume = resume_command(self.folder.path, self.data.record.stream is not None)
                row = "next" if self.meter.rows else "first"
                self.observer.note(f"stopped by {stopped_by} before the {row} row; continue with: {resume}")
        report = self.meter.report(
            self.folder.path, self.models, self.worker, stopped_by, outcome, self.saver.checkpoint, total
        )  # fmt: skip
        return _with_findings(report, self.observer, self.data.form.encoding)


def _key(rows: int, cursor: Cursor, record: RunRecord, changes_sigma: bool) -> tuple[Any, ...]:
    """Equal for states that need not be saved again. New shards do not belong to the run before a row of them is trained on:
    a checkpoint from before their arrival stays as it is, so that a run can return to it."""
    retired = frozenset(span for arrival in cursor.arrivals for span in arrival.retired)
    return rows, retired, record.sources, changes_sigma


def _with_findings(report: Report, session: Session, encoding: Encoding | None) -> Report:
    left_out = {} if encoding is None else unused_columns(encoding.left_out)
    found = replace(session.found, ignored_columns={**left_out, **session.found.ignored_columns})
    return replace(report, found=found, notes=[*session.notes])
