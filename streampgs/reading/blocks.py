"""Blocks: which rows they are, and who can read them: an Arrow file, the cache, or a decoder."""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.rows import INDICES, RowBlock
from streampgs.errors import DataError
from streampgs.formats.format import OpenShard, Slices
from streampgs.order.schedule import WindowPlan
from streampgs.reading.cache import BlockCache, CacheFile
from streampgs.reading.decode import UndecodedGroup, decoded_slices, opened
from streampgs.reading.scratch import Scratch
from streampgs.reading.table_rows import rows_of_table
from streampgs.stores.access import RemoteObject
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns

# A window may mix hundreds of files: opening each anew for its lengths and its rows would cost more than reading it.
# At most this many stay open, and half of what the process may open.
_OPEN_FILES = 1024


class Stopped(Exception):
    """A fill was asked to end."""


@dataclass
class Block:
    """Rows [start, stop) of a group, and who can read them."""

    group: int
    start: int
    stop: int
    picks: NDArray[np.int64] | None
    source: InPlace | CachedSlice | DecodedRows

    def count(self) -> int:
        return self.stop - self.start if self.picks is None else len(self.picks)


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
    """Finds the reader of each block. Files stay open from window to window, as many as a process may well have."""

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
        self.copies = copies
        self.slice_rows = slice_rows
        self.columns = columns
        self.cache = cache
        self.decoders = decoders
        self._open: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._most_open = max(1, min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._stopping = threading.Event()
        if copies is not None:
            copies.evicted = self._close_copy

    def stop(self) -> None:
        """Let work that is under way end at its next block, with Stopped."""
        self._stopping.set()

    def check_stop(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def of_plan(self, plan: WindowPlan) -> list[Block | UndecodedGroup]:
        """The blocks of a window's pieces. What must be decoded for slices is decoded; groups that come whole are left
        to be decoded."""
        pieces = plan.pieces
        shards = [self.catalog.shard_of(int(group)) for group in pieces.group]
        if self.copies is not None:
            wanted = self._remote_of(plan)
            self.copies.begin(plan.start, wanted)
            self.copies.wait_for(wanted, self.check_stop)
        whole = [self._undecoded(plan, i, *shards[i]) for i in range(len(shards))]
        self._decode_missing([(int(group), *shards[i]) for i, group in enumerate(pieces.group) if whole[i] is None])
        found: list[Block | UndecodedGroup] = []
        for i, (number, in_file) in enumerate(shards):
            undecoded = whole[i]
            if undecoded is not None:
                found.append(undecoded)
            else:
                found += self._of_piece(plan, i, number, in_file)
        return found

    def announce(self, plan: WindowPlan) -> None:
        """Ask the system to read ahead what the window will need and what lies ready on disk, and stores for copies."""
        pieces = plan.pieces
        if self.copies is not None:
            self.copies.announce(plan.start, self._remote_of(plan))
        for i, group in enumerate(pieces.group):
            self.check_stop()
            number, in_file = self.catalog.shard_of(int(group))
            shard, slice_rows = self.catalog.shards[number], int(self.slice_rows[group])
            if self._is_cached(shard, in_file, slice_rows) if shard.decoded else self._has_come(shard):
                for block in self._of_piece(plan, i, number, in_file):
                    block.source.announce(block.start, block.stop)

    def all_undecoded(self, plan: WindowPlan) -> list[UndecodedGroup] | None:
        """The groups that make up the window, if all are whole ones that must be decoded."""
        groups = []
        for i, group in enumerate(plan.pieces.group):
            undecoded = self._undecoded(plan, i, *self.catalog.shard_of(int(group)))
            if undecoded is None or not self._has_come(undecoded.shard):
                return None
            groups.append(undecoded)
        return groups

    def _remote_of(self, plan: WindowPlan) -> list[RemoteObject]:
        """The copies that a window needs: where decoded slices are in the cache, none."""
        wanted: dict[RemoteObject, None] = {}
        for group in np.unique(plan.pieces.group).tolist():
            number, in_file = self.catalog.shard_of(group)
            shard = self.catalog.shards[number]
            if isinstance(shard.path, RemoteObject) and not self._is_cached(
                shard, in_file, int(self.slice_rows[group])
            ):
                wanted[shard.path] = None
        return list(wanted)

    def _has_come(self, shard: Shard) -> bool:
        return self.copies is None or not isinstance(shard.path, RemoteObject) or self.copies.is_here(shard.path)

    def _bring(self, shard: Shard) -> None:
        """A copy that nobody could know to be needed."""
        if self.copies is not None and isinstance(shard.path, RemoteObject):
            self.copies.also([shard.path])
            self.copies.wait_for([shard.path], self.check_stop)

    def _close_copy(self, remote: RemoteObject) -> None:
        """A deleted file that is still open takes its place on the disk."""
        for key, file in list(self._open.items()):
            if key[0] == "shard" and file.file.path == remote:
                del self._open[key]
                file.close()

    def _is_cached(self, shard: Shard, in_file: int, slice_rows: int) -> bool:
        return shard.cached and self.cache is not None and self.cache.path(shard, in_file, slice_rows).exists()

    def _undecoded(self, plan: WindowPlan, piece: int, number: int, in_file: int) -> UndecodedGroup | None:
        """The piece as a group to be decoded, if it is a whole one that is not in the cache."""
        pieces, shard = plan.pieces, self.catalog.shards[number]
        if not shard.decoded or pieces.picks is not None:
            return None
        if pieces.stop[piece] - pieces.start[piece] != shard.group_rows[in_file]:
            return None
        slice_rows = int(self.slice_rows[pieces.group[piece]])
        if self._is_cached(shard, in_file, slice_rows):
            return None
        return UndecodedGroup(shard, in_file, slice_rows, self.columns)

    def _of_piece(self, plan: WindowPlan, piece: int, number: int, in_file: int) -> Iterator[Block]:
        pieces, shard = plan.pieces, self.catalog.shards[number]
        group, start, stop = int(pieces.group[piece]), int(pieces.start[piece]), int(pieces.stop[piece])
        picks = pieces.picks[piece] if pieces.picks is not None else None
        if not shard.decoded:
            yield Block(group, start, stop, picks, self._in_place(number, in_file))
            return
        slice_rows = int(self.slice_rows[group])
        cached = partial(self._cache_file, group, shard, in_file, slice_rows)
        for first in range(start, stop, slice_rows):
            last = min(first + slice_rows, stop)
            yield Block(group, first, last, picks, CachedSlice(cached, first // slice_rows))

    def _in_place(self, number: int, in_file: int) -> InPlace:
        shard = self.catalog.shards[number]
        return InPlace(partial(self._shard_file, number), in_file, shard.layout.columns, self.columns)

    def _shard_file(self, number: int) -> OpenShard:
        file: OpenShard = self._kept_open(("shard", number), partial(opened, self.catalog.shards[number]))
        return file

    def _cache_file(self, group: int, shard: Shard, in_file: int, slice_rows: int) -> CacheFile:
        def opened_file() -> CacheFile:
            assert self.cache is not None
            file = self.cache.open(shard, in_file, slice_rows)
            if file is None:  # gone or damaged since it was looked for
                self._bring(shard)
                self._decode(shard, in_file, slice_rows)
                file = self.cache.open(shard, in_file, slice_rows)
            if file is None:
                raise DataError(
                    f"the cache in '{self.cache.folder}' does not keep what is written to it",
                    "name another place with --cache DIR",
                )
            return file

        file: CacheFile = self._kept_open(("cache", group), opened_file)
        return file

    def _kept_open(self, key: tuple[str, int], open_file: Callable[[], Any]) -> Any:
        """An open file, of which only so many are kept: a window may mix more files than a process may open."""
        file = self._open.get(key)
        if file is None:
            while len(self._open) >= self._most_open:
                self._open.popitem(last=False)[1].close()
            file = self._open[key] = open_file()
        self._open.move_to_end(key)
        return file

    def _decode_missing(self, wanted: list[tuple[int, int, int]]) -> None:
        """Decode the groups (number, shard, number in it) that the cache does not have yet, a few at a time."""
        if self.cache is None:
            return
        missing: dict[int, tuple[Shard, int, int]] = {}
        for group, number, in_file in wanted:
            shard, slice_rows = self.catalog.shards[number], int(self.slice_rows[group])
            if shard.cached and group not in missing and not self._is_cached(shard, in_file, slice_rows):
                missing[group] = (shard, in_file, slice_rows)
        if missing:
            with ThreadPoolExecutor(self.decoders) as pool:
                for done in [pool.submit(self._decode, *group) for group in missing.values()]:
                    done.result()
            pa.default_memory_pool().release_unused()

    def _decode(self, shard: Shard, group: int, slice_rows: int) -> None:
        assert self.cache is not None

        def slices() -> Iterator[RowBlock]:
            for block in decoded_slices(shard, group, slice_rows, self.columns):
                self.check_stop()
                yield block

        self.cache.write(shard, group, slice_rows, slices())

    def in_file_order(self, block_bytes: int, every: int = 1) -> Iterator[Block]:
        """The blocks of the catalog as the files have them, each of about so many bytes; or each `every`th of them. What
        has none of these is not touched."""
        passed, ready = 0, -1
        for group in range(self.catalog.groups):
            number, in_file = self.catalog.shard_of(group)
            shard = self.catalog.shards[number]
            rows, entries = int(self.catalog.group_rows[group]), int(self.catalog.group_entries[group])
            slice_rows = max(1, rows * block_bytes // max(1, 8 * entries + 24 * rows))
            blocks, first = -(-rows // slice_rows), -passed % every
            passed += blocks
            if first >= blocks:
                continue
            if number != ready:
                self._bring_in_order(number)
                ready = number
            yield from islice(
                self._group_in_slices(group, number, in_file, shard, rows, slice_rows), first, None, every
            )

    def _bring_in_order(self, number: int) -> None:
        """The copy of one shard; that of the next comes meanwhile."""
        if self.copies is None:
            return
        now, following = (
            [s.path for s in self.catalog.shards[n : n + 1] if isinstance(s.path, RemoteObject)]
            for n in (number, number + 1)
        )
        self.copies.begin(number, now)
        self.copies.announce(number + 1, following)
        self.copies.wait_for(now, self.check_stop)

    def _group_in_slices(
        self, group: int, number: int, in_file: int, shard: Shard, rows: int, slice_rows: int
    ) -> Iterator[Block]:
        if shard.decoded:
            first = 0
            for rows_read in decoded_slices(shard, in_file, slice_rows, self.columns):
                yield Block(group, first, first + rows_read.num_rows, None, DecodedRows(rows_read))
                first += rows_read.num_rows
        else:
            for first in range(0, rows, slice_rows):
                yield Block(group, first, min(first + slice_rows, rows), None, self._in_place(number, in_file))
