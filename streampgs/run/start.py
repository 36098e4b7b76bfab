"""How a run starts and resumes, on shards or on a stream, and how it follows shards that keep coming."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from glob import has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streampgs.base.checks import understanding
from streampgs.base.errors import BadRow, OptionError, StreampgsError, command_words, counted
from streampgs.base.faults import exists
from streampgs.base.printable import LONGEST_LINE
from streampgs.data.budget import memory_needed, refuse_too_many_supports, table_bytes
from streampgs.data.refresh import Refreshed, Refresher
from streampgs.engine.worker import cursor_in
from streampgs.formats.allowance import decoding_within, in_opening
from streampgs.learn.learner import Certified, learner_named
from streampgs.learn.pgs_options import has_too_many_classes
from streampgs.options.commands import Growth, Limits, ModelOptions, NewLimits, Resources
from streampgs.options.solvers import SOLVERS, learner_for
from streampgs.order.arrivals import owed_until, update_at
from streampgs.run.checkpoint import Checkpoint, remove_old, rows_in_name
from streampgs.run.commands import ResumeCall, TrainCall
from streampgs.run.fitting import with_default_memory, with_memory_to_decode
from streampgs.run.folder import RunFolder
from streampgs.run.following import trained, with_waiting
from streampgs.run.history import FAILED, INCOMPLETE, RESUMED, STARTED, utc_now
from streampgs.run.lineages import digest_of
from streampgs.run.lock import RunLock
from streampgs.run.loop import used_up
from streampgs.run.meter import Meter
from streampgs.run.on_trial import Trial, begun, ended, refuse_trial
from streampgs.run.record import RunRecord
from streampgs.run.report import (
    TRAINED,
    WOULD_TRAIN,
    WOULD_UPDATE,
    Observer,
    Report,
    Session,
    StopRequest,
)
from streampgs.run.saver import Log
from streampgs.run.shard_input import ShardInput, open_shards, resume_on_shards, start_on_shards
from streampgs.run.spool import Spooler
from streampgs.run.standard_input import STANDARD_INPUT
from streampgs.run.stream import growth_of_stream, new_spool, refuse_for_stream, spool_of
from streampgs.run.trainer import Trainer
from streampgs.run.undo import undo
from streampgs.run.words import nothing_to_do, resume_command, unmoved_text
from streampgs.stores.addresses import absolute, is_address

_MOST_NAMES = 100  # of files in an event of the history


def train(
    sources: Sequence[str],
    run: Path,
    call: TrainCall,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
) -> Report:
    """Start a run on the shards that `sources` name, or on the stream on standard input, and train until a limit or a
    stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    session, stop, given = Session(observer or Observer()), stop or StopRequest(), call.resources
    call = replace(call, resources=with_default_memory(given, session.note))
    refuse_too_many_supports(call.model, call.resources)
    _refuse_unreachable_targets(call.model, call.limits)
    _refuse_updates(call.model, call.growth)
    if STANDARD_INPUT in sources:
        if len(sources) > 1:
            raise OptionError("'-' next to other data", "train on a stream alone, or on shards")
        refuse_for_stream(call.model, call)
        return _train_on_stream(folder, call, session, stop)
    if call.growth.spool is not None:
        raise OptionError("--spool without a stream", "leave it out: it bounds the disk that the rows of a stream take")
    opened = open_shards(run, sources, call, session, stop)
    resources = with_memory_to_decode(given, call.resources, opened.decoder_bytes, session.note)
    call = replace(call, resources=resources)
    stop.opening = False
    _refuse_unreachable_targets(opened.options, call.limits)  # the loss is known now
    folder.make()
    with RunLock(run):
        folder.refuse_if_taken()  # another trainer may have been faster
        call = replace(call, limits=call.limits.or_default(opened.catalog.rows, SOLVERS[opened.options.solver].needs))
        return _begun(folder, start_on_shards(folder, sources, opened, call), call, session, stop)


def _train_on_stream(folder: RunFolder, call: TrainCall, session: Session, stop: StopRequest) -> Report:
    """The columns are learned from the first shard of the stream."""
    stop.opening = False
    call, is_new = replace(call, growth=growth_of_stream(call.growth)), not exists(folder.path)
    folder.make()
    try:
        with RunLock(folder.path):
            folder.refuse_if_taken()
            with new_spool(folder, call, stop) as (spooler, shard):
                call = replace(call, resources=replace(call.resources, no_cache=True))
                opened = open_shards(folder.path, [str(shard)], call, session, stop)
                _refuse_unreachable_targets(opened.options, call.limits)
                data = start_on_shards(folder, [str(folder.spool)], opened, call)
                return _begun(folder, data, call, session, stop, spooler)
    finally:
        if is_new and not folder.exists:
            shutil.rmtree(folder.path, ignore_errors=True)


def _begun(
    folder: RunFolder,
    data: ShardInput,
    call: TrainCall,
    session: Session,
    stop: StopRequest,
    spooler: Spooler | None = None,
) -> Report:
    trainer = Trainer(folder, data, session, stop, call.resources)
    trainer.event(STARTED, table_rows=data.table.catalog.rows, **_choices(data.record))
    with _failure_recorded(folder, trainer.place), _after_a_fix(folder.path, data.record):
        refresher = Refresher(call.growth, session.note, session.found)
        return Log(folder, session).ended(trained(trainer, refresher, spooler=spooler))


def resume(
    run: Path,
    call: ResumeCall,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    trial: Trial | None = None,
) -> Report:
    """Continue a run, on its shards and those that have joined since; or on a stream, '-', which begins again at its first
    row (--skip-taken) or after the last one that was taken. `trial`: measures the model before and after."""
    folder, session, stop = RunFolder(run), Session(observer or Observer()), stop or StopRequest()
    record, is_dry = folder.run_record(), call.changes.dry_run
    _refuse_for(run, record, call, trial)
    if record.spool is not None:  # shards may have left the spool
        call = replace(call, growth=replace(call.growth, accept_removed=True))
    refresher = Refresher(call.growth, session.note, session.found)
    with ExitStack() as locked, ExitStack() as opening:
        if not is_dry:
            locked.enter_context(RunLock(run))
            opening.enter_context(_failure_recorded(folder, folder.last_place))
            folder.sync()
        record, checkpoint = _opened(folder, record, call, session, refresher)
        record = _with_validation(
            begun(trial, folder, record, checkpoint), tuple(map(absolute, call.changes.validation))
        )
        has_sigma = isinstance(call.growth.sigma, float) and call.growth.sigma == record.options.sigma
        record = _with_new_choices(record, _totals(call.limits, checkpoint), call)
        if call.resources.keep and checkpoint and not is_dry:  # before anything is written: the disk may be full
            remove_old(run, rows_in_name(checkpoint.path), record.kept)
        call = replace(call, resources=_with_memory(call.resources, record, folder, session))
        shards = resume_on_shards(folder, record, checkpoint, call.resources)
        with decoding_within(in_opening(call.resources.budget)):
            refreshed = refresher.after_pause(shards.table, stop)
            if is_dry:
                return _rehearsed(folder, shards, checkpoint, refreshed, refresher, session, stop)
            new = refreshed.new
            if new is not None and checkpoint is None and record.spool is None:
                refreshed, new = refresher.with_new(refreshed.table, new), None
        stop.opening = False
        trainer = Trainer(folder, shards.refreshed(folder, refreshed), session, stop, call.resources)
        trainer.models.changes_sigma = call.growth.sigma is not None and not has_sigma
        if checkpoint is not None:
            trainer.restore(checkpoint)
        spooler: Spooler | None = None
        if record.spool is not None:
            spooler = spool_of(folder, record, trainer.data.table.catalog, call, session, stop)
        opening.close()
        trainer.event(RESUMED, **{**_choices(record), **shards.facts()})
        trainer.report_growth(refreshed)
        names = session.found.incomplete_files
        if names:
            trainer.event(INCOMPLETE, incomplete_files=len(names), incomplete_names=names[:_MOST_NAMES])
        with _failure_recorded(folder, trainer.place), _after_a_fix(run, record):
            before = digest_of(trainer.models.lineages) if trainer.models.started else None
            report = trained(trainer, refresher, new, spooler)
            if trainer.models.by_passes and report.outcome == TRAINED and report.dual_sha256 == before:
                session.note(unmoved_text(report.rows_this_call, run))
                report = replace(report, notes=[*session.notes])
            return Log(folder, session).ended(ended(trial, trainer, report))


def _opened(
    folder: RunFolder, record: RunRecord, call: ResumeCall, session: Session, refresher: Refresher
) -> tuple[RunRecord, Checkpoint | None]:
    """The checkpoint from which the run continues, after an undo, and the record as of then."""
    if call.growth.leave_out:  # before anything is undone
        newest = folder.newest_checkpoint("run")
        now = record.as_of(newest.sections["run"]) if newest else record
        refresher.check_left_out(now.sources, folder.catalog())
    undone = undo(folder, call.changes.back_to) if call.changes.back_to is not None else None
    if undone is not None:
        session.note(
            f"returned to the checkpoint after {undone.rows:,} rows: {counted(undone.undone_rows, 'row')} undone"
        )
    checkpoint = folder.newest_checkpoint()
    for name in folder.lookalikes()[:1]:
        session.note(f"'{name}' is ignored: the name of a checkpoint is checkpoint-ROWS.arrows, with 15 digits")
    for path, why in checkpoint.damaged if checkpoint else ():
        session.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
    if checkpoint is None:
        return record, None
    with understanding(checkpoint.path):
        return record.as_of(checkpoint.sections["run"]), checkpoint


def _rehearsed(
    folder: RunFolder,
    shards: ShardInput,
    checkpoint: Checkpoint | None,
    refreshed: Refreshed,
    refresher: Refresher,
    session: Session,
    stop: StopRequest,
) -> Report:
    """What the resume would do: the same notes, findings and errors before the first row. Nothing is written."""
    table, new, record = refreshed.table, refreshed.new, shards.record
    with TemporaryDirectory() as elsewhere:
        record = replace(record.of_table(table), cache=record.cache and elsewhere)
        trainer = Trainer(folder, ShardInput(record, table, shards.resources), session, stop, shards.resources)
        if checkpoint is not None:
            trainer.restore(checkpoint)
        reached = trainer.reached()
        if new is not None and used_up(record.limits, trainer.meter) is None:
            table = replace(table, cursor=table.schedule.joins_at(table.cursor))
            joined = refresher.with_new(table, new)
            table, reached = joined.table, None
            session.note(joined.joined)
        elif new is None and reached is not None:
            session.note(nothing_to_do(reached, record.limits, folder.path))
    if reached is None:
        outcome = WOULD_UPDATE if update_at(table.cursor) else WOULD_TRAIN
        session.note(f"dry run: nothing was changed; without --dry-run this resume {outcome}")
        return replace(trainer.report("dry run"), outcome=outcome)
    report = trainer.report(reached)
    return report if new is None else with_waiting(trainer, report, new)


def _refuse_for(run: Path, record: RunRecord, call: ResumeCall, trial: Trial | None) -> None:
    """Options that do not suit the run."""
    growth, on_stream = call.growth, record.spool is not None
    if call.changes.dry_run and (on_stream or growth.follow):
        raise OptionError(
            f"--dry-run {'with --follow' if growth.follow else 'when a stream is resumed'}", "leave --dry-run out"
        )
    _refuse_other_source(run, record, call)
    _refuse_unreachable_targets(record.options, call.limits)
    _refuse_updates(record.options, growth)
    if growth.sigma is not None and "sigma" not in SOLVERS[record.options.solver].options:
        raise OptionError(f"--sigma with `--solver {record.options.solver}`, which has none", "leave it out")
    if trial is not None:
        refuse_trial(record, growth)
    if on_stream:
        refuse_for_stream(record.options, call)


def _with_memory(resources: Resources, record: RunRecord, folder: RunFolder, session: Session) -> Resources:
    """With the memory that the run needs, if none was given."""
    needed = memory_needed(record.sizes, record.decoder_bytes)
    if SOLVERS[record.options.solver].needs.in_memory:
        needed += table_bytes(folder.catalog(), record.options)
    return with_default_memory(resources, session.note, needed)


@contextmanager
def _after_a_fix(run: Path, record: RunRecord) -> Iterator[None]:
    """A bad row in a shard: the fixed file will be another one. If the old one belongs to the run, this must be accepted."""
    try:
        yield
    except BadRow as error:
        if record.spool is not None:  # no user can fix its file
            raise
        raise BadRow(
            error.found,
            [
                f"{error.remedy}; once the file is fixed: {resume_command(run)}",
                "add --accept-changes if rows of the file were trained on before; or `--leave-out FILE`, to continue without it",
            ],
        ) from error


@contextmanager
def _failure_recorded(folder: RunFolder, place: Callable[[], tuple[int, int]]) -> Iterator[None]:
    """An error becomes an event of the history. `place`: rows and steps."""
    try:
        yield
    except StreampgsError as error:
        with suppress(StreampgsError, OSError):  # the disk may be full: the error itself matters more
            folder.append_event(FAILED, *place(), error=command_words(error.found)[:LONGEST_LINE])
            folder.append_metrics({"event": FAILED, "time": utc_now(), "outcome": FAILED, "rows": place()[0]})
        raise


def _with_new_choices(record: RunRecord, limits: Limits, call: ResumeCall) -> RunRecord:
    options, growth = record.options, call.growth
    if call.changes.on_bad_row is not None:
        options = replace(options, on_bad_row=call.changes.on_bad_row)
    if growth.sigma is not None:
        options = replace(options, sigma=growth.sigma)
    return replace(
        record,
        options=options,
        limits=limits if limits.given else record.limits,
        keep=call.resources.keep or record.keep,
        updates=record.updates.changed_by(growth),
        rejected=() if growth.accept_rejected else record.rejected,
    )


def _with_validation(record: RunRecord, given: tuple[str, ...]) -> RunRecord:
    """The validation data of a run that has moved are elsewhere, too."""
    before = record.options.validation
    gone = any(not (is_address(source) or has_magic(source) or exists(source)) for source in before)
    return replace(record, options=replace(record.options, validation=given)) if gone and given else record


def _totals(limits: Limits | NewLimits, checkpoint: Checkpoint | None) -> Limits:
    """Limits that count from where the run is become totals. An epoch or update that has begun is completed first."""
    if isinstance(limits, Limits):
        return limits
    meter, epochs = Meter(), 0
    if checkpoint is not None:
        checkpoint.restore(meter)
        with understanding(checkpoint.path):
            cursor = cursor_in(checkpoint.sections["worker"])
        epochs = max(cursor.epoch + (not cursor.begins_epoch), owed_until(cursor))
    return limits.after(epochs, meter.rows, meter.seconds)


def _choices(record: RunRecord) -> dict[str, Any]:
    """The facts of a start for the history."""
    options = record.options
    named = {name: getattr(options, name) for name in ("solver", "loss", *SOLVERS[options.solver].options)}
    if SOLVERS[options.solver].needs.columns and options.sigma == "auto":
        named["sigma"] = 0.0
    limits = {name: value for name, value in asdict(record.limits).items() if value is not None}
    return {**named, "limits": limits, "sources": list(record.sources)}


def _refuse_updates(options: ModelOptions, growth: Growth) -> None:
    if growth.replay is not None and SOLVERS[options.solver].needs.passes:
        raise OptionError(
            f"--replay with `--solver {options.solver}`, which trains on all rows in each epoch",
            "leave it out; --passes sets how many epochs follow when rows arrive",
        )


def _refuse_unreachable_targets(options: ModelOptions, limits: Limits | NewLimits) -> None:
    """A target that is never known would let the run train until it is stopped."""
    if limits.target_accuracy is not None and not options.classifies:
        raise OptionError(
            f"--target-accuracy with `--loss {options.losses[0]}`, which does not classify",
            "use --target-gap, --epochs or --seconds",
        )
    if limits.target_gap is not None and not issubclass(learner_named(learner_for(options)), Certified):
        with_l1 = " and --l1" * bool(SOLVERS[options.solver].with_l1)
        raise OptionError(
            f"--target-gap with `--solver {options.solver}{with_l1}`: there is no certificate",
            "use --epochs, --seconds or --target-accuracy",
        )
    if limits.target_gap is not None and options.solver == "pgs" and has_too_many_classes(options):
        raise OptionError(
            f"--target-gap with {len(options.classes or ())} classes: so many have no certificate",
            "use --epochs, --seconds or --target-accuracy",
        )


def _refuse_other_source(run: Path, record: RunRecord, call: ResumeCall) -> None:
    stream, skip_taken = call.stream, call.changes.skip_taken
    if record.spool is None and (stream is not None or skip_taken):
        raise OptionError(
            f"run '{run}' trains on shards, not on '{stream}'" if stream else "--skip-taken without a stream",
            f"{resume_command(run)} continues with them and with new shards in their folders",
        )
    if stream not in (None, STANDARD_INPUT) or (skip_taken and stream is None):
        raise OptionError(f"run '{run}' trains on a stream: name it with '-'", resume_command(run, on_stream=True))
