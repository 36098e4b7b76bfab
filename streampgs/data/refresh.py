"""What has become of a run's data since it was last looked at: found, told, and given its place in the order of rows."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampgs.data.open import grown_table
from streampgs.data.shards import schedule_of
from streampgs.encoding.encoding import Encoding
from streampgs.errors import DataChanged, DataError, OptionError, Unfinished
from streampgs.options import CATCH_UP, UNION, Growth, ModelOptions
from streampgs.order.cursor import Cursor
from streampgs.run.folder import RunFolder
from streampgs.run.history import APPENDED, CHANGED
from streampgs.run.record import RunRecord
from streampgs.run.report import Observer, StopRequest
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog, Shard, decoded_bytes, whole_shards, with_cache
from streampgs.table.changes import Changes, Watch
from streampgs.table.delta import TableChange, change_of
from streampgs.table.locate import Located, locate

_LISTED = 3
# Averages begin anew when a table grows by one part in so many. It is never worse, and after a tenth more rows three
# times nearer to the optimum (docs/growth.md); shards that trickle in must not leave averages of next to nothing.
_MUCH = 20
_LOOKING_UP_SECONDS = 0.1
_LOOKS_FOR_LOST = 4


@dataclass(frozen=True)
class Standing:
    """A run between two sessions."""

    folder: RunFolder
    record: RunRecord
    catalog: Catalog
    cursor: Cursor
    encoding: Encoding | None
    rows: int = 0
    steps: int = 0
    has_grown_much: bool = False
    """Since the session before."""

    @property
    def retired(self) -> set[int]:
        """The shards that take no more part."""
        spans = [span for arrival in self.cursor.arrivals for span in arrival.retired]
        return retired_shards(self.catalog, spans)

    def event(self, kind: str, **facts: Any) -> None:
        self.folder.append_event(kind, self.rows, self.steps, **facts)


def retired_shards(catalog: Catalog, spans: Sequence[tuple[int, int]]) -> set[int]:
    """The shards all of whose groups lie in the spans."""
    gone = np.zeros(catalog.groups + 1, np.int64)
    for first, stop in spans:
        gone[first] += 1
        gone[stop] -= 1
    kept_before = np.concatenate([[0], np.cumsum(np.cumsum(gone[:-1]) == 0)])
    starts = catalog.shard_starts
    kept = np.diff(kept_before[starts])
    return set(np.flatnonzero((kept == 0) & (np.diff(starts) > 0)).tolist())


@dataclass(frozen=True)
class _Look:
    """What the sources name, and what is different in it."""

    located: Located
    changes: Changes
    rewritten: list[TableChange]
    """Delta tables that have taken files away."""


def wait_for_the_first(sources: Sequence[str], poll_seconds: float, observer: Observer, stop: StopRequest) -> bool:
    """Until there is a shard to begin with; False on a stop."""
    told = False
    while not whole_shards(locate(sources).paths):
        if not told:
            observer.note(f"no shards in {', '.join(sources)} yet: waiting for them (Ctrl-C or SIGTERM ends)")
            told = True
        if _stopped_within(poll_seconds, stop):
            return False
    return True


def _stopped_within(seconds: float, stop: StopRequest) -> bool:
    ends = time.monotonic() + seconds
    while stop.reason is None and time.monotonic() < ends:
        time.sleep(min(_LOOKING_UP_SECONDS, seconds))
    return stop.reason is not None


class Grower:
    """Looks at what the run's sources name by now."""

    def __init__(self, growth: Growth, observer: Observer) -> None:
        self.growth = growth
        self.observer = observer
        self._watch = Watch(settling=growth.follow)
        self._told: set[str] = set()

    def after_a_pause(self, standing: Standing, stop: StopRequest) -> Standing:
        """The run on what is there now; what it needs and does not find is an error, unless that was accepted, or it
        follows and nothing is half used."""
        record = standing.record
        added = [absolute(source) for source in self.growth.add]
        record = replace(record, sources=tuple(dict.fromkeys([*record.sources, *added])))
        standing = replace(standing, record=record)
        look = self._look(standing)
        unsure = self.growth.follow and bool(look.changes.doubtful)
        if unsure and not _stopped_within(self.growth.poll_seconds, stop):
            look = self._look(standing)  # who follows tells only after two looks what has become of a shard
        changes = look.changes
        standing = self._with_known_again(standing, changes)
        goes_on = self.growth.follow and standing.cursor.begins_epoch
        accepted = set(changes.lost) if self.growth.accept_rewrite or goes_on else set()
        retired = standing.retired
        standing.catalog.check_unchanged(self.growth.accept_touched, retired | accepted)
        if self.growth.accept_touched:
            present = set(range(len(standing.catalog.shards))) - retired - accepted
            standing = replace(standing, catalog=standing.catalog.with_present_times(present))
            standing.folder.write_catalog(standing.catalog)
        begin_again = self.growth.accept_rewrite or not goes_on
        return self._grown(standing, look, accepted, begin_again=bool(accepted) and begin_again)

    def at_epochs_end(self, standing: Standing) -> Standing:
        """The same where nothing is half used: what has gone is no loss to the epoch that is over. A shard may be moved while
        it is looked at, so that faults are looked into once more."""
        for _ in range(_LOOKS_FOR_LOST - 1):
            try:
                return self._looked_at(standing)
            except DataChanged:
                raise
            except DataError:
                time.sleep(min(_LOOKING_UP_SECONDS, self.growth.poll_seconds))
        return self._looked_at(standing)

    def _looked_at(self, standing: Standing) -> Standing:
        look = self._look(standing)
        lost = set(look.changes.lost)
        standing = self._with_known_again(standing, look.changes)
        half_used = bool(lost) and not standing.cursor.begins_epoch  # a limit below what was done stops anywhere
        return self._grown(standing, look, lost, begin_again=bool(look.rewritten) or half_used)

    def wait(self, standing: Standing, stop: StopRequest) -> Standing | None:
        """As soon as there is something new; None on a stop."""
        while stop.reason is None:
            grown = self.at_epochs_end(standing)
            if grown.cursor != standing.cursor:
                return grown
            standing = grown
            _stopped_within(self.growth.poll_seconds, stop)
        return None

    def found_again(self, standing: Standing, stop: StopRequest) -> Standing | None:
        """After a shard could not be read: the run with the shards where they lie by now, if some of them were moved or
        written anew while they were in use; else None."""
        for _ in range(_LOOKS_FOR_LOST):
            look = self._look(standing)
            again = self._with_known_again(standing, look.changes)
            if again.catalog is not standing.catalog:
                return again
            if look.changes.lost or _stopped_within(self.growth.poll_seconds, stop):
                return None
        return None

    def _look(self, standing: Standing) -> _Look:
        located, catalog, retired = locate(standing.record.sources), standing.catalog, standing.retired
        changes = self._watch.look(catalog, retired, located.paths)
        numbers = {shard.path: number for number, shard in enumerate(catalog.shards) if number not in retired}
        rewritten = [change for table in located.tables if (change := change_of(table, numbers)).gone]
        if rewritten and not self.growth.accept_rewrite:
            raise DataChanged(
                "\n".join(map(str, rewritten)),
                "start a new run, or go on with what the table is now, in an epoch that begins again: --accept-rewrite",
            )
        for change in rewritten:
            changes.gone = sorted({*changes.gone, *(numbers[path] for path in change.gone)})
            self.observer.note(str(change))
        for error in changes.unfinished:
            if isinstance(error, Unfinished):
                self._tell(f"{error.found}; it is left alone until it is whole")
        for copy, original in changes.copies:
            self._tell(f"'{copy}' holds the bytes of '{original}': it is left out, its rows are there already")
        return _Look(located, changes, rewritten)

    def _tell(self, note: str) -> None:
        if note not in self._told:
            self._told.add(note)
            self.observer.note(note)

    def _with_known_again(self, standing: Standing, changes: Changes) -> Standing:
        """Shards that lie elsewhere now, and (for who follows) those that were written anew with the same content."""
        catalog = standing.catalog
        if changes.moved:
            for number, path in changes.moved.items():
                self._tell(f"shard '{catalog.shards[number].path}' lies at '{path}' now")
            catalog = catalog.with_moved(changes.moved)
        if changes.touched and self.growth.follow:
            for number in changes.touched:
                self._tell(f"shard '{catalog.shards[number].path}' was written anew with the content that it had")
            catalog = catalog.with_present_times(changes.touched)
        if catalog is standing.catalog:
            return standing
        standing.folder.write_catalog(catalog)
        return replace(standing, catalog=catalog)

    def _grown(self, standing: Standing, look: _Look, lost: Collection[int], begin_again: bool) -> Standing:
        if not look.changes.new and not lost:
            return self._not_left_waiting(standing)
        record, catalog = standing.record, standing.catalog
        encoding, notes = standing.encoding, list[str]()
        new: list[Shard] = []
        if look.changes.new:
            table = grown_table(look.changes.new, look.located.logs, record.options, encoding)
            new, encoding, notes = _with_cache(record, catalog, table.shards), table.encoding, table.notes
            record = record.grown(table.options, encoding, table.decoder_bytes)
        grown = catalog.appended(new)
        refuse_impossible(record.options, grown, self.growth.on_growth)
        spans = tuple(_span(catalog, number) for number in sorted(lost))
        gone = standing.retired | set(lost)
        if not any(shard.rows for number, shard in enumerate(grown.shards) if number not in gone):
            raise DataError(
                f"nothing is left of the data: all {len(gone)} shards have gone", "restore them, or start a new run"
            )
        schedule, shards, groups = schedule_of(record, grown), len(grown.shards), grown.groups
        if begin_again:
            cursor = schedule.begin_again(standing.cursor, shards, groups, spans)
        else:
            policy = self._policy(record.options, catalog.rows, grown.rows - catalog.rows)
            catching_up = policy == CATCH_UP
            cursor = schedule.arrive(standing.cursor, shards, groups, record.limits.epochs, catching_up, spans)
        if encoding is not None and encoding is not standing.encoding:
            standing.folder.write_encoding(encoding)
        standing.folder.write_catalog(grown)
        much = (grown.rows - catalog.rows) * _MUCH >= catalog.rows
        standing = replace(
            standing, record=record, catalog=grown, cursor=cursor, encoding=encoding, has_grown_much=much
        )
        for note in notes:
            self.observer.note(note)
        self._say(standing, catalog, lost, None if begin_again else policy)
        return standing

    def _not_left_waiting(self, standing: Standing) -> Standing:
        """Shards that wait for an epoch that is not wanted any more are one more part of the last one that is."""
        record, catalog, epochs = standing.record, standing.catalog, standing.record.limits.epochs
        if epochs is None or standing.cursor.arrivals[-1].epoch < max(1, epochs):
            return standing
        schedule = schedule_of(record, catalog)
        cursor = schedule.arrive(standing.cursor, len(catalog.shards), catalog.groups, epochs)
        return standing if cursor.arrivals[-1].epoch >= max(1, epochs) else replace(standing, cursor=cursor)

    def _policy(self, options: ModelOptions, old_rows: int, new_rows: int) -> str:
        """As measured (docs/growth.md): catching up pays until the table has more than doubled."""
        if options.sampling == "independent":
            return UNION
        return self.growth.on_growth or (CATCH_UP if new_rows <= old_rows else UNION)

    def _say(self, standing: Standing, before: Catalog, lost: Collection[int], policy: str | None) -> None:
        """`policy`: how the new join in; None where the epoch begins again."""
        catalog, arrival = standing.catalog, standing.cursor.arrivals[-1]
        new = catalog.shards[len(before.shards) :]
        counts = {"shards": len(catalog.shards), "table_rows": catalog.rows}
        if lost:
            names = [str(before.shards[number].path) for number in sorted(lost)]
            again = "; the epoch begins again" if policy is None else ""
            self.observer.note(f"{_listed(names)}: gone or replaced; they take no more part{again}")
            standing.event(CHANGED, lost_shards=names, begins_again=policy is None, **counts)
        if new:
            how = f", {arrival.copies} times in epoch {arrival.epoch + 1} to catch up" if arrival.copies > 1 else ""
            self.observer.note(
                f"{len(new)} new shards with {sum(shard.rows for shard in new):,} rows join in{how}, after "
                f"{before.rows:,} rows in {len(before.shards)} shards"
            )
            standing.event(
                APPENDED,
                added=[str(shard.path) for shard in new],
                added_rows=sum(shard.rows for shard in new),
                on_growth=policy,
                **counts,
            )


def _with_cache(record: RunRecord, catalog: Catalog, new: Sequence[Shard]) -> list[Shard]:
    cached = sum(decoded_bytes(shard) for shard in catalog.shards if shard.cached)
    limit = record.cache_limit if record.cache is not None else 0
    return with_cache(new, cached, limit)[0]


def _span(catalog: Catalog, number: int) -> tuple[int, int]:
    return int(catalog.shard_starts[number]), int(catalog.shard_starts[number + 1])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"'{name}'" for name in names[:_LISTED]) + more


def refuse_impossible(options: ModelOptions, catalog: Catalog, on_growth: str | None) -> None:
    if options.sampling != "independent":
        return
    if any(shard.decoded and not shard.cached for shard in catalog.shards):
        raise OptionError(
            "--sampling independent draws single rows, which Parquet and compressed Arrow can only give from the cache",
            "let all shards be cached (no --no-cache, a larger --cache-limit), or use --sampling epoch",
        )
    if on_growth == CATCH_UP:
        raise OptionError(
            "--on-growth catch-up with --sampling independent, which draws from all rows alike", "leave it out"
        )
