"""What happened to a run's shards since they were last looked at: found, reported, and given a place in the order of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np

from streampgs.base.errors import DataChanged, DataError, Unfinished, counted
from streampgs.base.faults import exists
from streampgs.data.findings import Findings, unused_columns
from streampgs.data.left_out import left_out_of, pattern_of, refuse_unknown, take_out, without
from streampgs.data.open import grown_table
from streampgs.data.shards import schedule_of
from streampgs.encoding.encoding import Encoding
from streampgs.formats.format import ShardPath
from streampgs.options.commands import Growth, ModelOptions
from streampgs.options.solvers import SOLVERS
from streampgs.order.arrivals import USUAL_UPDATES, UpdateSizes
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule, Sizes
from streampgs.reading.prefetch import StopAsked
from streampgs.stores.addresses import absolute, is_address
from streampgs.table.catalog import Catalog, decoded_bytes, whole_shards, with_cache
from streampgs.table.changes import Changes, Watch, content_of
from streampgs.table.delta import TableChange, change_of
from streampgs.table.layout import NoColumn
from streampgs.table.locate import Located, NothingThere, locate

APPENDED, CHANGED = "appended", "changed"
"""Events of a run's history."""
NULL_SHARE = "null_share."
"""Before the name of a column: the share of nulls in new shards."""
_LISTED = 3
_PUT_BACK = "put the data back there, or name the place where they are now with `--data PLACE`"
_MOST_NAMES = 100  # of shards in an event of the history
_POLL_SECONDS = 0.1
_TRIES = 4


@dataclass(frozen=True)
class Table:
    """The table of a run: its shards, and where training is in their order."""

    options: ModelOptions
    sources: tuple[str, ...]
    catalog: Catalog
    cursor: Cursor
    encoding: Encoding | None
    sizes: Sizes
    cache_limit: int | None
    """Bytes of decoded rows that may be cached; None: all."""
    decoder_bytes: int = 0
    updates: UpdateSizes = USUAL_UPDATES
    left_out: tuple[str, ...] = ()
    """Shards that are not used: paths, folders and globs."""
    rejected: tuple[str, ...] = ()
    """The contents of others that are not used."""
    on_trial: dict[str, float] = field(default_factory=dict)
    """What --fail-if asks about the shards that have joined since the resume began."""

    @cached_property
    def schedule(self) -> Schedule:
        return schedule_of(self.catalog, self.options, self.sizes)

    @cached_property
    def retired(self) -> set[int]:
        """The numbers of the shards that are not trained on any more."""
        spans = [span for arrival in self.cursor.arrivals for span in arrival.retired]
        return retired_shards(self.catalog, spans)

    @property
    def used(self) -> Catalog:
        """The shards that are trained on."""
        retired = self.retired
        if not retired:
            return self.catalog
        return Catalog([shard for number, shard in enumerate(self.catalog.shards) if number not in retired])


@dataclass(frozen=True)
class Look:
    """The shards of the sources, and how they differ from the catalog."""

    located: Located
    changes: Changes
    rewritten: list[TableChange]
    """Delta tables that have removed files."""
    keeps_rows: bool = False
    """The rows of these files are in other files now, as after OPTIMIZE, which need not be visited as new rows."""

    @property
    def paths_of_kept_rows(self) -> set[ShardPath]:
        return {path for change in self.rewritten for path in change.rewritten} if self.keeps_rows else set()

    def with_new(self, paths: Sequence[ShardPath]) -> Look:
        """With these paths as the new ones."""
        return replace(self, changes=replace(self.changes, new=list(paths)))


@dataclass(frozen=True)
class Refreshed:
    table: Table
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """For the run's history."""
    new: Look | None = None
    """New shards that have not joined yet."""
    joined: str = ""
    """The new shards that have joined, in words."""


def retired_shards(catalog: Catalog, spans: Sequence[tuple[int, int]]) -> set[int]:
    """The shards whose groups are all in the spans."""
    gone = np.zeros(catalog.groups + 1, np.int64)
    for first, stop in spans:
        gone[first] += 1
        gone[stop] -= 1
    kept_before = np.concatenate([[0], np.cumsum(np.cumsum(gone[:-1]) == 0)])
    starts = catalog.shard_starts
    kept = np.diff(kept_before[starts])
    return set(np.flatnonzero((kept == 0) & (np.diff(starts) > 0)).tolist())


def wait_for_first_shard(
    sources: Sequence[str], poll_seconds: float, note: Callable[[str], None], stop: StopAsked
) -> bool:
    """False on a stop."""
    noted = False
    while not whole_shards(locate(sources).paths):
        if not noted:
            note(f"no shards in {', '.join(sources)} yet: waiting for them (Ctrl-C or SIGTERM ends)")
            noted = True
        if _stopped_within(poll_seconds, stop):
            return False
    return True


def _stopped_within(seconds: float, stop: StopAsked) -> bool:
    ends = time.monotonic() + seconds
    while stop.reason is None and time.monotonic() < ends:
        time.sleep(min(_POLL_SECONDS, seconds))
    return stop.reason is not None


class Refresher:
    """Looks at the sources of a run again, and gives the run's table as it is now."""

    def __init__(self, growth: Growth, note: Callable[[str], None], found: Findings) -> None:
        self.growth = growth
        self.note = note
        self.found = found
        self._watch = Watch(settling=growth.follow)
        self._noted: set[str] = set()

    # When.

    def check_left_out(self, sources: Sequence[str], catalog: Catalog | None) -> None:
        """The names that were given to --leave-out are those of shards."""
        given = self.growth
        if given.leave_out and catalog is not None:
            located = locate([*map(absolute, given.data or sources), *map(absolute, given.add)])
            refuse_unknown(given.leave_out, [*(shard.path for shard in catalog.shards), *located.paths])

    def after_pause(self, table: Table, stop: StopAsked) -> Refreshed:
        """A shard that is needed and missing is an error, unless that was accepted, or the run follows its sources and is
        at the beginning of an epoch."""
        table = self._with_sources(table)
        try:
            look = self._look(table)
        except NothingThere as error:
            raise DataError(f"{error.found}, and the run trains on it", _PUT_BACK) from error
        left_out = set(left_out_of(table.catalog, table.retired, table.left_out))
        unsure = self.growth.follow and bool(look.changes.doubtful)
        if unsure and not _stopped_within(self.growth.poll_seconds, stop):
            look = self._look(table)  # only two looks in a row decide what happened to a shard
        table = self._with_known_again(table, look.changes)
        tolerated = self.growth.follow and table.cursor.begins_epoch
        accepted = left_out | set(look.changes.gone if self.growth.accept_removed else ())
        accepted |= set(look.changes.lost if self.growth.accept_changes or tolerated else ())
        if look.keeps_rows:
            gone = {path for change in look.rewritten for path in change.gone}
            accepted |= {number for number in look.changes.gone if table.catalog.shards[number].path in gone}
        if self.growth.data:
            _refuse_missing(table, look.changes, accepted)
        retired = table.retired
        table.catalog.check_unchanged(self.growth.accept_touched, retired | accepted)
        if self.growth.accept_touched:
            # Whether a file without rows is there makes no difference, and another one may have its name by now.
            present = {number for number, shard in enumerate(table.catalog.shards) if shard.rows} - retired - accepted
            table = replace(table, catalog=table.catalog.with_present_times(present))
        if self.growth.add and look.changes.new:
            self._with_new_shards(table, look)  # a source that cannot be used must not be recorded with the run
        return self._without(table, look, accepted)

    def _with_sources(self, table: Table) -> Table:
        """With the sources and the left out shards that were given."""
        given = self.growth
        if given.data:
            table = replace(table, sources=tuple(map(absolute, given.data)))
        for source in table.sources:
            if not is_address(source) and not has_magic(source) and not exists(source):
                raise DataError(f"'{source}' does not exist, and the run trains on it", _PUT_BACK)
        sources = dict.fromkeys([*table.sources, *map(absolute, given.add)])
        known = [shard.path for shard in table.catalog.shards]
        left_out = dict.fromkeys([*table.left_out, *(pattern_of(one, known) for one in given.leave_out)])
        return replace(table, sources=tuple(sources), left_out=tuple(left_out))

    def at_epoch_end(self, table: Table) -> Refreshed:
        """No shard is half used, so a missing shard does not affect the epoch that is over. A shard may be moved during the
        look, so errors are followed by another look."""
        for _ in range(_TRIES - 1):
            try:
                return self._looked_at(table)
            except DataChanged:
                raise
            except DataError:
                time.sleep(min(_POLL_SECONDS, self.growth.poll_seconds))
        return self._looked_at(table)

    def _looked_at(self, table: Table) -> Refreshed:
        look = self._look(table)
        left = self._without(self._with_known_again(table, look.changes), look, set(look.changes.lost))
        if left.new is None:
            return left
        grown = self.with_new(left.table, left.new)
        return replace(grown, events=[*left.events, *grown.events])

    def look_for_new(self, table: Table) -> Look | None:
        """The new shards; shards that are lost matter at the next resume."""
        look = self._look(table)
        return look if look.changes.new else None

    def wait(self, table: Table, stop: StopAsked) -> Refreshed | None:
        """As soon as there are rows to train on; None on a stop."""
        while stop.reason is None:
            refreshed = self.at_epoch_end(table)
            if refreshed.table.cursor != table.cursor:
                return refreshed
            table = refreshed.table
            _stopped_within(self.growth.poll_seconds, stop)
        return None

    def found_again(self, table: Table, stop: StopAsked) -> Refreshed | None:
        """After a shard could not be read: the table with the shards at their present paths, if some were moved or
        rewritten while they were in use; else None."""
        for _ in range(_TRIES):
            look = self._look(table)
            again = self._with_known_again(table, look.changes)
            if again.catalog is not table.catalog:
                return Refreshed(again)
            if look.changes.lost or _stopped_within(self.growth.poll_seconds, stop):
                return None
        return None

    # Find.

    def _look(self, table: Table) -> Look:
        located, catalog, retired = locate(table.sources), table.catalog, table.retired
        paths = without(located.paths, table.left_out)
        changes = self._watch.look(catalog, retired, paths, only_listed=bool(self.growth.data))
        take_out(changes, catalog, retired, table.left_out)
        self._leave_out_rejected(table, changes)
        numbers = {shard.path: number for number, shard in enumerate(catalog.shards) if number not in retired}
        rewritten = [change for listed in located.tables if (change := change_of(listed, numbers)).gone]
        is_between = table.cursor.begins_epoch and table.cursor.epoch > 0
        keeps_rows = is_between and all(
            change.rewritten and set(change.rewritten) <= set(changes.new) for change in rewritten
        )
        only_removed = all(change.only_removes for change in rewritten)
        accepts = self.growth.accept_changes or (self.growth.accept_removed and only_removed)
        if rewritten and not accepts and not keeps_rows:
            option = "--accept-removed" if only_removed else "--accept-changes"
            raise DataChanged(
                [line for change in rewritten for line in change.lines],
                f"start a new run, or continue with the table as it is now: {option}",
            )
        for change in rewritten:
            changes.gone = sorted({*changes.gone, *(numbers[path] for path in change.gone)})
            self.note(str(change))
        for error in changes.unfinished:
            if isinstance(error, Unfinished):
                self._note_once(f"{error.found}; it is left out until it is complete")
        self.found.incomplete_files = [str(path) for path in changes.incomplete]
        for copy, original in changes.copies:
            self._note_once(f"'{copy}' is a copy of '{original}': it is left out, its rows are in the table already")
            self.found.ignored_files[str(copy)] = f"a copy of '{original}'"
        self.found.ignored_files.update(located.ignored_with_reason())
        self.found.ignored_files.update(dict.fromkeys(map(str, set(located.paths) - set(paths)), "it was left out"))
        return Look(located, changes, rewritten, keeps_rows and bool(rewritten))

    def _leave_out_rejected(self, table: Table, changes: Changes) -> None:
        if not table.rejected:
            return
        rejected = [path for path in changes.new if content_of(path) in table.rejected]
        changes.new = [path for path in changes.new if path not in rejected]
        self.found.rejected_shards = [str(path) for path in rejected]
        if rejected:
            self._note_once(
                f"left out, because a resume with them was rejected: {listed(self.found.rejected_shards)}; fix or "
                "remove these files, or train on them: --accept-rejected"
            )

    def _note_once(self, note: str) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self.note(note)

    def _with_known_again(self, table: Table, changes: Changes) -> Table:
        """With moved shards at their new paths, and, when following, rewritten shards of the same content."""
        catalog = table.catalog
        if changes.moved:
            for number, path in list(changes.moved.items())[:_LISTED]:
                self._note_once(f"shard '{catalog.shards[number].path}' has moved to '{path}'")
            if len(changes.moved) > _LISTED:
                self._note_once(f"{counted(len(changes.moved) - _LISTED, 'other shard')} moved, too")
            catalog = catalog.with_moved(changes.moved)
        if changes.touched and self.growth.follow:
            for number in changes.touched:
                self._note_once(f"shard '{catalog.shards[number].path}' was rewritten with the same content")
            catalog = catalog.with_present_times(changes.touched)
        return table if catalog is table.catalog else replace(table, catalog=catalog)

    # Place.

    def _without(
        self, table: Table, look: Look, lost: Collection[int], why: str = "gone, replaced or left out"
    ) -> Refreshed:
        """The table without the lost shards."""
        new = look if look.changes.new else None
        catalog, starts = table.catalog, table.catalog.shard_starts.tolist()
        if look.keeps_rows:
            return self._compacted(table, look, lost)
        if new is None:
            _refuse_empty(catalog, table.retired | set(lost))
        if not lost:
            return Refreshed(table, new=new)
        spans = tuple((starts[number], starts[number + 1]) for number in sorted(lost))
        before = _before_lost_rows(table, spans)
        if before != table.cursor:
            again = counted(table.cursor.row, "row")
            self.note(f"the window in use has rows of these shards: it starts again without them, after {again} of it")
        cursor = table.schedule.arrive(before, len(catalog.shards), catalog.groups, retired=spans)
        left = replace(table, cursor=cursor)
        return Refreshed(left, [self._report_lost(left, lost, why)], new)

    def _compacted(self, table: Table, look: Look, lost: Collection[int]) -> Refreshed:
        """The table with the shards that have the rows of lost ones."""
        moved = [path for path in look.changes.new if path in look.paths_of_kept_rows]
        rest = [path for path in look.changes.new if path not in look.paths_of_kept_rows]
        grown = self._with_new_shards(table, look.with_new(moved))
        starts = table.catalog.shard_starts.tolist()
        spans = tuple((starts[number], starts[number + 1]) for number in sorted(lost))
        shards, groups = len(grown.catalog.shards), grown.catalog.groups
        cursor = grown.schedule.arrive(table.cursor, shards, groups, retired=spans, are_old=True)
        names = [str(table.catalog.shards[number].path) for number in sorted(lost)]
        self.note(
            f"the rows of {counted(len(lost), 'shard')} are in {counted(len(moved), 'other shard')} now: none is new"
        )
        event = CHANGED, {**_named("lost", names), "lost_rows": 0, **_counts(grown.catalog)}
        return Refreshed(replace(grown, cursor=cursor), [event], look.with_new(rest) if rest else None)

    def with_one(self, table: Table, path: Path, leaving: Collection[int]) -> Refreshed:
        """The table with one more shard of a stream, and without those that leave its spool."""
        look = Look(locate([str(path)]), Changes(new=[path]), [])
        left = self._without(table, look, leaving, "removed from the spool")
        grown = self.with_new(left.table, look)
        return replace(grown, events=[*left.events, *grown.events])

    def with_new(self, table: Table, look: Look) -> Refreshed:
        """The table with the new shards; the cursor is at a place where they join."""
        grown = self._with_new_shards(table, look)
        _refuse_empty(grown.catalog, grown.retired)
        shards, groups = len(grown.catalog.shards), grown.catalog.groups
        by_passes = SOLVERS[table.options.solver].needs.passes
        cursor = grown.schedule.arrive(table.cursor, shards, groups, None if by_passes else table.updates)
        if by_passes:
            last = replace(cursor.arrivals[-1], until=table.cursor.epoch + table.updates.passes)
            cursor = replace(cursor, arrivals=(*cursor.arrivals[:-1], last))
        grown = replace(grown, cursor=cursor)
        event, text = self._report_new(table, grown)
        return Refreshed(grown, [event], joined=text)

    def _with_new_shards(self, table: Table, look: Look) -> Table:
        try:
            opened = grown_table(look.changes.new, look.located.logs, table.options, table.encoding)
        except NoColumn as error:
            raise DataError(
                error.found, f"the run needs '{error.name}' in every shard: add the column, or move the file elsewhere"
            ) from error
        cached = sum(decoded_bytes(shard) for shard in table.catalog.shards if shard.cached)
        shards, _ = with_cache(opened.shards, cached, table.cache_limit)
        for note in opened.notes:
            self._note_once(note)
        self.found.ignored_columns.update(unused_columns(opened.ignored))
        self.found.missing_columns = list(dict.fromkeys([*self.found.missing_columns, *opened.missing]))
        self.found.new_columns += opened.joined
        self.found.changed_nulls.update(opened.changed_nulls)
        facts: dict[str, float] = {"missing_columns": len(opened.missing), "new_columns": len(opened.joined)}
        facts |= {f"{NULL_SHARE}{name}": share for name, share in opened.null_shares.items() if share}
        before = table.on_trial
        return replace(
            table,
            options=opened.options,
            encoding=opened.encoding,
            catalog=table.catalog.appended(shards),
            decoder_bytes=max(table.decoder_bytes, opened.decoder_bytes),
            on_trial=before | {name: max(value, before.get(name, 0.0)) for name, value in facts.items()},
        )

    # Report.

    def _report_lost(self, table: Table, lost: Collection[int], why: str) -> tuple[str, dict[str, Any]]:
        names = [str(table.catalog.shards[number].path) for number in sorted(lost)]
        rows = sum(table.catalog.shards[number].rows for number in lost)
        self.note(
            f"{listed(names)}: {why}; {counted(rows, 'row')} no longer trained on, the model keeps what it has learned from "
            "them"
        )
        self.found.lost_shards += names
        return CHANGED, {**_named("lost", names), "lost_rows": rows, **_counts(table.used)}

    def _report_new(self, before: Table, table: Table) -> tuple[tuple[str, dict[str, Any]], str]:
        new = table.catalog.shards[len(before.catalog.shards) :]
        added = sum(shard.rows for shard in new)
        names = [str(shard.path) for shard in new]
        self.found.new_shards += names
        self.found.new_rows += added
        left_out = sum(shard.left_out for shard in new)
        text = _arrival_text(before.used, len(new), added, table.cursor.arrivals[-1])
        text += f"; {counted(left_out, 'row')} left out by --where" if left_out else ""
        return (APPENDED, {**_named("added", names), "added_rows": added, **_counts(table.used)}), text


def _counts(catalog: Catalog) -> dict[str, Any]:
    return {"shards": len(catalog.shards), "table_rows": catalog.rows}


def _refuse_empty(catalog: Catalog, retired: Collection[int]) -> None:
    if not any(shard.rows for number, shard in enumerate(catalog.shards) if number not in retired):
        raise DataError(f"all {len(retired)} shards are gone", "restore them, or start a new run")


def _refuse_missing(table: Table, changes: Changes, accepted: Collection[int]) -> None:
    """The shards must be in the new places: those in the old ones are not read any more."""
    lost = [number for number in changes.lost if number not in accepted]
    if lost:
        option = "--accept-removed" if set(lost) <= set(changes.gone) else "--accept-changes"
        names = [str(table.catalog.shards[number].path) for number in lost]
        raise DataChanged(
            f"{counted(len(names), 'shard')} of the run cannot be found in {', '.join(table.sources)}: {listed(names)}",
            f"copy them there, or continue without them: {option}",
        )


def _named(what: str, names: list[str]) -> dict[str, Any]:
    """Shards in an event: their number and the first names."""
    return {f"{what}_shards": len(names), f"{what}_names": names[:_MOST_NAMES]}


def _before_lost_rows(table: Table, lost: Sequence[tuple[int, int]]) -> Cursor:
    """The cursor; at the beginning of its window if that cannot be filled any more, because it has rows of lost shards."""
    cursor = table.cursor
    if not lost or cursor.row == 0:
        return cursor
    groups = table.schedule.window(cursor).pieces.group
    return cursor.at_row(0) if any(((first <= groups) & (groups < stop)).any() for first, stop in lost) else cursor


def _arrival_text(before: Catalog, shards: int, rows: int, arrival: Arrival) -> str:
    if not rows:
        return f"{counted(shards, 'new shard')} without rows"
    text = f"{counted(shards, 'new shard')} with {counted(rows, 'row')}"
    if arrival.passes:
        times = "once" if arrival.passes == 1 else f"{arrival.passes} times"
        text += f", trained on {times} in an update"
    return f"{text}; there were {counted(before.rows, 'row')} in {counted(len(before.shards), 'shard')} before"


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"'{name}'" for name in names[:_LISTED]) + more
