"""How a run starts and goes on: its folder, its lock, its catalog, and what has come since."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from streampgs.checks import decode, encode, require, understanding
from streampgs.data.budget import as_laid_out, check_fits, choose_sizes, group_sizes
from streampgs.data.open import open_table
from streampgs.data.refresh import Grower, Standing, refuse_impossible, wait_for_the_first
from streampgs.data.shards import ShardSource, schedule_of
from streampgs.errors import DataError, OptionError, RunError
from streampgs.learn.lanes import Lanes
from streampgs.options import EncodingOptions, Growth, Limits, ModelOptions, Resources, StreamOptions
from streampgs.order.cursor import Arrival, Cursor
from streampgs.reading.loader import refuse_unreadable
from streampgs.reading.remote import refuse_remote
from streampgs.run import cache_place
from streampgs.run import stream_start as streams
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.history import RESUMED, STARTED
from streampgs.run.lock import RunLock
from streampgs.run.record import RunRecord
from streampgs.run.report import Observer, Report, Silent, StopRequest
from streampgs.run.session import LOOK, Session
from streampgs.run.stream_start import STANDARD_INPUT
from streampgs.run.validate import check_cursor
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog, with_cache

_OF_SHARDS = ("add", "on_growth", "follow", "accept_touched", "accept_rewrite")
"""Choices of growth that a stream knows nothing of."""


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
    stream_options: StreamOptions | None = None,
) -> Report:
    """Start a run on the shards that `sources` name, or on the stream on standard input, and train until a limit or a
    stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    observer, growth = observer or Silent(), growth or Growth()
    if limits.target_accuracy is not None and not options.classifies:
        raise OptionError(
            f"--target-accuracy with --loss {options.losses[0]}, which does not classify",
            "use --target-gap, --epochs or --seconds",
        )
    stop, encoding_options = stop or StopRequest(), encoding_options or EncodingOptions()
    if STANDARD_INPUT in sources:
        _refuse_beside_stream(sources, growth)
        stream_options = stream_options or StreamOptions()
        return streams.start(run, options, limits, resources, observer, stop, encoding_options, stream_options)
    if stream_options is not None:
        raise OptionError("--replay without a stream", "it is for rows on standard input: streampgs train - --run RUN")
    if growth.follow and not wait_for_the_first(sources, growth.poll_seconds, observer, stop):
        raise RunError(f"stopped by {stop.reason} before there was any shard", "start it again when there are some")
    table = open_table(sources, options, encoding_options, growing=growth.follow)
    catalog, located, options, encoding = table.catalog, table.located, table.options, table.encoding
    for note in table.notes:
        observer.note(note)
    refuse_remote(catalog, run, resources)
    if located.ignored:
        observer.note(
            f"{len(located.ignored)} files that are no shards by their names were left out, '{located.ignored[0]}' first"
        )
    for listing in located.tables:
        observer.note(str(listing))
    folder.make()
    with RunLock(run):
        folder.refuse_if_taken()  # another trainer may have been faster
        if resources.cache is not None:
            cache_place.mark(resources.cache)
        cache = None if resources.no_cache else str(resources.cache.absolute()) if resources.cache else cache_place.OWN
        shards, cached_bytes = with_cache(catalog.shards, 0, resources.cache_limit if cache else 0)
        if cache is not None and limits.or_default().epochs != 1:
            _refuse_without_room(cached_bytes, resources.cache or run)
        catalog = Catalog(shards)
        sizes = choose_sizes(group_sizes(catalog, options.row_values), resources, table.decoder_bytes)
        record = RunRecord(
            options,
            tuple(absolute(source) for source in sources),
            sizes,
            cache,
            resources.cache_limit,
            limits.or_default(),
            None if encoding is None else encoding.digest,
            table.decoder_bytes,
        )
        refuse_impossible(options, catalog, growth.on_growth)
        refuse_unreadable(catalog, schedule_of(record, catalog))
        if encoding is not None:
            folder.write_encoding(encoding)
        folder.create(encode(record), catalog)
        record = _with_cache_in_place(record, run, observer)
        standing = Standing(folder, record, catalog, _beginning(catalog), encoding)
        standing.event(STARTED, shards=len(catalog.shards), table_rows=catalog.rows, **_choices(record))
        return _run(standing, None, growth, observer, stop, resources)


def resume(
    run: Path,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    growth: Growth | None = None,
    stream: str | None = None,
    skip_taken: bool = False,
) -> Report:
    """Go on with a run, on what it was started with and on the shards that have come since; or on a stream, '-', which
    begins again at its first row (`skip_taken`) or goes on behind the last one that was taken."""
    folder = RunFolder(run)
    observer, growth = observer or Silent(), growth or Growth()
    record = folder.run_record()
    _refuse_other_source(run, record, stream, skip_taken)
    if record.stream is not None:
        _refuse_beside_stream([STANDARD_INPUT], growth)
        if growth.sigma is not None:
            raise OptionError("--sigma at the resume of a stream", "a new run may have another one")
        return streams.resume(run, limits, resources, observer, stop or StopRequest(), on_bad_row, skip_taken)
    with RunLock(run):
        record = _with_cache_in_place(record, run, observer)
        check_fits(record.sizes, resources, record.decoder_bytes)
        checkpoint = folder.newest_checkpoint()
        for path, why in checkpoint.damaged if checkpoint else ():
            observer.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
        standing = _standing(folder, record, checkpoint)
        record = standing.record
        if limits.given:
            record = replace(record, limits=limits)
        if on_bad_row is not None:
            record = replace(record, options=replace(record.options, on_bad_row=on_bad_row))
        if growth.sigma is not None:
            record = replace(record, options=replace(record.options, sigma=growth.sigma))
        standing = replace(standing, record=record)
        standing.event(RESUMED, shards=len(standing.catalog.shards), **_choices(record))
        stop = stop or StopRequest()
        standing = Grower(growth, observer).after_a_pause(standing, stop)
        return _run(standing, checkpoint, growth, observer, stop, resources)


def _with_cache_in_place(record: RunRecord, run: Path, observer: Observer) -> RunRecord:
    """The record with the place of its cache on this machine."""
    if record.cache is None:
        return record
    with understanding(run / "run.arrows"):
        place, note = cache_place.place(run, record.cache)
    if note is not None:
        observer.note(note)
    return replace(record, cache=str(place))


def _refuse_without_room(cached_bytes: int, place: Path) -> None:
    """The cache decides the order of rows, so it must not depend on the free space of one machine."""
    free = shutil.disk_usage(place).free
    if cached_bytes > free:
        raise RunError(
            f"the decoded rows take about {cached_bytes / 1e9:,.1f} GB on disk, and {free / 1e9:,.1f} GB are free in "
            f"'{place}'",
            "name a larger disk with --cache DIR; or cache less with --cache-limit SIZE or nothing with --no-cache: the "
            "other row groups are then decoded in every epoch, and their rows are mixed less finely",
        )


def _refuse_beside_stream(sources: Sequence[str], growth: Growth) -> None:
    if len(sources) > 1:
        raise OptionError("'-' beside other data", "train on a stream alone, or on shards")
    given = [f"--{name.replace('_', '-')}" for name in _OF_SHARDS if getattr(growth, name)]
    if given:
        raise OptionError(f"{given[0]} with a stream", "it is for shards: leave it out, a stream grows by itself")


def _refuse_other_source(run: Path, record: RunRecord, stream: str | None, skip_taken: bool) -> None:
    if record.stream is not None and stream != STANDARD_INPUT:
        raise OptionError(
            f"run '{run}' trains on a stream, which '-' stands for", f"producer | streampgs resume {run} -"
        )
    if record.stream is None and (stream is not None or skip_taken):
        raise OptionError(
            f"run '{run}' trains on shards, not on '{stream}'" if stream else "--skip-taken without a stream",
            f"streampgs resume {run} goes on with them, and with new ones that have come to their folders",
        )


def _beginning(catalog: Catalog) -> Cursor:
    return Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))


def _standing(folder: RunFolder, record: RunRecord, checkpoint: Checkpoint | None) -> Standing:
    """Where a run stood when its checkpoint was written."""
    catalog = folder.catalog()
    if checkpoint is None:
        catalog = catalog.as_at_the_start()
        return Standing(folder, record, catalog, _beginning(catalog), folder.encoding(record.encoding))
    saved = checkpoint.sections
    with understanding(checkpoint.path):
        cursor = decode(Cursor, saved["worker"].values["cursor"])
        check_cursor(cursor, catalog)
        record = record.as_of(saved["run"])
        steps, rows = _steps(checkpoint), int(saved["meter"].values["rows"])
    known = cursor.arrivals[-1].shards
    catalog = catalog.first(known)
    if len(catalog.shards) < known or catalog.digest() != saved["worker"].values["catalog_digest"]:
        raise RunError(
            f"the catalog of run '{folder.path}' is not the one of its checkpoint", "restore catalog.arrows from a copy"
        )
    with understanding(checkpoint.path):
        window = schedule_of(record, catalog).window(cursor)
        require(cursor.row <= window.pieces.rows(), f"row {cursor.row} of a window of {window.pieces.rows()}")
    return Standing(folder, record, catalog, cursor, folder.encoding(record.encoding), rows, steps)


def _steps(checkpoint: Checkpoint) -> int:
    return Lanes.steps_of(checkpoint.sections["lanes"])


def _choices(record: RunRecord) -> dict[str, Any]:
    """What a line of history tells of a start."""
    options = record.options
    named = {name: getattr(options, name) for name in ("loss", "p", "sigma", "ball")}
    limits = {name: value for name, value in asdict(record.limits).items() if value is not None}
    return {**named, "limits": limits, "sources": list(record.sources)}


def _run(
    standing: Standing,
    checkpoint: Checkpoint | None,
    growth: Growth,
    observer: Observer,
    stop: StopRequest,
    resources: Resources,
) -> Report:
    """Train; and, following, look for more at the end of every epoch, and wait for it when all is used up."""
    grower = Grower(growth, observer)

    def session_on(standing: Standing) -> Session:
        record, catalog = standing.record, standing.catalog
        _, sizes = as_laid_out(catalog, group_sizes(catalog, record.options.row_values), record.sizes)
        check_fits(sizes, resources, record.decoder_bytes)
        source = ShardSource(standing.record, standing.catalog, standing.cursor, resources)
        session = Session(
            standing.folder, standing.record, source.catalog, standing.cursor, observer, stop, resources,
            standing.encoding, source,
        )  # fmt: skip
        session.averages_anew = standing.has_grown_much
        return session

    def following_on(standing: Standing, before: Session) -> Session:
        session = session_on(standing)
        session.take_over(before)
        return session

    session = session_on(standing)
    if checkpoint is not None:
        session.restore(checkpoint, changes_sigma=growth.sigma is not None)
    if not growth.follow:
        return session.run()
    has_waited = False
    while True:
        try:
            report = session.run(looks_for_more=True)
        except DataError:
            again = grower.found_again(session.standing(standing), stop)
            if again is None:
                raise
            standing, session = again, following_on(again, session)
            continue
        standing = session.standing(standing)
        if report.stopped_by == LOOK:
            grown: Standing | None = grower.at_epochs_end(standing)
        elif report.stopped_by == "epochs":
            if not has_waited:
                observer.note("all rows are used up: waiting for more (Ctrl-C or SIGTERM ends)")
                has_waited = True
            grown = grower.wait(standing, stop)
        else:
            return report
        if grown is None:
            assert stop.reason is not None
            return replace(report, stopped_by=stop.reason)
        standing, session = grown, following_on(grown, session)
