"""Rows of shards, in an order without end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.data.budget import decoders_for, group_sizes
from streampgs.data.memory import window_of
from streampgs.kernels.randomness import shuffled
from streampgs.kernels.rows import Rows
from streampgs.options.commands import ModelOptions
from streampgs.order.arrivals import owed_until
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Schedule, Sizes, UpdatePass, WindowSpan
from streampgs.reading.cache import BlockCache
from streampgs.reading.loader import WindowFiller
from streampgs.reading.placing import RowRules
from streampgs.reading.prefetch import Pipeline, StopAsked
from streampgs.reading.remote import copies_folder, copies_of
from streampgs.reading.window import Window
from streampgs.table.catalog import Catalog


@dataclass(frozen=True)
class Reading:
    """What reading may use."""

    cache: str | None
    """The folder of decoded blocks and of copies of remote shards."""
    cache_limit: int | None
    decoder_bytes: int
    """The memory that decoding a group takes."""
    memory: int


class ShardSource:
    def __init__(
        self,
        catalog: Catalog,
        schedule: Schedule,
        rules: RowRules,
        cursor: Cursor,
        reading: Reading,
    ) -> None:
        self._catalog = catalog if reading.cache is None else catalog.with_copies_in(copies_folder(reading.cache))
        self._schedule = schedule
        self._rules = rules
        self._last_epoch: int | None = None
        self._reading = reading
        self._digest = catalog.digest(cursor.arrivals[-1].shards)
        self._cache = BlockCache(Path(reading.cache)) if reading.cache is not None else None
        self._pipeline: Pipeline | None = None
        self._next: Cursor | None = None
        """Where the pipeline's next window begins."""
        self._waited = 0.0
        self._filler = self._new_filler()
        self.epoch_rows = schedule.rows_in_epoch(cursor)

    def _new_filler(self) -> WindowFiller:
        return WindowFiller(
            self._catalog,
            self._schedule.slice_rows,
            self._rules,
            self._cache,
            copies_of(self._catalog, self._reading.cache, self._reading.cache_limit),
            decoders_for(self._reading.decoder_bytes, self._reading.memory),
        )

    @property
    def seconds_waiting(self) -> float:
        return self._waited + (self._pipeline.seconds_waiting if self._pipeline is not None else 0.0)

    @property
    def rebuilt_cache_files(self) -> int:
        return self._cache.rebuilt if self._cache is not None else 0

    def prepare(self, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch
        self._filler.warm_up()

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        start = cursor.at_row(0)
        if self._pipeline is not None and start != self._next:
            self.close()
            self._filler = self._new_filler()
        if self._pipeline is None:
            last_epoch = None if self._last_epoch is None else max(self._last_epoch, owed_until(start))
            self._pipeline = Pipeline(self._filler, self._schedule, start, last_epoch)
        window = self._pipeline.next(stop)
        if window is not None:
            assert window.span is not None
            self._next = window.span.next
        return window

    def release(self, window: Window) -> None:
        assert self._pipeline is not None
        self._pipeline.release(window)

    def close(self) -> None:
        if self._pipeline is not None:
            self._waited = self.seconds_waiting
            self._pipeline.close()
            self._pipeline = None

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        return cursor.epoch + self._schedule.epoch_fraction(cursor, self._position(cursor, window))

    def update_rows(self, cursor: Cursor, window: Window | None) -> tuple[float, float] | None:
        return self._schedule.update_rows(cursor, self._position(cursor, window))

    def _position(self, cursor: Cursor, window: Window | None) -> float:
        """The position of the cursor's row in its part."""
        if window is None or window.span is None or not cursor.row:
            return float(cursor.position)
        following = window.span.next
        same_part = (following.epoch, following.part) == (cursor.epoch, cursor.part)
        end = following.position if same_part else self._schedule.part_length(cursor)
        return cursor.position + (end - cursor.position) * cursor.row / len(window)

    def has_done(self, cursor: Cursor, epochs: int) -> bool:
        return cursor.epoch >= max(epochs, owed_until(cursor)) and not cursor.part

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        return self._schedule.update_pass(cursor)

    def state(self) -> Bundle:
        return Bundle({"catalog_digest": self._digest})

    def restore(self, bundle: Bundle) -> None:
        """The cursor says everything; `catalog_at` has found its catalog."""


class TableInMemory(ShardSource):
    """A window has all rows of an epoch: the schedule has windows of the whole table. They are read once, and kept in the
    order of the table."""

    _rows: Rows | None = None
    _groups: NDArray[np.int64] = np.empty(0, np.int64)
    """The groups of the rows."""

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        start = cursor.at_row(0)
        if stop.reason is not None or (self._last_epoch is not None and self.has_done(start, self._last_epoch)):
            return None
        plan = self._schedule.window(start)
        groups, read = np.unique(plan.pieces.group), None
        if self._rows is None or not np.array_equal(groups, self._groups):
            self._rows = None
            read = self._read(start, stop)
            if read is None:
                return None
            self._rows, self._groups = _in_table_order(read), groups
        order = shuffled(np.uint64(plan.shuffle_key), len(self._rows))
        found = window_of(self._rows, order, WindowSpan(plan.start, plan.next, plan.shuffle_key))
        if read is not None:
            found.counts = read.counts
        return found

    def _read(self, start: Cursor, stop: StopAsked) -> Window | None:
        pipeline = Pipeline(self._filler, self._schedule, start, start.epoch + 1)
        read = pipeline.next(stop)
        self._waited += pipeline.seconds_waiting
        pipeline.close()
        self._filler = self._new_filler()
        return read

    def release(self, window: Window) -> None:
        """Its rows are those of the next one."""


def _in_table_order(window: Window) -> Rows:
    numbers = window.numbers
    order = np.argsort(numbers)
    numbers = numbers[order]
    return replace(window.at(order), number_rows=lambda: numbers)


def schedule_of(catalog: Catalog, options: ModelOptions, sizes: Sizes) -> Schedule:
    return Schedule(options.seed, group_sizes(catalog, options.row_values), sizes)


def beginning(catalog: Catalog) -> Cursor:
    """The cursor before the first row."""
    return Cursor((Arrival(0, 0, len(catalog.shards), catalog.groups),))


def catalog_at(bundle: Bundle, cursor: Cursor, catalog: Catalog) -> Catalog:
    """The part of the run's catalog that was known when a checkpoint was written, by the worker's section."""
    _check_cursor(cursor, catalog)
    known = catalog.first(cursor.arrivals[-1].shards)
    if known.digest() != bundle.values["catalog_digest"]:
        raise RunError("the catalog of the run is not the one of its checkpoint", "restore catalog.arrows from a copy")
    return known


def _check_cursor(cursor: Cursor, catalog: Catalog) -> None:
    """It is about shards of the catalog, in the order in which they joined."""
    require(len(cursor.arrivals) > 0, "no arrival of shards")
    places = [arrival.place for arrival in cursor.arrivals]
    require(places == sorted(places), "arrivals in another order than their places")
    require(places[0] <= cursor.place, "a place before the first arrival")
    known = 0
    for arrival in cursor.arrivals:
        require(known <= arrival.shards <= len(catalog.shards), f"an arrival of shards up to {arrival.shards}")
        require(arrival.groups == int(catalog.shard_starts[arrival.shards]), f"an arrival of {arrival.groups} groups")
        require(arrival.since <= arrival.groups, "an arrival with invalid counts")
        require(arrival.part > 0 or not arrival.passes, "an update in an epoch")
        for first, stop in arrival.retired:
            require(0 <= first <= stop <= arrival.groups, f"retired groups {first} to {stop}")
        known = arrival.shards


def check_row(schedule: Schedule, cursor: Cursor) -> None:
    """The cursor's row is a row of its window. There is none if all shards are gone, and others have not joined yet."""
    if cursor.begins_epoch and schedule.rows_in_epoch(cursor) == 0:
        return
    rows = schedule.window(cursor).pieces.rows()
    require(cursor.row <= rows, f"row {cursor.row} of a window of {rows}")
