"""Fill a window: find the place of each row, then read block by block and copy the rows there.

The lengths of all rows are read first (only the offsets of the lists), because in a window laid out in visiting order
the place of a row depends on the lengths of the others. Then each block is read once into scratch memory, and its rows
are copied to their places. Groups that are decoded straight into the window are described in first_pass.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError, StreampgsError
from streampgs.encoding import encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.rows import FEATURES_NULL, RowBlock
from streampgs.formats.format import Damaged
from streampgs.kernels.randomness import checksum, shuffled
from streampgs.kernels.rows import Rows, joined
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, WindowPlan
from streampgs.reading import packed_rows
from streampgs.reading.blocks import Block, BlockFinder, CachedSlice
from streampgs.reading.cache import BlockCache, CacheFile
from streampgs.reading.decode import Group
from streampgs.reading.first_pass import Decoders, Decoding
from streampgs.reading.placing import Found, RowPlacer, RowRules
from streampgs.reading.reused import Scratch
from streampgs.reading.window import RowCounts, Window, WindowMemory
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog
from streampgs.table.layout import SPARSE

Ints = NDArray[np.int64]
_SAMPLED_BLOCK_BYTES = 1 << 18
_LOOK_UP_SECONDS = 0.05


@dataclass
class _Part:
    """Rows of a plan from one source."""

    source: Block | Group
    slots: Ints
    lengths: Ints | None
    """None: known only after decoding."""

    @property
    def most_entries(self) -> int:
        if self.lengths is not None:
            return int(self.lengths.sum())
        assert isinstance(self.source, Group)
        return self.source.entries


@dataclass
class _Filling:
    """A window in the making: the groups being decoded into it, and the blocks still to be read."""

    decoding: Decoding
    blocks: list[tuple[Block, _Part]]


class WindowFiller:
    def __init__(
        self,
        catalog: Catalog,
        slice_rows: NDArray[np.int64],
        rules: RowRules,
        cache: BlockCache | None,
        copies: Copies | None = None,
        decoders: int = 2,
    ) -> None:
        """`decoders`: how many groups are decoded at a time."""
        self.catalog = catalog
        self.blocks = BlockFinder(catalog, slice_rows, rules.columns, cache, decoders, copies)
        self.rules = rules
        self.cache = cache
        self.sparse = catalog.kind == SPARSE
        self._copies = copies
        self._scratch = Scratch()
        self._placer = RowPlacer(rules, None if self.sparse else 0)
        self._width = rules.features if not self.sparse else None
        self._decoders = Decoders(rules, cache, self.blocks.check_stop, decoders)
        self._ahead: dict[Cursor, _Filling] = {}
        self.last_epoch: int | None = None
        """Reading ends before this epoch, if it is known; then no rows are cached for it."""

    def warm_up(self) -> None:
        """Compile the loops that filling needs, or load them from their cache."""
        shuffled(np.uint64(0), 0)
        checksum(np.empty(0, np.uint8))
        self._placer.warm_up()
        if self.cache is not None:
            packed_rows.warm_up()
        if isinstance(self.rules.columns.encoding, Encoding):
            encoder.warm_up(self.rules.columns.encoding)

    def close(self) -> None:
        while self._ahead:
            self._ahead.popitem()[1].decoding.end()
        self._decoders.close()
        self.blocks.close()
        if self._copies is not None:
            self._copies.close(waiting=False)  # a checkpoint may be due while a store does not answer

    def announce(self, plan: WindowPlan) -> None:
        """Let the system read ahead for the next window."""
        with suppress(OSError, StreampgsError, Damaged):  # raised again when the window is filled
            self.blocks.announce(plan)

    def start(self, plan: WindowPlan, memory: WindowMemory) -> None:
        """Start to decode the next window, if all its groups are decoded straight into it."""
        with suppress(OSError):  # raised again when the window is filled
            groups = self.blocks.all_undecoded(plan)
            if groups is not None and (self.sparse or self._width is not None):
                self._ahead[plan.start] = self._begin(plan, memory, [*groups])

    def fill(self, plan: WindowPlan, memory: WindowMemory, meanwhile: Callable[[], None] = lambda: None) -> Window:
        """The window with the plan's rows. `meanwhile` is called when disk or decoders may soon be idle."""
        attempts: Counter[Path] = Counter()
        while True:
            try:
                return self._fill(plan, memory, meanwhile)
            except _GroupDamaged as damage:
                # A damaged cache file is decoded again, but not if the disk damages it every time.
                attempts[damage.file.path] += 1
                if attempts[damage.file.path] == 3 or self.cache is None:
                    raise DataError(
                        f"the cache in '{damage.file.path.parent}' is damaged repeatedly: {damage.__cause__}",
                        "check that disk; name another folder with `--cache DIR`, or use --no-cache",
                    ) from damage
                self.cache.discard(damage.file.path)
                self.blocks.close()

    def _fill(self, plan: WindowPlan, memory: WindowMemory, meanwhile: Callable[[], None]) -> Window:
        filling = self._ahead.pop(plan.start, None) or self._begin(plan, memory, self.blocks.of_plan(plan))
        found = Found()
        try:
            # In the order of the plan, so that of several faults always the same one is reported.
            for decoded in filling.decoding.running:
                while True:
                    meanwhile()  # one large group must not keep the other decoder idle
                    with suppress(TimeoutError):
                        found.add(decoded.result(_LOOK_UP_SECONDS))
                        break
            meanwhile()
            for block, part in filling.blocks:
                self.blocks.check_stop()
                self._place(block, part, memory.window, found)
        finally:
            filling.decoding.end()
        if filling.decoding.running and not self._ahead:
            pa.default_memory_pool().release_unused()
        counts = found.counts(_repeated_slots(plan)) if found.dropped or found.clipped else RowCounts()
        return memory.complete(found.largest_index + 1, found.dropped, counts)

    def sample(self, most_bytes: int, more_bytes: int = 0) -> Rows:
        """About so many bytes of rows, in blocks evenly spread over the catalog; all rows if there are fewer. `more_bytes`:
        what a row takes in addition."""
        total = int((8 * self.catalog.group_entries + (24 + more_bytes) * self.catalog.group_rows).sum())
        every = max(1, -(-total // most_bytes))
        return joined(self.in_file_order(_SAMPLED_BLOCK_BYTES, every))

    def in_file_order(self, block_bytes: int, every: int = 1) -> Iterator[Window]:
        """The rows of the catalog in the order of the files, block by block, or each `every`th block. The same window is
        used for all blocks."""
        memory = WindowMemory()
        for block in self.blocks.in_file_order(block_bytes, every):
            self._fix_width([block])
            lengths = self._lengths(block)
            part = _Part(block, np.arange(block.rows), lengths)
            first = int(self.catalog.row_starts[block.group.number])
            memory.window.number_rows = partial(np.arange, first + block.start, first + block.stop)
            self._lay_out([part], memory)
            found = Found()
            self._place(block, part, memory.window, found)
            yield memory.complete(found.largest_index + 1, found.dropped, found.counts())

    # Lengths and places of rows.

    def _begin(self, plan: WindowPlan, memory: WindowMemory, sources: list[Block | Group]) -> _Filling:
        for source in sources:
            if isinstance(source, Block):
                source.source.announce(source.start, source.stop)
        self._fix_width(sources)
        lengths = [self._lengths(source) for source in sources]
        ends = np.cumsum([source.rows for source in sources])
        slots = np.split(shuffled(np.uint64(plan.shuffle_key), int(ends[-1])), ends[:-1])
        parts = [_Part(*part) for part in zip(sources, slots, lengths, strict=True)]
        memory.window.span = plan
        memory.window.number_rows = partial(_row_numbers, plan, self.catalog)
        self._lay_out(parts, memory)
        groups = [(part.source, part.slots) for part in parts if isinstance(part.source, Group)]
        blocks = [(part.source, part) for part in parts if isinstance(part.source, Block)]
        is_update = plan.start.part > 0  # its rows are read again, in its next pass or as old rows of a later update
        keep = is_update or self.last_epoch is None or plan.start.epoch + 1 < self.last_epoch
        return _Filling(self._decoders.begin(memory, groups, self._placer.width, keep), blocks)

    def _lay_out(self, parts: list[_Part], memory: WindowMemory) -> None:
        """Reserve memory: in visiting order if all lengths are known; else part by part, first the rows of
        known lengths, then rows in the order of decoding."""
        shape = self.rules.shape(self.sparse)
        known = [part.lengths for part in parts if part.lengths is not None]
        slots = [part.slots for part in parts]
        if len(known) == len(parts):
            memory.lay_out(np.concatenate(known), np.concatenate(slots), shape)
            return
        entries = sum(part.most_entries for part in parts)
        memory.allocate(sum(len(part.slots) for part in parts), entries, shape)
        for part in parts:
            if part.lengths is not None:
                memory.lay_out_next(part.lengths, part.slots)

    def _lengths(self, source: Block | Group) -> Ints | None:
        if not self.sparse:
            return np.full(source.rows, self._placer.width_of(source.shard.layout), np.int64)
        if isinstance(source, Group):
            return None
        if source.shard.layout.kind != SPARSE:
            return np.full(source.rows, source.shard.layout.width, np.int64)
        self._scratch.reset()
        with self._naming_faults(source):
            return source.source.lengths(source.start, source.stop, self._scratch)

    def _fix_width(self, sources: list[Block] | list[Block | Group]) -> None:
        """Set the width of dense rows: fixed by an option or the schema, else by the first row."""
        if self.sparse:
            return
        if self._width is None:
            self._width = next((s.layout.width for s in self.catalog.shards if s.layout.width is not None), None)
        if self._width is None:
            self._width = next((width for source in sources for width in self._widths(source)), None)
        self._placer.width = self._width or 0  # None: no row has features yet

    def _widths(self, source: Block | Group) -> Iterator[int]:
        """Features of the first row that has any, block by block."""
        for block in self._blocks(source):
            widths = np.diff(block.bounds)[block.faults != FEATURES_NULL]
            widths = widths[widths > 0]
            if widths.size:
                yield int(widths[0])

    def _blocks(self, source: Block | Group) -> Iterator[RowBlock]:
        if isinstance(source, Group):
            yield from source.blocks()
            return
        self._scratch.reset()
        with self._naming_faults(source):
            block = source.source.rows(source.start, source.stop, self._scratch)
        yield block

    def _place(self, block: Block, part: _Part, rows: Rows, found: Found) -> None:
        self._scratch.reset()
        with self._naming_faults(block):
            read = block.source.rows(block.start, block.stop, self._scratch)
        if read.indices is not None:
            assert part.lengths is not None
            if not np.array_equal(np.diff(read.bounds), part.lengths):
                self._raise_changed(block)
        self._placer.place(read, part.slots, rows, block.group.origin(block.start), found)

    @contextmanager
    def _naming_faults(self, block: Block) -> Iterator[None]:
        """Turn faults of reading into errors that name the group."""
        try:
            yield
        except MemoryError:
            raise
        except (Damaged, pa.ArrowException, OSError) as fault:
            if isinstance(block.source, CachedSlice) and not isinstance(fault, OSError):
                raise _GroupDamaged(block.source.file) from fault
            raise DataError(
                f"{block.group.name}: damaged or unreadable: {fault}",
                "restore it, or write it again and start a new run",
            ) from fault

    def _raise_changed(self, block: Block) -> None:
        if isinstance(block.source, CachedSlice):
            raise _GroupDamaged(block.source.file) from Damaged("row lengths that do not match")
        raise DataError(f"shard '{block.shard.path}' changed while it was being read", "restore it, or start a new run")


@contextmanager
def one_pass(catalog: Catalog, rules: RowRules) -> Iterator[WindowFiller]:
    """For one pass over a catalog. Copies of the current remote shard and the next are in a temporary folder."""
    with ExitStack() as stack:
        copies = None
        if catalog.remote:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streampgs-")))
            copies = stack.enter_context(closing(Copies(folder, None)))
            catalog = catalog.with_copies_in(folder)
        yield stack.enter_context(closing(WindowFiller(catalog, np.empty(0, np.int64), rules, None, copies)))


def _row_numbers(plan: WindowPlan, catalog: Catalog) -> Ints:
    """The number of each row of a window, in visiting order: its place among the rows of the catalog."""
    pieces = plan.pieces
    firsts = catalog.row_starts[pieces.group] + pieces.start
    counts = pieces.stop - pieces.start
    as_read = np.repeat(firsts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    numbers = np.empty_like(as_read)
    numbers[shuffled(np.uint64(plan.shuffle_key), len(as_read))] = as_read
    return numbers


def _repeated_slots(plan: WindowPlan) -> NDArray[np.bool_] | None:
    """The slots of rows that were visited before; None: no row was."""
    pieces = plan.pieces
    if pieces.repeated is None or not pieces.repeated.any():
        return None
    repeated = np.repeat(pieces.repeated, pieces.stop - pieces.start)
    in_slots = np.empty_like(repeated)
    in_slots[shuffled(np.uint64(plan.shuffle_key), len(repeated))] = repeated
    return in_slots


class _GroupDamaged(Exception):
    def __init__(self, file: CacheFile) -> None:
        super().__init__(str(file.path))
        self.file = file


def refuse_unreadable(catalog: Catalog, schedule: Schedule) -> None:
    """Refuse groups that must be decoded, are not cached and exceed a window: they can never be trained on."""
    sizes = catalog.group_rows * schedule.groups.row_bytes
    stuck = schedule.groups.decoded & ~schedule.groups.cached & (sizes > schedule.sizes.window_bytes)
    if stuck.any():
        group = int(np.argmax(np.where(stuck, sizes, 0)))
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        raise OptionError(
            f"shard '{shard.path}', {shard.group_name} {in_file} takes {sizes[group] / 1e6:,.1f} MB decoded; "
            f"a window holds {schedule.sizes.window_bytes / 1e6:,.1f} MB",
            "allow it to be cached (no --no-cache, a larger --cache-limit), give more --memory, or write smaller row groups",
        )
