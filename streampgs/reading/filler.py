"""Filling a window: find where each row goes, then read block by block and put the rows there.

Lengths of rows come first (for lists, their offsets alone are read), because in a window laid out in visiting order
the place of a row depends on the lengths of all the others. Then each block is fetched once into scratch memory and
its rows are copied to their places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
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
from streampgs.reading.blocks import ArrowGroup, Block, BlockFinder, CachedSlice
from streampgs.reading.cache import BlockCache, CacheDamaged, CacheFile
from streampgs.reading.scratch import Scratch
from streampgs.reading.window import Window, joined
from streampgs.table.arrow_metadata import MetadataDamaged
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import SPARSE, Columns, rows_of

LARGEST_INDEX = 2**31 - 2
_SAMPLED_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True)
class RowRules:
    """What a row is and when it is refused."""

    columns: Columns
    classifies: bool
    skip_bad_rows: bool
    features: int | None
    """The number of features, where it is fixed."""


class WindowFiller:
    def __init__(
        self, catalog: Catalog, slice_rows: NDArray[np.int64], rules: RowRules, cache: BlockCache | None
    ) -> None:
        self.catalog = catalog
        self.blocks = BlockFinder(catalog, slice_rows, rules.columns, cache)
        self.rules = rules
        self.cache = cache
        self.sparse = catalog.kind == SPARSE
        self.lists = "indices" if self.sparse else "features"
        self._scratch = Scratch()
        self._table = repeat_table(256)
        self._width = rules.features if not self.sparse else None

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
                self.blocks.close()

    def _fill(self, plan: WindowPlan, window: Window) -> None:
        blocks = list(self.blocks.of_plan(plan))
        for block in blocks:
            if isinstance(block.source, ArrowGroup):
                block.source.announce(block.start, block.stop)
        lengths = self._lengths(blocks)
        slots = shuffled(np.uint64(plan.shuffle_key), len(lengths))
        window.plan = plan
        self._fill_slots(blocks, lengths, slots, window)

    def _fill_slots(
        self, blocks: list[Block], lengths: NDArray[np.int64], slots: NDArray[np.int64], window: Window
    ) -> None:
        window.skipped = Counter()
        columns = self.rules.columns
        window.lay_out(lengths, slots, self.sparse, columns.weight is not None, max(1, len(columns.labels)))
        window.largest_index = -1
        if self.sparse and len(lengths) and 4 * lengths.max() > self._table.size:
            self._table = repeat_table(int(lengths.max()))
        dropped: list[NDArray[np.int64]] = []
        first = 0
        for block in blocks:
            self.blocks.check_stop()
            count = block.count()
            self._place(block, lengths[first : first + count], slots[first : first + count], window, dropped)
            first += count
        if dropped:
            window.drop(np.concatenate(dropped))

    def sample(self, most_bytes: int) -> Window:
        """Rows of blocks evenly spread over the catalog, about so many bytes of them; all, if they are fewer."""
        total = int((8 * self.catalog.group_entries + 24 * self.catalog.group_rows).sum())
        every = max(1, -(-total // most_bytes))
        return joined(self.in_file_order(_SAMPLED_BLOCK_BYTES, every))

    def in_file_order(self, block_bytes: int, every: int = 1) -> Iterator[Window]:
        """The rows of the catalog, block after block as the files have them, or of each `every`th block; the window is
        one and the same."""
        window = Window()
        for block in islice(self.blocks.in_file_order(block_bytes), 0, None, every):
            lengths = self._lengths([block])
            self._fill_slots([block], lengths, np.arange(len(lengths)), window)
            yield window

    # How long each row is, and where it goes.

    def _lengths(self, blocks: list[Block]) -> NDArray[np.int64]:
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

    def _dense_width(self, blocks: list[Block]) -> int:
        """Features of a dense row: fixed by option or schema, or else by the first row that is read."""
        if self._width is None:
            self._width = next((s.layout.width for s in self.catalog.shards if s.layout.width is not None), None)
        if self._width is None:
            for block in blocks:
                self._scratch.reset()
                with self._naming_faults(block):
                    lists = block.source.columns(block.start, block.stop, self._scratch)[self.lists]
                widths = np.diff(lists.offsets.to_numpy())[lists.is_valid().to_numpy(zero_copy_only=False)]
                widths = widths[widths > 0]
                if widths.size:
                    self._width = int(widths[0])
                    break
        return self._width or 0

    def _place(
        self,
        block: Block,
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
    def _naming_faults(self, block: Block) -> Iterator[None]:
        """Faults of reading become errors that name the place."""
        try:
            yield
        except (CacheDamaged, MetadataDamaged, pa.ArrowException, OSError) as fault:
            if isinstance(block.source, CachedSlice) and not isinstance(fault, OSError):
                raise _GroupDamaged(block.source.file) from fault
            number, in_file = self.catalog.shard_of(block.group)
            shard = self.catalog.shards[number]
            raise DataError(
                f"shard '{shard.path}', {shard.group_name} {in_file}: damaged or unreadable: {fault}",
                "restore it, or write it again and start a new run",
            ) from fault

    def _raise_changed(self, block: Block, shard: Shard) -> None:
        if isinstance(block.source, CachedSlice):
            raise _GroupDamaged(block.source.file) from CacheDamaged("row lengths that do not match")
        raise DataError(f"shard '{shard.path}' changed while it was being read", "restore it, or start a new run")


class _GroupDamaged(Exception):
    def __init__(self, file: CacheFile) -> None:
        super().__init__(str(file.path))
        self.file = file


def _unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    return indices.view(np.uint32 if indices.itemsize == 4 else np.uint64)


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
