"""How training continues while shards arrive: those of a folder that is followed, or those of a stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streampgs.base.errors import DataError
from streampgs.data.refresh import Look, Refreshed, Refresher
from streampgs.formats.allowance import decoding_within, in_opening, in_training
from streampgs.order.cursor import Place
from streampgs.run.loop import CONVERGED, END_OF_STREAM, LOOK, used_up
from streampgs.run.report import PAUSED, Report
from streampgs.run.spool import Spooler, leaving
from streampgs.run.trainer import Trainer
from streampgs.run.words import waiting_text


def trained(trainer: Trainer, refresher: Refresher, new: Look | None = None, spooler: Spooler | None = None) -> Report:
    """Train until a limit or a stop. `new`: shards that have not joined yet; `spooler`: what gives those of a stream."""
    with decoding_within(in_training(trainer.resources.budget, trainer.data.record.decoder_bytes)):
        if spooler is not None:
            return _streamed(trainer, refresher, spooler)
        if refresher.growth.follow:
            return _followed(trainer, refresher, new)
        if new is not None and not _has_joined(trainer, refresher, new):
            report = trainer.train(_joining_place(trainer))
            if report.stopped_by != LOOK:
                return with_waiting(trainer, report, new)
            new = refresher.look_for_new(trainer.table)
            if new is None or not _has_joined(trainer, refresher, new):
                trainer.continue_on(Refreshed(trainer.table))
        return trainer.train()


def with_waiting(trainer: Trainer, report: Report, new: Look) -> Report:
    """A limit was reached before the new shards could join."""
    names = [str(path) for path in new.changes.new]
    if report.outcome != PAUSED:
        trainer.session.note(waiting_text(len(names), report.stopped_by, trainer.cursor, trainer.folder.path))
    found = replace(report.found, waiting_shards=names)
    return replace(report, found=found, notes=[*trainer.session.notes])


def _joining_place(trainer: Trainer) -> Place:
    table = trainer.table
    return table.schedule.joins_at(table.cursor).place


def _has_joined(trainer: Trainer, refresher: Refresher, new: Look) -> bool:
    """Let the shards join, and training continue from there, if it is at a place where they can."""
    table = trainer.table
    is_at_limit = used_up(trainer.data.record.limits, trainer.meter) is not None
    if is_at_limit or table.schedule.joins_at(table.cursor) != table.cursor:
        return False
    with decoding_within(in_opening(trainer.resources.budget)):
        grown = refresher.with_new(table, new)
    trainer.save()
    trainer.continue_on(grown)
    return True


def _followed(trainer: Trainer, refresher: Refresher, new: Look | None) -> Report:
    """Look for new shards at the end of every epoch, and wait for them when all rows are used."""
    noted = False
    while True:
        if new is not None and trainer.stop.reason is None and _has_joined(trainer, refresher, new):
            new = None
        epoch, limit = trainer.cursor.epoch + 1, trainer.data.record.limits.epochs
        until = (epoch, 0, 0) if limit is None or epoch < limit else None
        try:
            report = trainer.train(until if new is None else _joining_place(trainer))
        except DataError:
            again = refresher.found_again(trainer.table, trainer.stop)
            if again is None:
                raise
            trainer.continue_on(again)
            continue
        if report.stopped_by == LOOK:
            refreshed: Refreshed | None = refresher.at_epoch_end(trainer.table)
        elif report.stopped_by in ("epochs", CONVERGED):
            if not noted:
                trainer.session.note("all rows are used: waiting for new shards (Ctrl-C or SIGTERM stops)")
                noted = True
            refreshed = refresher.wait(trainer.table, trainer.stop)
        else:
            return report if new is None else with_waiting(trainer, report, new)
        new = None
        if refreshed is None:
            assert trainer.stop.reason is not None
            return trainer.report(trainer.stop.reason)
        trainer.continue_on(refreshed)


def _streamed(trainer: Trainer, refresher: Refresher, spooler: Spooler) -> Report:
    """Train on the shards of a stream as they arrive: on the first one in an epoch, on each other one in an update."""
    try:
        report: Report | None = None
        while report is None and _has_next_shard(trainer, refresher, spooler):
            found = trainer.train((trainer.cursor.epoch + 1, 0, 0))
            report = None if found.stopped_by == LOOK else found
    finally:
        spooler.close()
    if report is None:
        trainer.session.tell(spooler.remarks)
        report = trainer.ended(trainer.stop.reason or END_OF_STREAM)
    return replace(report, stream_rows=spooler.rows)


def _has_next_shard(trainer: Trainer, refresher: Refresher, spooler: Spooler) -> bool:
    """Whether there are rows to train on, or a limit is reached. When all rows are used, the next shard joins."""
    while trainer.cursor.begins_epoch and trainer.cursor.epoch > 0:
        if used_up(trainer.data.record.limits, trainer.meter) is not None:
            return True
        table, record = trainer.table, trainer.data.record
        assert record.spool is not None
        # The checkpoint at the end of the last update knows that these have left.
        spooler.remove([Path(str(table.catalog.shards[number].path)) for number in table.retired])
        shard = spooler.next(trainer.stop)
        if shard is None:
            return False
        left = leaving(table.catalog, table.retired, record.options.seed, record.spool)
        with decoding_within(in_opening(trainer.resources.budget)):
            trainer.continue_on(refresher.with_one(table, shard, left))
    return True
