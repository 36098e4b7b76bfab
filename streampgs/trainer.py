"""How a run starts and goes on: its folder, its lock, its catalog, and what has come since."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streampgs.encoding.encoding import Encoding
from streampgs.errors import OptionError, RunError
from streampgs.opening import columns_of, open_table
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.order.cursor import Arrival, Cursor
from streampgs.planning import (
    check_fits,
    choose_sizes,
    group_sizes,
)
from streampgs.progress import Observer, Report, Silent, StopRequest
from streampgs.reading.filler import refuse_unreadable
from streampgs.reading.remote import refuse_remote
from streampgs.run import cache_place
from streampgs.run.folder import RunFolder, RunLock
from streampgs.run.record import RunRecord
from streampgs.run.understood import check_cursor, typed, understanding
from streampgs.session import Session, schedule_of
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog, decoded_bytes, read_shards, with_cache
from streampgs.table.locate import locate


def train(
    sources: Sequence[str],
    run: Path,
    options: ModelOptions,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    encoding_options: EncodingOptions | None = None,
) -> Report:
    """Start a run on the shards that `sources` name, and train until a limit or a stop."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    observer = observer or Silent()
    if limits.target_accuracy is not None and not options.classifies:
        raise OptionError(
            f"--target-accuracy with --loss {options.losses[0]}, which does not classify",
            "use --target-gap, --epochs or --seconds",
        )
    table = open_table(sources, options, encoding_options or EncodingOptions())
    catalog, located, options, encoding = table.catalog, table.located, table.options, table.encoding
    for note in table.notes:
        observer.note(note)
    refuse_remote(catalog, run, resources)
    if located.ignored:
        observer.note(
            f"{len(located.ignored)} files that are no shards by their names were left out, '{located.ignored[0]}' first"
        )
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
        _refuse_impossible(options, catalog)
        refuse_unreadable(catalog, schedule_of(record, catalog))
        if encoding is not None:
            folder.write_encoding(encoding)
        folder.create(record.to_json(), catalog)
        cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
        record = _with_cache_in_place(record, run, observer)
        session = Session(folder, record, catalog, cursor, observer, stop or StopRequest(), resources, encoding)
        return session.run()


def resume(
    run: Path,
    limits: Limits,
    resources: Resources,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    on_bad_row: str | None = None,
    accept_touched: bool = False,
) -> Report:
    """Go on with a run, on what it was started with and on the shards that have come since."""
    folder = RunFolder(run)
    observer = observer or Silent()
    record = folder.run_record()
    with RunLock(run):
        record = _with_cache_in_place(record, run, observer)
        check_fits(record.sizes, resources, record.decoder_bytes)
        encoding = folder.encoding(record.encoding)
        checkpoint = folder.newest_checkpoint()
        for path, why in checkpoint.damaged if checkpoint else ():
            observer.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
        catalog = folder.catalog()
        if checkpoint is None:
            cursor = Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))
        else:
            with understanding(checkpoint.path):
                options = typed(ModelOptions.from_json(checkpoint.record["options"]))
                record = replace(record, options=options, limits=typed(Limits(**checkpoint.record["limits"])))
                cursor = Cursor.from_json(checkpoint.record["cursor"])
                check_cursor(cursor, catalog)
            known = cursor.arrivals[-1].shards
            catalog = catalog.first(known)
            if len(catalog.shards) < known or catalog.digest() != checkpoint.record["catalog_digest"]:
                raise RunError(
                    f"the catalog of run '{run}' is not the one of its checkpoint",
                    "restore catalog.arrows from a copy",
                )
        if limits.given:
            record = replace(record, limits=limits)
        if on_bad_row is not None:
            record = replace(record, options=replace(record.options, on_bad_row=on_bad_row))
        catalog.check_unchanged(accept_touched)
        if accept_touched:
            catalog = catalog.with_present_times()
            folder.write_catalog(catalog)
        catalog, cursor = _admit_new_shards(folder, record, catalog, cursor, observer, encoding)
        session = Session(folder, record, catalog, cursor, observer, stop or StopRequest(), resources, encoding)
        if checkpoint is not None:
            session.restore(checkpoint)
        return session.run()


def _with_cache_in_place(record: RunRecord, run: Path, observer: Observer) -> RunRecord:
    """The record with the place of its cache on this machine."""
    if record.cache is None:
        return record
    with understanding(run / "run.arrows"):
        place, note = cache_place.place(run, record.cache)
    if note is not None:
        observer.note(note)
    return replace(record, cache=str(place))


def _refuse_impossible(options: ModelOptions, catalog: Catalog) -> None:
    if options.sampling == "independent" and any(shard.decoded and not shard.cached for shard in catalog.shards):
        raise OptionError(
            "--sampling independent draws single rows, which Parquet and compressed Arrow can only give from the cache",
            "let all shards be cached (no --no-cache, a larger --cache-limit), or use --sampling epoch",
        )


def _admit_new_shards(
    folder: RunFolder,
    record: RunRecord,
    catalog: Catalog,
    cursor: Cursor,
    observer: Observer,
    encoding: Encoding | None,
) -> tuple[Catalog, Cursor]:
    """Append the shards that the run's sources name by now to the catalog; they join in at the next window."""
    known = {shard.path for shard in catalog.shards}
    paths = [path for path in locate(record.sources).paths if path not in known]
    if not paths:
        return catalog, cursor
    cached = sum(decoded_bytes(shard) for shard in catalog.shards if shard.cached)
    limit = record.cache_limit if record.cache is not None else 0
    new, _ = with_cache(read_shards(paths, columns_of(record.options, encoding)), cached, limit)
    grown = catalog.appended(new)
    _refuse_impossible(record.options, grown)
    schedule = schedule_of(record, grown)
    cursor = schedule.arrive(cursor, len(grown.shards), grown.groups)
    folder.write_catalog(grown)
    observer.note(
        f"{len(new)} new shards with {sum(shard.rows for shard in new):,} rows join in, after {catalog.rows:,} rows "
        f"in {len(catalog.shards)} shards"
    )
    return grown, cursor
