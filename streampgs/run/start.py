"""How a run starts and resumes, on shards or on a stream, and how it follows shards that keep coming."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from glob import has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streampgs.base.checks import understanding
from streampgs.base.errors import BadRow, DataError, OptionError, StreampgsError, command_words, counted
from streampgs.base.faults import exists
from streampgs.base.printable import LONGEST_LINE
from streampgs.data.budget import (
    memory_needed,
    refuse_too_many_supports,
    stream_memory_needed,
    stream_sizes,
    table_bytes,
)
from streampgs.data.refresh import Look, Refreshed, Refresher, Table
from streampgs.engine.worker import cursor_in
from streampgs.formats.allowance import decoding_within, in_opening, in_training
from streampgs.learn.learner import learner_named
from streampgs.options.commands import (
    MOST_STREAM_REPLAY,
    STREAM_REPLAY,
    EncodingOptions,
    Growth,
    Limits,
    ModelOptions,
    NewLimits,
    Resources,
)
from streampgs.options.solvers import SOLVERS, learner_for
from streampgs.order.arrivals import owed_until, update_at
from streampgs.order.cursor import Place
from streampgs.run import stream_input
from streampgs.run.checkpoint import Checkpoint, remove_old, rows_in_name
from streampgs.run.fitting import with_default_memory
from streampgs.run.folder import RunFolder
from streampgs.run.history import FAILED, INCOMPLETE, RESUMED, STARTED, utc_now
from streampgs.run.lineages import digest_of
from streampgs.run.lock import RunLock
from streampgs.run.log import Log
from streampgs.run.loop import CONVERGED, LOOK, Loop, used_up
from streampgs.run.meter import Meter
from streampgs.run.on_trial import Trial, begun, ended, refuse_trial
from streampgs.run.record import RunRecord
from streampgs.run.report import (
    PAUSED,
    TRAINED,
    WOULD_TRAIN,
    WOULD_UPDATE,
    Observer,
    Report,
    Session,
    Silent,
    StopRequest,
)
from streampgs.run.shard_input import ShardInput, open_shards, resume_on_shards, start_on_shards
from streampgs.run.stream_input import STANDARD_INPUT, open_standard_input, resume_on_stream, start_on_stream
from streampgs.run.trainer import Input, Trainer
from streampgs.run.undo import undo
from streampgs.run.words import nothing_to_do, resume_command, unmoved_text, waiting_text
from streampgs.stores.addresses import is_address

_OF_SHARDS = (
    *("add", "data", "leave_out", "passes", "follow"),
    *("accept_touched", "accept_removed", "accept_changes", "accept_rejected"),
)
"""Options of growth that do not apply to a stream."""
_MOST_NAMES = 100  # of files in an event of the history


def train(
    sources: Sequence[str],
    run: Path,
    options: ModelOptions,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    encoding_options: EncodingOptions | None = None,
    growth: Growth | None = None,
) -> Report:
    """Start a run on the shards that `sources` name, or on the stream on standard input, and train until a limit or a
    stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    session, growth, stop = Session(observer or Silent()), growth or Growth(), stop or StopRequest()
    encoding_options = encoding_options or EncodingOptions()
    resources = with_default_memory(resources, session.note)
    refuse_too_many_supports(options, resources)
    _refuse_unreachable_targets(options, limits)
    _refuse_updates(options, growth)
    on_stream = STANDARD_INPUT in sources
    data: Input
    if on_stream:
        _refuse_options_of_shards(sources, growth)
        stop.opening = False
        stream_input.refuse_options(options, limits, resources)
        replay = _stream_replay(growth)
        stream_sizes(resources, replay, 1)  # refuses a window that does not fit
        stream, opened_stream = open_standard_input(options, encoding_options, resources, stop)
        for note in opened_stream.notes:
            session.note(note)
    else:
        with decoding_within(in_opening(resources.budget)):
            opened = open_shards(run, sources, options, resources, encoding_options, growth, session, stop)
    stop.opening = False
    _refuse_unreachable_targets((opened_stream if on_stream else opened).options, limits)  # the loss is known now
    folder.make()
    with RunLock(run):
        folder.refuse_if_taken()  # another trainer may have been faster
        if on_stream:
            data = start_on_stream(folder, stream, opened_stream, limits, resources, replay)
            facts: dict[str, Any] = {"stream_rows": 0}
        else:
            limits = limits.or_default(opened.catalog.rows, SOLVERS[opened.options.solver].needs)
            data = start_on_shards(folder, sources, opened, limits, resources, growth, session)
            facts = {"table_rows": data.table.catalog.rows}
        trainer = Trainer(folder, data, session, stop, resources)
        trainer.event(STARTED, **facts, **_choices(data.record))
        with _failure_recorded(folder, trainer.place), _after_a_fix(run, data.record):
            return Log(folder, session).ended(_trained(trainer, Refresher(growth, session.note, session.found)))


def resume(
    run: Path,
    limits: Limits | NewLimits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    growth: Growth | None = None,
    stream: str | None = None,
    skip_taken: bool = False,
    back_to: str | None = None,
    trial: Trial | None = None,
    validation: tuple[str, ...] = (),
) -> Report:
    """Continue a run, on its shards and those that have joined since; or on a stream, '-', which begins again at its first
    row (`skip_taken`) or after the last one that was taken. `back_to`: an earlier checkpoint, from which to continue.
    `trial`: measures the model before and after. `validation`: takes the place of the run's, if that is gone."""
    folder = RunFolder(run)
    session, growth, stop = Session(observer or Silent()), growth or Growth(), stop or StopRequest()
    record = folder.run_record()
    _refuse_other_source(run, record, stream, skip_taken)
    _refuse_for(record, limits, growth, trial)
    if record.stream is not None:
        stop.opening = False
        _refuse_options_of_shards([STANDARD_INPUT], growth)
        for name in ("sigma", "replay"):
            if getattr(growth, name) is not None:
                raise OptionError(f"--{name} when a stream is resumed", "a new run may have another one")
        stream_input.refuse_options(record.options, limits, resources)
    with RunLock(run):
        refresher = Refresher(growth, session.note, session.found)
        with _failure_recorded(folder, folder.last_place):
            folder.sync()
            if growth.leave_out:  # before anything is undone
                newest = folder.newest_checkpoint()
                now = record.as_of(newest.sections["run"]) if newest else record
                refresher.check_left_out(now.sources, folder.catalog())
            if back_to is not None:
                _undo(folder, back_to, session)
            record, checkpoint = _saved(folder, record, session)
            record = begun(trial, folder, record, checkpoint)
            record = _with_validation(record, validation)
            has_sigma = isinstance(growth.sigma, float) and growth.sigma == record.options.sigma
            record = _with_new_choices(record, _totals(limits, checkpoint), on_bad_row, growth, resources.keep)
            if resources.keep and checkpoint:  # before anything is written: the disk may be full
                remove_old(run, rows_in_name(checkpoint.path), record.kept)
            refreshed: Refreshed | None = None
            new: Look | None = None
            data: Input
            if record.stream is not None:
                resources = with_default_memory(resources, session.note, stream_memory_needed(record.stream.sizes))
                data = resume_on_stream(folder, record, checkpoint, resources, session, stop, skip_taken)
                facts: dict[str, Any] = {"stream_rows": data.stream.given}
            else:
                resources = _with_memory(resources, record, folder, session)
                shards = resume_on_shards(folder, record, checkpoint, resources, session)
                facts = shards.facts()
                with decoding_within(in_opening(resources.budget)):
                    refreshed = refresher.after_pause(shards.table, stop)
                    new = refreshed.new
                    if new is not None and checkpoint is None:
                        refreshed, new = refresher.with_new(refreshed.table, new), None
                stop.opening = False
                data = shards.refreshed(folder, refreshed)
            trainer = Trainer(folder, data, session, stop, resources)
            trainer.models.changes_sigma = growth.sigma is not None and not has_sigma
            if checkpoint is not None:
                trainer.restore(checkpoint)
        trainer.event(RESUMED, **{**_choices(record), **facts})
        if refreshed is not None:
            _report_growth(trainer, refreshed)
        if session.found.incomplete_files:
            names = session.found.incomplete_files
            trainer.event(INCOMPLETE, incomplete_files=len(names), incomplete_names=names[:_MOST_NAMES])
        with _failure_recorded(folder, trainer.place), _after_a_fix(run, record):
            before = digest_of(trainer.models.lineages) if trainer.models.started else None
            report = _trained(trainer, refresher, new)
            if trainer.models.by_passes and report.outcome == TRAINED and report.dual_sha256 == before:
                session.note(unmoved_text(report.rows_this_call, run))
                report = replace(report, notes=[*session.notes])
            return Log(folder, session).ended(ended(trial, trainer, report))


def rehearsed(
    run: Path,
    limits: Limits | NewLimits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    growth: Growth | None = None,
    trial: Trial | None = None,
) -> Report:
    """What `resume` would do with the same options: the same notes, findings and errors before the first row. Nothing is
    written."""
    folder, session = RunFolder(run), Session(observer or Silent())
    growth, stop = growth or Growth(), stop or StopRequest()
    record = folder.run_record()
    if record.stream is not None or growth.follow:
        raise OptionError(
            f"--dry-run {'with --follow' if growth.follow else 'when a stream is resumed'}", "leave --dry-run out"
        )
    _refuse_for(record, limits, growth, trial)
    refresher = Refresher(growth, session.note, session.found)
    record, checkpoint = _saved(folder, record, session)
    refresher.check_left_out(record.sources, folder.catalog())
    record = begun(trial, folder, record, checkpoint)
    record = _with_new_choices(record, _totals(limits, checkpoint), on_bad_row, growth, resources.keep)
    resources = _with_memory(resources, record, folder, session)
    shards = resume_on_shards(folder, record, checkpoint, resources, session)
    with decoding_within(in_opening(resources.budget)), TemporaryDirectory() as elsewhere:
        refreshed = refresher.after_pause(shards.table, stop)
        table, new = refreshed.table, refreshed.new
        record = replace(shards.record.of_table(table), cache=shards.record.cache and elsewhere)
        trainer = Trainer(folder, ShardInput(record, table, resources), session, stop, resources)
        if checkpoint is not None:
            trainer.restore(checkpoint)
        worker = trainer.worker = trainer.worker or trainer.new_worker()
        reached = Loop(trainer.models, trainer.meter, worker, trainer.saver, record.limits, stop, None).reached()
        if new is not None and used_up(record.limits, trainer.meter) is None:
            table = replace(table, cursor=table.schedule.joins_at(table.cursor))
            table, reached = refresher.with_new(table, new).table, None
        elif new is None and reached is not None:
            session.note(nothing_to_do(reached, record.limits, run))
    if reached is None:
        outcome = WOULD_UPDATE if update_at(table.cursor) else WOULD_TRAIN
        session.note(f"dry run: nothing was changed; without --dry-run this resume {outcome}")
        return replace(trainer.report("dry run"), outcome=outcome)
    report = trainer.report(reached)
    return report if new is None else _with_waiting(trainer, report, new)


def _refuse_for(record: RunRecord, limits: Limits | NewLimits, growth: Growth, trial: Trial | None) -> None:
    """Options that do not suit the run."""
    _refuse_unreachable_targets(record.options, limits)
    _refuse_updates(record.options, growth)
    if growth.sigma is not None and "sigma" not in SOLVERS[record.options.solver].options:
        raise OptionError(f"--sigma with `--solver {record.options.solver}`, which has none", "leave it out")
    if trial is not None:
        refuse_trial(record, growth)


def _saved(folder: RunFolder, record: RunRecord, session: Session) -> tuple[RunRecord, Checkpoint | None]:
    """The checkpoint from which the run continues, and the record as of then."""
    checkpoint = folder.newest_checkpoint()
    for name in folder.lookalikes()[:1]:
        session.note(f"'{name}' is ignored: the name of a checkpoint is checkpoint-ROWS.arrows, with 15 digits")
    for path, why in checkpoint.damaged if checkpoint else ():
        session.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
    if checkpoint is None:
        return record, None
    with understanding(checkpoint.path):
        return record.as_of(checkpoint.sections["run"]), checkpoint


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
        if record.stream is not None:
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


def _with_new_choices(
    record: RunRecord, limits: Limits, on_bad_row: str | None, growth: Growth, keep: int | None
) -> RunRecord:
    options = record.options
    if on_bad_row is not None:
        options = replace(options, on_bad_row=on_bad_row)
    if growth.sigma is not None:
        options = replace(options, sigma=growth.sigma)
    return replace(
        record,
        options=options,
        limits=limits if limits.given else record.limits,
        keep=keep or record.keep,
        updates=record.updates.changed_by(growth),
        rejected=() if growth.accept_rejected else record.rejected,
    )


def _with_validation(record: RunRecord, given: tuple[str, ...]) -> RunRecord:
    """The validation data of a run that has moved are elsewhere, too."""
    before = record.options.validation
    gone = any(not (is_address(source) or has_magic(source) or exists(source)) for source in before)
    return replace(record, options=replace(record.options, validation=given)) if gone and given else record


def _undo(folder: RunFolder, back_to: str, session: Session) -> None:
    undone = undo(folder, back_to)
    if undone is not None:
        session.note(
            f"returned to the checkpoint after {undone.rows:,} rows: {counted(undone.undone_rows, 'row')} undone"
        )


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
    if limits.target_gap is not None and not learner_named(learner_for(options)).is_certified():
        with_l1 = " and --l1" * bool(SOLVERS[options.solver].with_l1)
        raise OptionError(
            f"--target-gap with `--solver {options.solver}{with_l1}`: there is no certificate",
            "use --epochs, --seconds or --target-accuracy",
        )


def _stream_replay(growth: Growth) -> float:
    replay = STREAM_REPLAY if growth.replay is None else growth.replay
    if replay > MOST_STREAM_REPLAY:
        raise OptionError(f"`--replay {replay:g}` for a stream", f"give at most {MOST_STREAM_REPLAY:g}")
    return replay


def _refuse_options_of_shards(sources: Sequence[str], growth: Growth) -> None:
    if len(sources) > 1:
        raise OptionError("'-' next to other data", "train on a stream alone, or on shards")
    given = [f"--{name.replace('_', '-')}" for name in _OF_SHARDS if getattr(growth, name)]
    if given:
        raise OptionError(f"{given[0]} with a stream", "it is for shards: leave it out, a stream grows automatically")


def _refuse_other_source(run: Path, record: RunRecord, stream: str | None, skip_taken: bool) -> None:
    if record.stream is not None and stream != STANDARD_INPUT:
        raise OptionError(f"run '{run}' trains on a stream: name it with '-'", resume_command(run, on_stream=True))
    if record.stream is None and (stream is not None or skip_taken):
        raise OptionError(
            f"run '{run}' trains on shards, not on '{stream}'" if stream else "--skip-taken without a stream",
            f"{resume_command(run)} continues with them and with new shards in their folders",
        )


# Training, and following.


def _trained(trainer: Trainer, refresher: Refresher, new: Look | None = None) -> Report:
    """`new`: shards that have not joined yet."""
    with decoding_within(in_training(trainer.resources.budget, trainer.data.record.decoder_bytes)):
        if not isinstance(trainer.data, ShardInput):
            return trainer.train()
        if refresher.growth.follow:
            return _followed(trainer, refresher, new)
        if new is not None and not _has_joined(trainer, refresher, new):
            report = trainer.train(_joining_place(trainer))
            if report.stopped_by != LOOK:
                return _with_waiting(trainer, report, new)
            new = refresher.look_for_new(_table(trainer))
            if new is None or not _has_joined(trainer, refresher, new):
                _continue_on(trainer, Refreshed(_table(trainer)))
        return trainer.train()


def _with_waiting(trainer: Trainer, report: Report, new: Look) -> Report:
    """A limit was reached before the new shards could join."""
    names = [str(path) for path in new.changes.new]
    if report.outcome != PAUSED:
        trainer.observer.note(waiting_text(len(names), report.stopped_by, trainer.cursor, trainer.folder.path))
    found = replace(report.found, waiting_shards=names)
    return replace(report, found=found, notes=[*trainer.observer.notes])


def _joining_place(trainer: Trainer) -> Place:
    table = _table(trainer)
    return table.schedule.joins_at(table.cursor).place


def _has_joined(trainer: Trainer, refresher: Refresher, new: Look) -> bool:
    """The shards join, if training is at a place where they can, and goes on from there."""
    table = _table(trainer)
    is_at_limit = used_up(trainer.data.record.limits, trainer.meter) is not None
    if is_at_limit or table.schedule.joins_at(table.cursor) != table.cursor:
        return False
    with decoding_within(in_opening(trainer.resources.budget)):
        grown = refresher.with_new(table, new)
    trainer.save()
    _continue_on(trainer, grown)
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
            again = refresher.found_again(_table(trainer), trainer.stop)
            if again is None:
                raise
            _continue_on(trainer, again)
            continue
        if report.stopped_by == LOOK:
            refreshed: Refreshed | None = refresher.at_epoch_end(_table(trainer))
        elif report.stopped_by in ("epochs", CONVERGED):
            if not noted:
                trainer.observer.note("all rows are used: waiting for new shards (Ctrl-C or SIGTERM stops)")
                noted = True
            refreshed = refresher.wait(_table(trainer), trainer.stop)
        else:
            return report if new is None else _with_waiting(trainer, report, new)
        new = None
        if refreshed is None:
            assert trainer.stop.reason is not None
            return trainer.report(trainer.stop.reason)
        _continue_on(trainer, refreshed)


def _table(trainer: Trainer) -> Table:
    """The run's table, at the row that training has reached."""
    assert isinstance(trainer.data, ShardInput)
    return replace(trainer.data.table, cursor=trainer.cursor)


def _continue_on(trainer: Trainer, refreshed: Refreshed) -> None:
    assert isinstance(trainer.data, ShardInput)
    trainer.continue_on(trainer.data.refreshed(trainer.folder, refreshed))
    _report_growth(trainer, refreshed)


def _report_growth(trainer: Trainer, refreshed: Refreshed) -> None:
    for kind, facts in refreshed.events:
        trainer.event(kind, **facts)
