"""Filling a window: find where each row goes, then read block by block and put the rows there.

Lengths of rows come first (for lists, their offsets alone are read), because in a window laid out in visiting order
the place of a row depends on the lengths of all the others. Then each block is fetched once into scratch memory and
its rows are copied to their places.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.arithmetic.randomness import checksum, shuffled
from streampgs.arithmetic.rows import place_dense, place_sparse, repeat_table
from streampgs.errors import DataError, OptionError
from streampgs.order.schedule import Schedule, WindowPlan
from streampgs.reading.bad_rows import bad_row_error
from streampgs.reading.cache import BlockCache, CacheDamaged, CacheFile
from streampgs.reading.scratch import Scratch
from streampgs.reading.window import Window
from streampgs.table.arrow_columns import list_offsets, read_column
from streampgs.table.arrow_metadata import BatchMetadata, MetadataDamaged
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import SPARSE, Columns, rows_of
from streampgs.table.shard_files import ArrowFile, ParquetShard, announce, read_into

_OPEN_FILES = 128
_DECODERS = 2
_WORTH_READING_WHOLE = 0.75
LARGEST_INDEX = 2**31 - 2


@dataclass(frozen=True)
class RowRules:
    """What a row is and when it is refused."""

    columns: Columns
    classifies: bool
    skip_bad_rows: bool
    features: int | None
    """The number of features, where it is fixed."""


@dataclass
class _Block:
    """Rows [start, stop) of a group, and who can read them."""

    group: int
    start: int
    stop: int
    picks: NDArray[np.int64] | None
    source: _ArrowGroup | _CachedSlice | _DecodedRows

    def count(self) -> int:
        return self.stop - self.start if self.picks is None else len(self.picks)


@dataclass
class _ArrowGroup:
    opened: Callable[[], ArrowFile]
    number: int
    batch: BatchMetadata

    @property
    def file(self) -> ArrowFile:
        return self.opened()

    def _read(self, scratch: Scratch) -> Any:
        file = self.file
        body = file.body_offset(self.number)

        def read(offset: int, size: int) -> NDArray[np.uint8]:
            target = scratch.take(size)
            read_into(file.fd, target, body + offset, file.path)
            return target

        return read

    def _is_whole(self, start: int, stop: int) -> bool:
        """Whether the rows are the batch's, all of them, and its needed buffers most of what lies between them."""
        first, last, needed = self._span
        return stop - start == self.batch.rows and needed >= _WORTH_READING_WHOLE * (last - first)

    @cached_property
    def _span(self) -> tuple[int, int, int]:
        """Where in the body the needed buffers begin and end, and their bytes together."""
        parts = [self.batch.buffers[number] for place in self.file.places.values() for number in place.all_buffers()]
        parts = [part for part in parts if part[1]]
        if not parts:
            return 0, 0, 0
        return min(p[0] for p in parts), max(p[0] + p[1] for p in parts), sum(p[1] for p in parts)

    def announce(self, start: int, stop: int) -> None:
        """Ask for the rows' bytes, as near as can be told without reading anything."""
        file = self.file
        body, rows = file.body_offset(self.number), max(1, self.batch.rows)
        if self._is_whole(start, stop):
            begin, end, _ = self._span
            announce(file.fd, body + begin, end - begin)
            return
        for place in file.places.values():
            for buffer in place.all_buffers():
                offset, size = self.batch.buffers[buffer]
                first, last = size * start // rows, -(-size * stop // rows)
                if last > first:
                    announce(file.fd, body + offset + first, last - first)

    def lengths(self, start: int, stop: int, lists: str, scratch: Scratch) -> NDArray[np.int64]:
        offsets = list_offsets(self.file.places[lists], self.batch, start, stop, self._read(scratch))
        return np.diff(offsets)

    def columns(self, start: int, stop: int, scratch: Scratch) -> dict[str, pa.Array]:
        read = self._read(scratch)
        if self._is_whole(start, stop):
            begin, end, _ = self._span
            whole: NDArray[np.uint8] = read(begin, end - begin)

            def read(offset: int, size: int) -> NDArray[np.uint8]:
                return whole[offset - begin : offset - begin + size]

        return {name: read_column(place, self.batch, start, stop, read) for name, place in self.file.places.items()}


@dataclass
class _CachedSlice:
    opened: Callable[[], CacheFile]
    number: int

    @property
    def file(self) -> CacheFile:
        return self.opened()

    def lengths(self, start: int, stop: int, lists: str, scratch: Scratch) -> NDArray[np.int64]:
        return self.file.lengths(self.number, lists, scratch)

    def columns(self, start: int, stop: int, scratch: Scratch) -> dict[str, pa.Array]:
        return self.file.columns(self.number, scratch)


@dataclass
class _DecodedRows:
    """Rows decoded into memory, of a group that is not cached."""

    batch: pa.RecordBatch

    def lengths(self, start: int, stop: int, lists: str, scratch: Scratch) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.batch.column(lists).offsets.to_numpy().astype(np.int64)
        return np.diff(offsets)

    def columns(self, start: int, stop: int, scratch: Scratch) -> dict[str, pa.Array]:
        return {name: self.batch.column(name) for name in self.batch.schema.names}


class WindowFiller:
    def __init__(
        self, catalog: Catalog, slice_rows: NDArray[np.int64], rules: RowRules, cache: BlockCache | None
    ) -> None:
        self.catalog = catalog
        self.slice_rows = slice_rows
        self.rules = rules
        self.cache = cache
        self.sparse = catalog.kind == SPARSE
        self.lists = "indices" if self.sparse else "features"
        self._scratch = Scratch()
        self._table = repeat_table(256)
        self._open: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._stopping = threading.Event()
        self._width = rules.features if not self.sparse else None

    def stop(self) -> None:
        """Let a fill that is under way end at its next block, with Stopped."""
        self._stopping.set()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _check_stop(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    def warm_up(self) -> None:
        """Compile, or load from the cache, the loops that a fill will need."""
        none, no_rows = np.empty(0, np.int64), np.empty(0, np.uint8)
        shuffled(np.uint64(0), 0)
        checksum(no_rows)
        values = np.empty(0, np.float32)
        if self.sparse:
            indices, offsets = np.empty(0, np.int32), np.zeros(1, np.int64)
            place_sparse(
                none, none, offsets, _unsigned(indices), values, none, indices.view(np.uint32), values, np.uint64(1),
                no_rows, self._table,
            )  # fmt: skip
        else:
            place_dense(none, none, 1, values, values, no_rows)

    def fill(self, plan: WindowPlan, window: Window) -> None:
        """Put the plan's rows into the window, in visiting order."""
        attempts: Counter[Path] = Counter()
        while True:
            try:
                self._fill(plan, window)
                return
            except _GroupDamaged as damage:
                # A cache file that does not check out is decoded anew; a disk that damages it every time is not.
                attempts[damage.file.path] += 1
                if attempts[damage.file.path] == 3 or self.cache is None:
                    raise DataError(
                        f"the cache in '{damage.file.path.parent}' is damaged again and again: {damage.__cause__}",
                        "check that disk; name another place with --cache DIR, or use --no-cache",
                    ) from damage
                self.cache.discard(damage.file.path)
                self.close()

    def _fill(self, plan: WindowPlan, window: Window) -> None:
        blocks = list(self._blocks(plan))
        for block in blocks:
            if isinstance(block.source, _ArrowGroup):
                block.source.announce(block.start, block.stop)
        lengths = self._lengths(blocks)
        slots = shuffled(np.uint64(plan.shuffle_key), len(lengths))
        window.plan = plan
        self._fill_slots(blocks, lengths, slots, window)

    def _fill_slots(
        self, blocks: list[_Block], lengths: NDArray[np.int64], slots: NDArray[np.int64], window: Window
    ) -> None:
        window.skipped = Counter()
        window.lay_out(lengths, slots, self.sparse, self.rules.columns.weight is not None)
        window.largest_index = -1
        if self.sparse and len(lengths) and 4 * lengths.max() > self._table.size:
            self._table = repeat_table(int(lengths.max()))
        dropped: list[NDArray[np.int64]] = []
        first = 0
        for block in blocks:
            self._check_stop()
            count = block.count()
            self._place(block, lengths[first : first + count], slots[first : first + count], window, dropped)
            first += count
        if dropped:
            window.drop(np.concatenate(dropped))

    def in_file_order(self, block_bytes: int) -> Iterator[Window]:
        """All rows of the catalog, block after block as the files have them; the window is one and the same."""
        window = Window()
        for group in range(self.catalog.groups):
            number, in_file = self.catalog.shard_of(group)
            shard = self.catalog.shards[number]
            rows = int(self.catalog.group_rows[group])
            entries = int(self.catalog.group_entries[group])
            slice_rows = max(1, rows * block_bytes // max(1, 8 * entries + 24 * rows))
            for block in self._blocks_of_group(group, number, in_file, shard, rows, slice_rows):
                lengths = self._lengths([block])
                self._fill_slots([block], lengths, np.arange(len(lengths)), window)
                yield window

    def _blocks_of_group(
        self, group: int, number: int, in_file: int, shard: Shard, rows: int, slice_rows: int
    ) -> Iterator[_Block]:
        if shard.decoded:
            first = 0
            for batch in decoded_slices(shard, in_file, slice_rows, self.rules.columns):
                yield _Block(group, first, first + batch.num_rows, None, _DecodedRows(batch))
                first += batch.num_rows
        else:
            for first in range(0, rows, slice_rows):
                yield _Block(group, first, min(first + slice_rows, rows), None, self._arrow_group(number, in_file))

    # Which blocks, and who reads them.

    def _blocks(self, plan: WindowPlan) -> Iterator[_Block]:
        pieces = plan.pieces
        shards = [self.catalog.shard_of(int(group)) for group in pieces.group]
        self._decode_missing(pieces.group, shards)
        for i, (number, in_file) in enumerate(shards):
            shard = self.catalog.shards[number]
            group, start, stop = int(pieces.group[i]), int(pieces.start[i]), int(pieces.stop[i])
            picks = pieces.picks[i] if pieces.picks is not None else None
            if not shard.decoded:
                yield _Block(group, start, stop, picks, self._arrow_group(number, in_file))
                continue
            slice_rows = int(self.slice_rows[group])
            if shard.cached and self.cache is not None:
                opened = partial(self._cache_file, group, shard, in_file, slice_rows)
                for first in range(start, stop, slice_rows):
                    last = min(first + slice_rows, stop)
                    yield _Block(group, first, last, picks, _CachedSlice(opened, first // slice_rows))
            else:
                first = start
                for batch in decoded_slices(shard, in_file, slice_rows, self.rules.columns):
                    yield _Block(group, first, first + batch.num_rows, picks, _DecodedRows(batch))
                    first += batch.num_rows

    def _arrow_group(self, number: int, in_file: int) -> _ArrowGroup:
        opened = partial(self._arrow_file, number)
        return _ArrowGroup(opened, in_file, opened().metadata(in_file))

    def _arrow_file(self, number: int) -> ArrowFile:
        shard = self.catalog.shards[number]
        file: ArrowFile = self._kept_open(
            ("arrow", number), lambda: ArrowFile(shard.path, shard.fingerprint, self.rules.columns)
        )
        return file

    def _cache_file(self, group: int, shard: Shard, in_file: int, slice_rows: int) -> CacheFile:
        def opened() -> CacheFile:
            assert self.cache is not None
            file = self.cache.open(shard, in_file, slice_rows)
            if file is None:  # gone or damaged since it was looked for
                self._decode(shard, in_file, slice_rows)
                file = self.cache.open(shard, in_file, slice_rows)
            if file is None:
                raise DataError(
                    f"the cache in '{self.cache.folder}' does not keep what is written to it",
                    "name another place with --cache DIR",
                )
            return file

        file: CacheFile = self._kept_open(("cache", group), opened)
        return file

    def _kept_open(self, key: tuple[str, int], opened: Callable[[], Any]) -> Any:
        """An open file, of which only so many are kept: a window may mix more files than a process may open."""
        file = self._open.get(key)
        if file is None:
            while len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            file = self._open[key] = opened()
        self._open.move_to_end(key)
        return file

    def _decode_missing(self, groups: NDArray[np.int64], shards: list[tuple[int, int]]) -> None:
        """Decode the groups that the cache does not have yet, a few at a time."""
        if self.cache is None:
            return
        missing: dict[int, tuple[Shard, int, int]] = {}
        for group, (number, in_file) in zip(groups.tolist(), shards, strict=True):
            shard, slice_rows = self.catalog.shards[number], int(self.slice_rows[group])
            if shard.cached and group not in missing and not self.cache.path(shard, in_file, slice_rows).exists():
                missing[group] = (shard, in_file, slice_rows)
        if missing:
            with ThreadPoolExecutor(_DECODERS) as pool:
                for done in [pool.submit(self._decode, *wanted) for wanted in missing.values()]:
                    done.result()
            pa.default_memory_pool().release_unused()

    def _decode(self, shard: Shard, group: int, slice_rows: int) -> None:
        assert self.cache is not None

        def slices() -> Iterator[pa.RecordBatch]:
            for batch in decoded_slices(shard, group, slice_rows, self.rules.columns):
                self._check_stop()
                yield batch

        self.cache.write(shard, group, slice_rows, slices())

    # How long each row is, and where it goes.

    def _lengths(self, blocks: list[_Block]) -> NDArray[np.int64]:
        if not self.sparse:
            width = self._dense_width(blocks)
            return np.full(sum(block.count() for block in blocks), width, np.int64)
        parts = [np.empty(0, np.int64)]
        for block in blocks:
            self._scratch.reset()
            with self._naming_faults(block):
                lengths = block.source.lengths(block.start, block.stop, self.lists, self._scratch)
            parts.append(lengths if block.picks is None else lengths[block.picks])
        return np.concatenate(parts)

    def _dense_width(self, blocks: list[_Block]) -> int:
        """Features of a dense row: fixed by option or schema, or else by the first row that is read."""
        if self._width is None:
            self._width = next((s.layout.width for s in self.catalog.shards if s.layout.width is not None), None)
        if self._width is None:
            for block in blocks:
                self._scratch.reset()
                with self._naming_faults(block):
                    lists = block.source.columns(block.start, block.stop, self._scratch)[self.lists]
                widths = np.diff(lists.offsets.to_numpy())[lists.is_valid().to_numpy(zero_copy_only=False)]
                if widths.size:
                    self._width = int(widths[0])
                    break
        return self._width or 0

    def _place(
        self,
        block: _Block,
        lengths: NDArray[np.int64],
        slots: NDArray[np.int64],
        window: Window,
        dropped: list[NDArray[np.int64]],
    ) -> None:
        self._scratch.reset()
        shard_number, in_file = self.catalog.shard_of(block.group)
        shard = self.catalog.shards[shard_number]
        with self._naming_faults(block):
            columns = block.source.columns(block.start, block.stop, self._scratch)
            arrays = rows_of(
                columns,
                shard.layout,
                self.rules.columns,
                self.rules.classifies,
                None if self.sparse else self._width,
            )
        rows = np.arange(len(arrays)) if block.picks is None else block.picks
        if self.sparse and not np.array_equal(np.diff(arrays.offsets)[rows], lengths):
            self._raise_changed(block, shard)
        reasons = arrays.reasons[rows]
        if self.sparse:
            largest = place_sparse(
                rows, slots, arrays.offsets, _unsigned(arrays.indices), arrays.values, window.starts, window.indices,
                window.values, np.uint64(self.rules.features or LARGEST_INDEX + 1), reasons, self._table,
            )  # fmt: skip
            window.largest_index = max(window.largest_index, int(largest))
        else:
            width = self._width or 0  # None: no row so far has features
            place_dense(rows, slots, width, arrays.values, window.values, reasons)
            window.largest_index = width - 1
        if arrays.labels is not None:
            window.labels[slots] = arrays.labels[rows]
        if window.weights.size and arrays.weights is not None:
            window.weights[slots] = arrays.weights[rows]
        bad = np.flatnonzero(reasons)
        if bad.size:
            if not self.rules.skip_bad_rows:
                raise bad_row_error(shard, in_file, block.start, arrays, reasons, rows)
            window.skipped.update(reasons[bad].tolist())
            dropped.append(slots[bad])

    @contextmanager
    def _naming_faults(self, block: _Block) -> Iterator[None]:
        """Faults of reading become errors that name the place."""
        try:
            yield
        except (CacheDamaged, MetadataDamaged, pa.ArrowException, OSError) as fault:
            if isinstance(block.source, _CachedSlice) and not isinstance(fault, OSError):
                raise _GroupDamaged(block.source.file) from fault
            number, in_file = self.catalog.shard_of(block.group)
            shard = self.catalog.shards[number]
            raise DataError(
                f"shard '{shard.path}', {shard.group_name} {in_file}: damaged or unreadable: {fault}",
                "restore it, or write it again and start a new run",
            ) from fault

    def _raise_changed(self, block: _Block, shard: Shard) -> None:
        if isinstance(block.source, _CachedSlice):
            raise _GroupDamaged(block.source.file) from CacheDamaged("row lengths that do not match")
        raise DataError(f"shard '{shard.path}' changed while it was being read", "restore it, or start a new run")


class _GroupDamaged(Exception):
    def __init__(self, file: CacheFile) -> None:
        super().__init__(str(file.path))
        self.file = file


def _unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    return indices.view(np.uint32 if indices.itemsize == 4 else np.uint64)


class Stopped(Exception):
    """A fill was asked to end."""


def decoded_slices(shard: Shard, group: int, slice_rows: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    """A group of a decoded shard, in slices of exactly `slice_rows` rows but for the last."""
    rows = 0
    for batch in _decoded(shard, group, slice_rows, columns):
        rows += batch.num_rows
        yield batch
    if rows != shard.group_rows[group]:  # decoders may end without a word at a page that they do not understand
        raise DataError(
            f"shard '{shard.path}', {shard.group_name} {group}: {rows:,} rows, but the footer tells of "
            f"{shard.group_rows[group]:,}",
            "it is damaged or changed: restore it, or write it again and start a new run",
        )


def _decoded(shard: Shard, group: int, slice_rows: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    if shard.kind == "parquet":
        parquet = ParquetShard(shard.path, shard.layout)
        try:
            yield from _evened(parquet.decoded_slices(group, slice_rows), slice_rows)
        finally:
            parquet.close()
    else:
        with ArrowFile(shard.path, shard.fingerprint, columns) as file:
            yield from file.decoded_slices(group, slice_rows)


def _evened(batches: Iterator[pa.RecordBatch], slice_rows: int) -> Iterator[pa.RecordBatch]:
    """Decoders may cut a batch short; put the cuts where they belong."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, slice_rows - count)
            batch = batch.slice(part.num_rows)
            waiting.append(part)
            count += part.num_rows
            if count == slice_rows:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def refuse_unreadable(catalog: Catalog, schedule: Schedule) -> None:
    """Groups that can only be decoded whole, are not cached and exceed a window can never be trained on."""
    sizes = catalog.group_rows * schedule.groups.row_bytes
    stuck = schedule.groups.decoded & ~schedule.groups.cached & (sizes > schedule.sizes.window_bytes)
    if stuck.any():
        group = int(np.argmax(np.where(stuck, sizes, 0)))
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        raise OptionError(
            f"shard '{shard.path}', {shard.group_name} {in_file} takes {sizes[group] / 1e6:,.1f} MB decoded; "
            f"a window holds {schedule.sizes.window_bytes / 1e6:,.1f} MB",
            "let it be cached (no --no-cache, a larger --cache-limit), give more --memory, or write smaller row groups",
        )
