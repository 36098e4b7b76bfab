"""Blocks of rows, and what can read them: a file in place, the cache, or a decoder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.encoding.rows import INDICES, RowBlock
from streampgs.formats.format import OpenShard, Slices
from streampgs.order.schedule import WindowPlan
from streampgs.reading.cache import BlockCache, CacheFile
from streampgs.reading.decode import Group, opened, rows_of_table
from streampgs.reading.remote import LocalCopies, remote_shards
from streampgs.reading.reused import OpenFiles, Scratch
from streampgs.stores.access import RemoteObject
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns


class Stopped(Exception):
    """A fill was asked to end."""


@dataclass
class Block:
    """Rows [start, stop) of a group, and what can read them."""

    group: Group
    start: int
    stop: int
    source: InPlace | CachedSlice | DecodedRows

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def shard(self) -> Shard:
        return self.group.shard


@dataclass
class InPlace:
    """A group that is read where it is."""

    opened: Callable[[], OpenShard]
    """The file may be closed between two blocks."""
    number: int
    needed: tuple[str, ...]
    names: Columns

    @cached_property
    def slices(self) -> Slices:
        return self.opened().slices(self.number, self.needed)

    def announce(self, start: int, stop: int) -> None:
        self.slices.announce(self.opened().file, start, stop)

    def lengths(self, start: int, stop: int, scratch: Scratch) -> NDArray[np.int64]:
        return self.slices.lengths(self.opened().file, start, stop, INDICES, scratch.take)

    def rows(self, start: int, stop: int, scratch: Scratch) -> RowBlock:
        return rows_of_table(self.slices.columns(self.opened().file, start, stop, scratch.take), self.names)


@dataclass
class CachedSlice:
    opened: Callable[[], CacheFile]
    number: int

    @property
    def file(self) -> CacheFile:
        return self.opened()

    def announce(self, start: int, stop: int) -> None:
        self.file.announce(self.number)

    def lengths(self, start: int, stop: int, scratch: Scratch) -> NDArray[np.int64]:
        return self.file.lengths(self.number, scratch)

    def rows(self, start: int, stop: int, scratch: Scratch) -> RowBlock:
        return self.file.rows_of(self.number, scratch)


@dataclass
class DecodedRows:
    """Rows decoded into memory, of a group that is not cached."""

    block: RowBlock

    def announce(self, start: int, stop: int) -> None:
        """They are in memory."""

    def lengths(self, start: int, stop: int, scratch: Scratch) -> NDArray[np.int64]:
        return np.diff(self.block.bounds)

    def rows(self, start: int, stop: int, scratch: Scratch) -> RowBlock:
        return self.block


class BlockFinder:
    """Finds what can read each block of a window."""

    def __init__(
        self,
        catalog: Catalog,
        slice_rows: NDArray[np.int64],
        columns: Columns,
        cache: BlockCache | None,
        decoders: int,
        copies: Copies | None = None,
    ) -> None:
        """`copies`: of shards in object stores, if there are any."""
        self.catalog = catalog
        self.slice_rows = slice_rows
        self.columns = columns
        self.cache = cache
        self.decoders = decoders
        self._files = OpenFiles()
        self._copies = LocalCopies(copies, self.check_stop)
        self._stopping = threading.Event()
        if copies is not None:
            copies.evicted = lambda remote: self._files.drop(str(remote))

    def stop(self) -> None:
        """Let work that is under way end at its next block, with Stopped."""
        self._stopping.set()

    def check_stop(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    def close(self) -> None:
        self._files.close()

    # The blocks of a window.

    def of_plan(self, plan: WindowPlan) -> list[Block | Group]:
        """The blocks of a window's pieces, in their order, and groups that are decoded straight into the window."""
        groups = self._groups_of(plan)
        self._copies.wait_for(plan.start, self._to_be_copied(groups))
        into_window = [self._is_decoded_into_window(plan, i, group) for i, group in enumerate(groups)]
        self._decode_missing(group for group, whole in zip(groups, into_window, strict=True) if not whole)
        found: list[Block | Group] = []
        for i, group in enumerate(groups):
            found += [group] if into_window[i] else self._of_piece(plan, i, group)
        return found

    def announce(self, plan: WindowPlan) -> None:
        """Let the system read ahead what the window will need and is on disk; copies are requested from stores."""
        groups = self._groups_of(plan)
        self._copies.announce(plan.start, self._to_be_copied(groups))
        for i, group in enumerate(groups):
            self.check_stop()
            if self._is_cached(group) if group.shard.decoded else self._copies.are_here([group.shard]):
                for block in self._of_piece(plan, i, group):
                    block.source.announce(block.start, block.stop)

    def all_undecoded(self, plan: WindowPlan) -> list[Group] | None:
        """The groups of the window, if all are decoded straight into it."""
        groups = self._groups_of(plan)
        whole = (self._is_decoded_into_window(plan, i, group) for i, group in enumerate(groups))
        return groups if all(whole) and self._copies.are_here(group.shard for group in groups) else None

    def _group(self, number: int, slice_rows: int | None = None) -> Group:
        shard, in_file = self.catalog.shard_of(number)
        rows = int(self.slice_rows[number]) if slice_rows is None else slice_rows
        return Group(number, self.catalog.shards[shard], in_file, rows, self.columns)

    def _groups_of(self, plan: WindowPlan) -> list[Group]:
        return [self._group(number) for number in plan.pieces.group.tolist()]

    def _is_cached(self, group: Group) -> bool:
        return group.shard.cached and self.cache is not None and self.cache.path(group).exists()

    def _to_be_copied(self, groups: list[Group]) -> list[RemoteObject]:
        """Where decoded slices are in the cache, the copy is not needed."""
        wanted = {g.number: g for g in groups if isinstance(g.shard.path, RemoteObject)}
        return remote_shards(group.shard for group in wanted.values() if not self._is_cached(group))

    def _is_decoded_into_window(self, plan: WindowPlan, piece: int, group: Group) -> bool:
        """Whether the piece is a whole group that must be decoded and is not in the cache."""
        if not group.shard.decoded:
            return False
        is_whole = plan.pieces.stop[piece] - plan.pieces.start[piece] == group.rows
        return bool(is_whole) and not self._is_cached(group)

    def _of_piece(self, plan: WindowPlan, piece: int, group: Group) -> Iterator[Block]:
        start, stop = int(plan.pieces.start[piece]), int(plan.pieces.stop[piece])
        if not group.shard.decoded:
            yield Block(group, start, stop, self._in_place(group))
            return
        for first in range(start, stop, group.slice_rows):
            last = min(first + group.slice_rows, stop)
            cached = CachedSlice(partial(self._cache_file, group), first // group.slice_rows)
            yield Block(group, first, last, cached)

    # Open files.

    def _in_place(self, group: Group) -> InPlace:
        shard = group.shard
        open_file = partial(self._files.get, str(shard.path), partial(opened, shard))
        return InPlace(open_file, group.in_file, shard.layout.columns, self.columns)

    def _cache_file(self, group: Group) -> CacheFile:
        return self._files.get(group.number, partial(self._open_cache, group))

    def _open_cache(self, group: Group) -> CacheFile:
        assert self.cache is not None
        file = self.cache.open(group)
        if file is None:  # removed or damaged since it was looked for
            self._copies.fetch(remote_shards([group.shard]))
            self._decode(group)
            file = self.cache.open(group)
        if file is None:
            raise DataError(
                f"the cache in '{self.cache.folder}' does not keep the files written to it",
                "name another folder with `--cache DIR`",
            )
        return file

    # Decoding into the cache.

    def _decode_missing(self, wanted: Iterable[Group]) -> None:
        """Decode the groups that belong into the cache and are not there, a few at a time."""
        unique = {group.number: group for group in wanted if group.shard.cached}
        missing = [group for group in unique.values() if self.cache is not None and not self._is_cached(group)]
        if missing:
            with ThreadPoolExecutor(self.decoders) as pool:
                for done in [pool.submit(self._decode, group) for group in missing]:
                    done.result()
            pa.default_memory_pool().release_unused()

    def _decode(self, group: Group) -> None:
        def slices() -> Iterator[RowBlock]:
            for block in group.slices():
                self.check_stop()
                yield block

        assert self.cache is not None
        self.cache.write(group, slices())

    # One pass in the order of the files.

    def in_file_order(self, block_bytes: int, every: int = 1) -> Iterator[Block]:
        """The blocks of the catalog in the order of the files, each of about so many bytes, or each `every`th block.
        Groups without such a block are not read."""
        passed, ready = 0, -1
        for number in range(self.catalog.groups):
            rows, entries = int(self.catalog.group_rows[number]), int(self.catalog.group_entries[number])
            slice_rows = max(1, rows * block_bytes // max(1, 8 * entries + 24 * rows))
            group = self._group(number, slice_rows)
            blocks, first = -(-rows // slice_rows), -passed % every
            passed += blocks
            if first >= blocks:
                continue
            shard = self.catalog.shard_of(number)[0]
            if shard != ready:
                self._copies.wait_for(shard, remote_shards([group.shard]))
                self._copies.announce(shard + 1, remote_shards(self.catalog.shards[shard + 1 : shard + 2]))
                ready = shard
            yield from islice(self._all_slices(group), first, None, every)

    def _all_slices(self, group: Group) -> Iterator[Block]:
        if not group.shard.decoded:
            for first in range(0, group.rows, group.slice_rows):
                yield Block(group, first, min(first + group.slice_rows, group.rows), self._in_place(group))
            return
        first = 0
        for rows in group.pieces():
            yield Block(group, first, first + rows.num_rows, DecodedRows(rows))
            first += rows.num_rows
