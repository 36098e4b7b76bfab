"""Where the windows of a session come from: shards in an order without end, or whatever else gives windows in an order
that a cursor can name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from streampgs.data.budget import (
    BLOCKS_NEEDED,
    Forecast,
    as_laid_out,
    decoders_for,
    decoding_bytes,
    download_bytes,
    forecast,
    group_sizes,
)
from streampgs.options import Resources
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule
from streampgs.reading.cache import BlockCache
from streampgs.reading.loader import RowRules, WindowFiller, refuse_unreadable
from streampgs.reading.prefetch import Pipeline
from streampgs.reading.remote import copies_folder, copies_of
from streampgs.reading.window import Window
from streampgs.run.record import RunRecord
from streampgs.run.report import StopRequest
from streampgs.run.words import cache_choice, data_choice, window_choice
from streampgs.stage import Bundle
from streampgs.table.catalog import Catalog


class Source(Protocol):
    ends: str
    """What is said to have stopped training when there are no more windows."""
    epoch_rows: int
    """Rows of an epoch, or what stands for them."""

    @property
    def seconds_waiting(self) -> float:
        """How long `next` took, in all."""

    def prepare(self, rules: RowRules, last_epoch: int | None) -> None:
        """Load, or compile, what is needed; reading ends before the last epoch."""

    def start(self, cursor: Cursor) -> None:
        """Begin with the window that starts at the cursor, whose row is not looked at."""

    def next(self, stop: StopRequest) -> Window | None:
        """The next window, to be given back with `release`; None when there is none, or on a stop."""

    def release(self, window: Window) -> None: ...

    def close(self) -> None: ...

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        """Epochs done, with the part of the present one; `window` is the present one."""

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        """What the process will use at its peak."""

    def choices(self, window: Window, features: int, epochs_left: int | None) -> dict[str, str]:
        """In words, 'data' first."""

    def hints(self, window: Window) -> list[str]:
        """What a user may have overlooked, seen from the first window."""

    def remarks(self) -> list[str]:
        """What is to be said of the session when it is over."""

    @property
    def taken(self) -> int | None:
        """Rows of a stream that the model has seen or that `save` would keep; None: no stream."""

    @property
    def has_unsaved(self) -> bool:
        """Whether there is more to save than when `save` was last called, though training has come no further."""

    def state(self) -> Bundle | None:
        """Its section of a checkpoint; None: the cursor is enough."""


class ShardSource:
    ends = "epochs"

    def __init__(self, record: RunRecord, catalog: Catalog, cursor: Cursor, resources: Resources) -> None:
        self.record = record
        self.catalog = catalog.with_copies_in(copies_folder(record.cache)) if record.cache is not None else catalog
        self.resources = resources
        self.schedule = schedule_of(record, catalog)
        self.epoch_rows = self.schedule.rows_in_epoch(cursor)
        refuse_unreadable(catalog, self.schedule)
        self._cache = BlockCache(Path(record.cache)) if record.cache is not None else None
        self._filler: WindowFiller | None = None
        self._pipeline: Pipeline | None = None
        self._last_epoch: int | None = None

    @property
    def seconds_waiting(self) -> float:
        return self._pipeline.seconds_waiting if self._pipeline is not None else 0.0

    def prepare(self, rules: RowRules, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch
        self._filler = WindowFiller(
            self.catalog,
            self.schedule.slice_rows,
            rules,
            self._cache,
            copies_of(self.catalog, self.record.cache, self.record.cache_limit),
            decoders_for(self.record.decoder_bytes, self.resources.memory),
        )
        self._filler.warm_up()

    def start(self, cursor: Cursor) -> None:
        assert self._filler is not None
        self._pipeline = Pipeline(self._filler, self.schedule, cursor.at_row(0), self._last_epoch)

    def next(self, stop: StopRequest) -> Window | None:
        assert self._pipeline is not None
        return self._pipeline.next(stop)

    def release(self, window: Window) -> None:
        assert self._pipeline is not None
        self._pipeline.release(window)

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        position = float(cursor.position)
        if window is not None and window.plan is not None and cursor.row > 0:
            following = window.plan.next
            same_part = (following.epoch, following.part) == (cursor.epoch, cursor.part)
            end = following.position if same_part else self.schedule.part_length(cursor)
            position += (end - position) * cursor.row / window.rows
        return cursor.epoch + self.schedule.epoch_fraction(cursor, position)

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        groups, sizes = as_laid_out(self.catalog, self.schedule.groups, self.record.sizes)
        decoding = decoding_bytes(self.catalog, groups, self.record.decoder_bytes, self.resources.memory)
        held = decoding, download_bytes(self.catalog)
        return forecast(groups, sizes, process, features, feature_bytes, *held)

    def choices(self, window: Window, features: int, epochs_left: int | None) -> dict[str, str]:
        assert window.plan is not None
        sampling = self.record.options.sampling
        return {
            "data": data_choice(self.catalog, features),
            "window": window_choice(self.record.sizes, window.rows, window.plan.blocks, self._is_all(window), sampling),
            "cache": cache_choice(self.catalog, self.record.cache, epochs_left),
        }

    def hints(self, window: Window) -> list[str]:
        assert window.plan is not None
        blocks = window.plan.blocks
        if blocks >= BLOCKS_NEEDED or self._is_all(window):
            return []
        return [
            f"blocks mixed by the first window: {blocks} (64 and more mix well). If the shards are sorted, the model may "
            "suffer until later epochs: streampgs inspect DATA tells; more --memory helps"
        ]

    def remarks(self) -> list[str]:
        rebuilt = self._cache.rebuilt if self._cache is not None else 0
        return [f"{rebuilt} damaged cache files were decoded anew"] if rebuilt else []

    @property
    def taken(self) -> int | None:
        return None

    @property
    def has_unsaved(self) -> bool:
        return False

    def state(self) -> Bundle | None:
        return None

    def _is_all(self, window: Window) -> bool:
        """Whether the window is a whole epoch."""
        assert window.plan is not None
        start = window.plan.start
        return self.schedule.part_length(start) <= len(window.plan.pieces.group)


def schedule_of(record: RunRecord, catalog: Catalog) -> Schedule:
    groups = group_sizes(catalog, record.options.row_values)
    return Schedule(record.options.seed, groups, record.sizes, record.options.sampling)
