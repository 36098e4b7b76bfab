"""How a run starts and goes on: its folder, its lock, its catalog, and what has come since."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from streampgs.errors import OptionError, RunError
from streampgs.growth import Grower, Standing, refuse_impossible, wait_for_the_first
from streampgs.opening import open_table
from streampgs.options import EncodingOptions, Growth, Limits, ModelOptions, Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.planning import as_laid_out, check_fits, choose_sizes, group_sizes
from streampgs.progress import Observer, Report, Silent, StopRequest
from streampgs.reading.filler import refuse_unreadable
from streampgs.reading.remote import refuse_remote
from streampgs.run import cache_place
from streampgs.run.folder import Checkpoint, RunFolder, RunLock
from streampgs.run.history import RESUMED, STARTED
from streampgs.run.record import RunRecord
from streampgs.run.understood import check_cursor, require, typed, understanding
from streampgs.session import LOOK, Session
from streampgs.sources import ShardSource, schedule_of
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog, with_cache


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
    """Start a run on the shards that `sources` name, and train until a limit or a stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    observer, growth = observer or Silent(), growth or Growth()
    if limits.target_accuracy is not None and not options.classifies:
        raise OptionError(
            f"--target-accuracy with --loss {options.losses[0]}, which does not classify",
            "use --target-gap, --epochs or --seconds",
        )
    stop = stop or StopRequest()
    if growth.follow and not wait_for_the_first(sources, growth.poll_seconds, observer, stop):
        raise RunError(f"stopped by {stop.reason} before there was any shard", "start it again when there are some")
    table = open_table(sources, options, encoding_options or EncodingOptions(), growing=growth.follow)
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
        limit = resources.cache_limit if resources.cache_limit is not None else shutil.disk_usage(run).free // 2
        shards, _ = with_cache(catalog.shards, 0, limit if cache else 0)
        catalog = Catalog(shards)
        sizes = choose_sizes(group_sizes(catalog, options.weighted), resources, table.decoder_bytes)
        record = RunRecord(
            options,
            tuple(absolute(source) for source in sources),
            sizes,
            cache,
            limit,
            limits.or_default(),
            None if encoding is None else encoding.digest,
            table.decoder_bytes,
        )
        refuse_impossible(options, catalog, growth.on_growth)
        refuse_unreadable(catalog, schedule_of(record, catalog))
        if encoding is not None:
            folder.write_encoding(encoding)
        folder.create(record.to_json(), catalog)
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
) -> Report:
    """Go on with a run, on what it was started with and on the shards that have come since."""
    folder = RunFolder(run)
    observer, growth = observer or Silent(), growth or Growth()
    record = folder.run_record()
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
        standing = Grower(growth, observer).after_a_pause(standing)
        return _run(standing, checkpoint, growth, observer, stop or StopRequest(), resources)


def _with_cache_in_place(record: RunRecord, run: Path, observer: Observer) -> RunRecord:
    """The record with the place of its cache on this machine."""
    if record.cache is None:
        return record
    with understanding(run / "run.arrows"):
        place, note = cache_place.place(run, record.cache)
    if note is not None:
        observer.note(note)
    return replace(record, cache=str(place))


def _beginning(catalog: Catalog) -> Cursor:
    return Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))


def _standing(folder: RunFolder, record: RunRecord, checkpoint: Checkpoint | None) -> Standing:
    """Where a run stood when its checkpoint was written."""
    catalog = folder.catalog()
    if checkpoint is None:
        catalog = catalog.as_at_the_start()
        return Standing(folder, record, catalog, _beginning(catalog), folder.encoding(record.encoding))
    saved = checkpoint.record
    with understanding(checkpoint.path):
        cursor = Cursor.from_json(saved["cursor"])
        check_cursor(cursor, catalog)
        record = typed(record.as_of(saved))
        steps, rows = _steps(saved), int(saved["totals"]["rows"])
    known = cursor.arrivals[-1].shards
    catalog = catalog.first(known)
    if len(catalog.shards) < known or catalog.digest() != saved["catalog_digest"]:
        raise RunError(
            f"the catalog of run '{folder.path}' is not the one of its checkpoint", "restore catalog.arrows from a copy"
        )
    with understanding(checkpoint.path):
        window = schedule_of(record, catalog).window(cursor)
        require(cursor.row <= window.pieces.rows(), f"row {cursor.row} of a window of {window.pieces.rows()}")
    return Standing(folder, record, catalog, cursor, folder.encoding(record.encoding), rows, steps)


def _steps(saved: dict[str, Any]) -> int:
    return int(saved["solver"][0]["steps"])


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
        _, sizes = as_laid_out(catalog, group_sizes(catalog, record.options.weighted), record.sizes)
        check_fits(sizes, resources, record.decoder_bytes)
        source = ShardSource(standing.record, standing.catalog, standing.cursor, resources)
        return Session(
            standing.folder, standing.record, source.catalog, standing.cursor, observer, stop, resources,
            standing.encoding, source,
        )  # fmt: skip

    session = session_on(standing)
    if checkpoint is not None:
        session.restore(checkpoint, changes_sigma=growth.sigma is not None)
    report = session.run(looks_for_more=growth.follow)
    has_waited = False
    while growth.follow and report.stopped_by in (LOOK, "epochs"):
        standing = session.standing(standing)
        if report.stopped_by == LOOK:
            standing = grower.at_epochs_end(standing)
        else:
            if not has_waited:
                observer.note("all rows are used up: waiting for more (Ctrl-C or SIGTERM ends)")
                has_waited = True
            grown = grower.wait(standing, stop)
            if grown is None:
                assert stop.reason is not None
                return replace(report, stopped_by=stop.reason)
            standing = grown
        following = session_on(standing)
        following.take_over(session)
        session, report = following, following.run(looks_for_more=True)
    return report
