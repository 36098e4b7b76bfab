"""A run in this process: its stages, from a start or a resume to a limit or a stop."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from streampgs.base.checks import encode
from streampgs.base.errors import Diverged
from streampgs.data.findings import Findings, unused_columns
from streampgs.data.refresh import Refreshed, Table
from streampgs.encoding.encoding import Encoding
from streampgs.engine.worker import Worker, cursor_in
from streampgs.learn.lane_spec import LaneSpec
from streampgs.options.commands import Limits, Resources
from streampgs.order.cursor import Cursor, Place
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.fitting import refuse_too_wide
from streampgs.run.folder import RunFolder
from streampgs.run.history import CHOSEN, JUDGED, SIGMA, STOPPED
from streampgs.run.lineages import digest_of, summary_of
from streampgs.run.loop import LOOK, Loop
from streampgs.run.memory import peak_rss_bytes
from streampgs.run.meter import Meter
from streampgs.run.models import Models
from streampgs.run.record import RunRecord
from streampgs.run.report import NOTHING_NEW, PAUSED, TRAINED, Report, Session, StopRequest
from streampgs.run.saved import RETURNED, returned_section
from streampgs.run.saver import Log, Saver
from streampgs.run.shard_input import ShardInput
from streampgs.run.shown import Shown
from streampgs.run.words import (
    chosen_text,
    clipped_notes,
    cross_validated_text,
    judged_texts,
    missed_gap,
    nothing_to_do,
    stopped_early,
)


class Trainer(Loop):
    def __init__(
        self, folder: RunFolder, data: ShardInput, session: Session, stop: StopRequest, resources: Resources
    ) -> None:
        super().__init__(Models(data.form), Meter(), stop)
        self.folder, self.session, self.resources, self.data = folder, session, resources, data
        self.saver = Saver(folder, session.observer)
        self._log = Log(folder, session)
        self._worker: Worker | None = None
        self.shown = Shown(self._log, session, resources)
        self._saved_at = 0.0
        """When a checkpoint was last due."""

    def restore(self, checkpoint: Checkpoint) -> None:
        sections = checkpoint.sections
        checkpoint.restore(self.models.maps, required=False)  # runs without a kernel have none
        self.models.lineages.restore_all(checkpoint)
        self.models.take_in(self.data.form)
        checkpoint.restore(self.models)
        checkpoint.restore(self.meter)
        checkpoint.restore(self.worker)
        before = self.data.record.as_of(sections["run"])
        changes_sigma = sections["models"].values["changes_sigma"]
        self.saver.restored(
            checkpoint.path, _key(self.meter.rows, cursor_in(sections["worker"]), before, changes_sigma)
        )

    @property
    def worker(self) -> Worker:
        """It reads the present data."""
        if self._worker is None:
            self._worker = Worker(self.data.source(self.models.rules_for(self.data.form)), self.data.table.cursor)
            self.meter.watch(self._worker.source)
        return self._worker

    @property
    def limits(self) -> Limits:
        return self.data.record.limits

    @property
    def cursor(self) -> Cursor:
        return self.data.table.cursor if self._worker is None else self._worker.cursor

    @property
    def table(self) -> Table:
        """The run's table, at the row that training has reached."""
        return replace(self.data.table, cursor=self.cursor)

    def continue_on(self, refreshed: Refreshed) -> None:
        """Train on other data from now on: shards have come or gone."""
        before, self.data = self.data.form, self.data.refreshed(self.folder, refreshed)
        form = self.data.form
        if form.encoding is not before.encoding or form.options.classes != before.options.classes:
            self.models.take_in(form)
        self.models.form = form
        worker, self._worker = self._worker, None
        if worker is not None:
            self.worker.continue_from(worker)
        self.report_growth(refreshed)

    def report_growth(self, refreshed: Refreshed) -> None:
        for kind, facts in refreshed.events:
            self.event(kind, **facts)
        self.shown.joined(refreshed.joined)

    def train(self, until: Place | None = None) -> Report:
        """Train until a limit or a stop, or until a place where new shards may join."""
        self.until = until
        worker, limits, reached = self.worker, self.limits, self.reached()
        if reached is not None:
            if reached != self.stop.reason and until is None:
                self.session.note(nothing_to_do(reached, limits, self.folder.path))
            self.save()
            return self.report(reached)
        last_epoch = limits.epochs
        if until is not None and until[1:] == (0, 0):
            last_epoch = until[0] if last_epoch is None else min(last_epoch, until[0])
        clipped_before = set(worker.counts.clipped)
        stopped_by = self._run(worker, last_epoch)
        self.session.tell(self.data.remarks(worker.source) + self.models.remarks() + _clipped(worker, clipped_before))
        self.save()
        return self.report(LOOK) if stopped_by == LOOK else self.ended(stopped_by)

    def ended(self, stopped_by: str) -> Report:
        """The report of training that has ended by a limit, a stop, or the end of a stream."""
        self.session.tell(missed_gap(self.models.gap(), stopped_by, self.data.record, self.folder.path))
        report = self.report(stopped_by)
        self.event(STOPPED, by=stopped_by, epochs=report.epochs, accuracy=report.judged_accuracy)
        return report

    def _run(self, worker: Worker, last_epoch: int | None) -> str:
        worker.source.prepare(last_epoch)
        self.models.warm_up(worker.source.epoch_rows)
        self.shown.begin(self.models)
        self._saved_at = time.perf_counter()
        try:
            if self.models.changes_sigma:
                self.save()
            return self.run()
        except Diverged:
            raise
        except BaseException:
            self.save()
            raise
        finally:
            worker.source.close()

    # The loop.

    def step(self) -> AbstractContextManager[None]:
        return self.saver.step()

    def prepare(self, window: Window) -> Window:
        self._keep_before_update()
        # Shards that arrive before the first step replace this window: nothing of it may be saved until then.
        with self.step():
            began = time.perf_counter()
            window = self.models.maps.of(self.data.form, window, not self.models.started)
            self.meter.add(0, began)
            if self.models.started:
                refuse_too_wide(self.models.lanes, window, self.data.form.options.threads)
            return self._begin(window)

    def _keep_before_update(self) -> None:
        """The checkpoint from before an update is kept for some time: new data may turn out to be wrong."""
        update, record = self.worker.source.update_pass(self.worker.cursor), self.data.record
        if update is None or not self.models.started:
            return
        begun = record.with_update(update.epoch, update.first_part, self.meter.rows)
        if begun is not record:
            self.save()
            self.data = replace(self.data, record=begun)

    def _begin(self, window: Window) -> Window:
        """The window as it is trained on."""
        begins = not self.models.started or self.models.changes_sigma
        resumed = self.saver.checkpoint is not None
        window, before = self.models.prepare(
            window,
            self.worker.source.epoch_rows,
            self.meter.rows,
            self.shown.fit(self.data, resumed).check,
            self.shown.searched,
        )
        if before is not None:
            self.event(SIGMA, before=before.sigma, after=[one.sigma for one in self.models.race.candidates])
        update = self.worker.source.update_pass(self.worker.cursor)
        if self.shown.forecast is None or (update is not None and not self.models.lineages.in_update):
            self.shown.announce(self.data, self.models, window, update, self.meter.rows, resumed)
        judged = self.models.lineages.prepare(window, update, self.worker.cursor.row, self.meter.rows)
        if judged is not None:
            self.event(JUDGED, judged=encode(judged))
        self.shown.judged([] if judged is None else judged_texts(judged))
        if begins and self.models.race.progress.dropped:
            self.session.note(cross_validated_text(self.models.race))
            self.session.tell(self.models.maps.notes())
            self.event(CHOSEN, **(self.models.chosen() or {}))
        return window

    def judge(self, window: Window, row: int) -> LaneSpec | None:
        winner = super().judge(window, row)
        if winner is not None:
            self.session.note(chosen_text(winner, self.meter.rows))
            self.event(CHOSEN, **(self.models.chosen() or {}))
        return winner

    def after_stretch(self) -> None:
        self.shown.status(self.meter, self.models, self.worker, self.limits)
        if time.perf_counter() - self._saved_at >= self.resources.checkpoint_seconds:
            self.save()
            self._saved_at = time.perf_counter()

    # Saving and reporting.

    def save(self) -> None:
        """Also before shards join that do not belong to the run until a row of them is trained on."""
        record = self.data.record
        if not self.models.started or record.trial == self.meter.rows:
            return  # a run on trial may have to return to the checkpoint as it is
        key = _key(self.meter.rows, self.worker.cursor, record, self.models.changes_sigma)
        self.saver.save(key, self.meter.rows, self._sections, record.kept)

    def accept(self) -> None:
        """The resume is no longer on trial."""
        self.data = replace(self.data, record=replace(self.data.record, trial=None))
        self.save()

    def _sections(self) -> dict[str, Any]:
        stages = [*self.models.stages(), self.meter, self.worker]
        own = {"run": self.data.record.changes(), RETURNED: returned_section(self.models.lineages)}
        return {**own, **{stage.name: stage.state() for stage in stages}}

    def place(self) -> tuple[int, int]:
        return self.meter.rows, self.models.lanes.steps

    def event(self, kind: str, **facts: Any) -> None:
        self._log.event(kind, *self.place(), **{**self.data.facts(), **facts})

    def report(self, stopped_by: str) -> Report:
        """The report of this call, as of now."""
        self.shown.judged([])
        models, meter, worker = self.models, self.meter, self.worker
        outcome = TRAINED if meter.rows_this_call else NOTHING_NEW
        if stopped_by == self.stop.reason:
            outcome = PAUSED
            if not meter.rows_this_call:
                on_stream = self.data.record.spool is not None
                self.session.note(stopped_early(stopped_by, meter.rows, self.folder.path, on_stream))
        progressive_loss, progressive_accuracy = models.progressive()
        models.look()
        judged_loss, judged_accuracy = models.judged()
        nonzeros, zeros = models.nonzeros_and_zeros()
        return Report(
            run=str(self.folder.path),
            t=models.lanes.steps,
            rows=meter.rows,
            epochs=worker.epochs,
            seconds_training=meter.seconds_training,
            seconds_reading_wait=meter.seconds_waiting,
            rows_per_second=meter.rows_per_second(),
            progressive_loss=progressive_loss,
            progressive_accuracy=progressive_accuracy,
            judged_loss=judged_loss,
            judged_accuracy=judged_accuracy,
            chosen=models.chosen(),
            lanes=len(models.lanes),
            nonzeros=nonzeros,
            zeros=zeros,
            gap=models.gap(),
            solver=models.form.options.solver,
            dual_sha256=digest_of(models.lineages) if models.started else None,
            checkpoint=str(self.saver.checkpoint) if self.saver.checkpoint else None,
            stopped_by=stopped_by,
            skipped_rows=counts_by_name(worker.counts.skipped - worker.counts_before.skipped),
            skipped_rows_of_run=counts_by_name(worker.counts.skipped),
            clipped_values=dict(worker.counts.clipped - worker.counts_before.clipped),
            clipped_values_of_run=dict(worker.counts.clipped),
            forecast_rss_mb=0.0 if self.shown.forecast is None else self.shown.forecast.total / 1e6,
            peak_rss_mb=peak_rss_bytes() / 1e6,
            outcome=outcome,
            rows_this_call=meter.rows_this_call,
            stream_rows=self.data.stream_rows,
            seconds_this_call=time.perf_counter() - self.session.began,
            update=summary_of(models.lineages, meter.rows - meter.rows_this_call),
            found=_found(self.session.found, self.data.form.encoding),
            notes=[*self.session.notes],
        )


def _clipped(worker: Worker, before: Collection[str]) -> list[str]:
    """Notes about the columns of which values were clipped since `before` were."""
    clipped = {column: count for column, count in worker.counts.clipped.items() if column not in before}
    return clipped_notes(clipped, worker.counts.clipped_examples)


def _found(found: Findings, encoding: Encoding | None) -> Findings:
    unused = {} if encoding is None else unused_columns(encoding.left_out)
    return replace(found, ignored_columns={**unused, **found.ignored_columns})


def _key(rows: int, cursor: Cursor, record: RunRecord, changes_sigma: bool) -> tuple[Any, ...]:
    """Equal for states that need not be saved again. New shards do not belong to the run before a row of them is trained on:
    a checkpoint from before their arrival stays as it is, so that a run can return to it."""
    retired = frozenset(span for arrival in cursor.arrivals for span in arrival.retired)
    given = record.limits, record.keep, record.updates, record.options.on_bad_row, record.rejected
    return rows, retired, record.sources, record.left_out, record.trial, changes_sigma, *given
