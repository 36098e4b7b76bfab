"""Shards as the data of a run: how a run on them starts, continues and grows."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streampgs.base.checks import encode, require, understanding
from streampgs.base.errors import RunError, sized
from streampgs.base.faults import exists
from streampgs.base.files import make_folder
from streampgs.data.budget import (
    COLUMN_BYTES,
    LARGEST_BLOCK,
    WHOLE_TABLE,
    Forecast,
    as_laid_out,
    check_fits,
    choose_sizes,
    group_sizes,
    refuse_too_large_table,
    shard_forecast,
)
from streampgs.data.open import OpenTable, columns_of, open_table
from streampgs.data.refresh import Refreshed, Table, wait_for_first_shard
from streampgs.data.row_form import RowForm
from streampgs.data.shards import Reading, ShardSource, TableInMemory, beginning, catalog_at, check_row
from streampgs.data.source import Source
from streampgs.engine.worker import cursor_in
from streampgs.formats.allowance import decoding_within, in_opening
from streampgs.options.commands import KEEP, Resources
from streampgs.options.solvers import SOLVERS
from streampgs.order.arrivals import USUAL_UPDATES
from streampgs.order.schedule import Sizes
from streampgs.reading.cache import remove_unused
from streampgs.reading.loader import refuse_unreadable
from streampgs.reading.placing import RowRules
from streampgs.reading.remote import refuse_remote
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.commands import TrainCall
from streampgs.run.folder import RunFolder
from streampgs.run.record import RunRecord
from streampgs.run.report import Session, StopRequest
from streampgs.run.spool import rows_in_spool
from streampgs.run.standard_input import largest_batch
from streampgs.selection.representation import chosen_encoding
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog, packed_bytes, with_cache

OWN_CACHE = "cache"
"""The folder of the cache in the folder of a run."""


@dataclass(frozen=True)
class ShardInput:
    record: RunRecord
    table: Table
    resources: Resources

    @property
    def form(self) -> RowForm:
        return RowForm(self.table.options, self.table.encoding, self.table.catalog.kind)

    def source(self, rules: RowRules) -> Source:
        record, table = self.record, self.table
        sizes = as_laid_out(table.catalog, group_sizes(table.catalog, record.options.row_values), record.sizes)[1]
        check_fits(sizes, self.resources, record.decoder_bytes)
        refuse_unreadable(table.catalog, table.schedule)
        if record.cache is not None:
            gone = [table.catalog.shards[number] for number in table.retired]
            with suppress(OSError):  # the next start tries again
                cache = Path(record.cache)
                is_own = cache.name == OWN_CACHE and exists(cache.parent / "run.arrows")
                remove_unused(cache, table.used.shards, None if is_own else gone)
        reading = Reading(record.cache, record.cache_limit, record.decoder_bytes, self.resources.budget)
        refuse_too_large_table(table.catalog, record.options, self.resources)
        kind = TableInMemory if SOLVERS[record.options.solver].needs.columns else ShardSource
        return kind(table.catalog, table.schedule, rules, table.cursor, reading)

    def facts(self) -> dict[str, Any]:
        facts = {"shards": len(self.table.used.shards)}
        return facts if self.stream_rows is None else {**facts, "stream_rows": self.stream_rows}

    @property
    def stream_rows(self) -> int | None:
        """How many rows of the stream have reached the disk; None for a run on shards."""
        return None if self.record.spool is None else rows_in_spool(Path(self.record.sources[0]))

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        catalog = self.table.catalog
        if SOLVERS[self.record.options.solver].needs.columns:
            feature_bytes += COLUMN_BYTES
        forecast = shard_forecast(
            catalog, self.table.schedule, self.record.decoder_bytes, self.resources.budget, process,
            features * feature_bytes,
        )  # fmt: skip
        reads_stream = self.record.spool is not None
        return replace(forecast, reading=forecast.reading + largest_batch(self.resources)) if reads_stream else forecast

    def remarks(self, source: Source) -> list[str]:
        rebuilt = source.rebuilt_cache_files if isinstance(source, ShardSource) else 0
        return [f"{rebuilt} damaged cache files were decoded again"] if rebuilt else []

    def refreshed(self, folder: RunFolder, refreshed: Refreshed) -> ShardInput:
        """With the table as it is now, which is written into the run's folder."""
        table = refreshed.table
        if table.encoding is not None and table.encoding is not self.table.encoding:
            folder.write_encoding(table.encoding)
        if table.catalog is not self.table.catalog:
            folder.write_catalog(table.catalog)
        return replace(self, record=self.record.of_table(table), table=table)


def open_shards(
    run: Path,
    sources: Sequence[str],
    call: TrainCall,
    session: Session,
    stop: StopRequest,
) -> OpenTable:
    """Open the shards of a new run. A run that is to grow keeps columns of one value."""
    growth, is_growing = call.growth, call.growth.follow or call.growth.spool is not None
    with decoding_within(in_opening(call.resources.budget)):
        if growth.follow and not wait_for_first_shard(sources, growth.poll_seconds, session.note, stop):
            raise RunError(f"stopped by {stop.reason} before there was any shard", "start it again when there are some")
        opened = open_table(sources, call.model, call.encoding, growing=is_growing, choose=chosen_encoding)
    session.tell(opened.notes)
    refuse_remote(opened.catalog, run, call.resources)
    session.found.ignored_files = opened.located.ignored_with_reason()
    if opened.located.ignored:
        session.note(
            f"{len(opened.located.ignored)} files were left out: their names are not those of shards. The first is "
            f"'{opened.located.ignored[0]}'"
        )
    session.tell(map(str, opened.located.tables))
    return opened


def start_on_shards(
    folder: RunFolder,
    sources: Sequence[str],
    opened: OpenTable,
    call: TrainCall,
) -> ShardInput:
    """Decide sizes and cache, and write them into the run's folder."""
    options, resources, limits = opened.options, call.resources, call.limits
    in_memory = SOLVERS[options.solver].needs.columns
    if resources.cache is not None:
        _make_cache(resources.cache)
    cache = None if resources.no_cache else str(resources.cache.absolute()) if resources.cache else OWN_CACHE
    cache_limit = 0 if in_memory else resources.cache_limit
    shards, _ = with_cache(opened.catalog.shards, 0, cache_limit if cache else 0)
    if cache is not None and limits.epochs != 1:
        cached_bytes = sum(packed_bytes(shard) for shard in shards if shard.cached)
        _refuse_full_disk(cached_bytes, resources.cache or folder.path)
    catalog = Catalog(shards)
    refuse_too_large_table(catalog, options, resources)
    groups = group_sizes(catalog, options.row_values)
    sizes = Sizes(WHOLE_TABLE, LARGEST_BLOCK) if in_memory else choose_sizes(groups, resources, opened.decoder_bytes)
    record = RunRecord(
        options,
        tuple(absolute(source) for source in sources),
        sizes,
        cache,
        cache_limit,
        limits,
        None if opened.encoding is None else opened.encoding.digest,
        opened.decoder_bytes,
        keep=resources.keep or KEEP,
        updates=USUAL_UPDATES.changed_by(call.growth),
        spool=call.growth.spool,
    )
    table = record.table(catalog, beginning(catalog), opened.encoding)
    refuse_unreadable(catalog, table.schedule)
    folder.create(encode(record), catalog, opened.encoding)
    return ShardInput(_with_cache_in_place(record, folder.path), table, resources)


def resume_on_shards(
    folder: RunFolder, record: RunRecord, checkpoint: Checkpoint | None, resources: Resources
) -> ShardInput:
    """As of the checkpoint: shards that joined later are not part of it."""
    record = _with_cache_in_place(record, folder.path)
    check_fits(record.sizes, resources, record.decoder_bytes)
    catalog = folder.catalog()
    if checkpoint is None:
        catalog = catalog.as_at_the_start() if record.spool is None else catalog.first(1)
        cursor = beginning(catalog)
    else:
        with understanding(checkpoint.path):
            section = checkpoint.sections["worker"]
            cursor = cursor_in(section)
            catalog = catalog_at(section, cursor, catalog)
    table = record.table(catalog, cursor, folder.encoding(record.encoding))
    with understanding(None if checkpoint is None else checkpoint.path):
        check_row(table.schedule, cursor)
        _require_columns(table)
    # Shards that wait are looked at again: until rows of them are used they may change.
    cursor = table.schedule.without_waiting(cursor)
    table = replace(table, cursor=cursor, catalog=catalog.first(cursor.arrivals[-1].shards))
    return ShardInput(record, table, resources)


def _require_columns(table: Table) -> None:
    """Rows of features are read by the columns of the catalog. Encoded rows look up their columns again."""
    if table.encoding is None:
        needed = columns_of(table.options, None).needed
        for shard in table.catalog.shards:
            read = {*shard.layout.columns, *(constant.name for constant in shard.layout.partitions)}
            missing = {name for name in needed if not any(name == one or name.startswith(f"{one}.") for one in read)}
            require(not missing, f"shard '{shard.path}' has no columns {sorted(missing)}")


def _with_cache_in_place(record: RunRecord, run: Path) -> RunRecord:
    """The record with the cache's folder on this machine; the run may have moved with its own one."""
    return record if record.cache is None else replace(record, cache=str((run / record.cache).absolute()))


def _make_cache(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError(
            f"the cache in '{folder}' cannot be written: {error.strerror or error}",
            "name another place with `--cache DIR`",
        ) from error


def _refuse_full_disk(cached_bytes: int, place: Path) -> None:
    """The cache decides the order of rows, so it must not depend on the free space of one machine."""
    free = shutil.disk_usage(place).free
    if cached_bytes > free:
        raise RunError(
            f"the decoded rows may take {sized(cached_bytes)} on disk, and {sized(free)} are free in '{place}'",
            "name a larger disk with `--cache DIR`; or cache less with `--cache-limit SIZE` or nothing with --no-cache: the "
            "other row groups are then decoded in every epoch, and their rows are mixed less finely",
        )
