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

from streampgs.errors import DataError
from streampgs.formats.arrow_columns import list_offsets, read_column
from streampgs.formats.arrow_metadata import BatchMetadata
from streampgs.formats.shard_files import ArrowFile, announce, read_into
from streampgs.order.schedule import WindowPlan
from streampgs.reading.cache import BlockCache, CacheFile
from streampgs.reading.decode import UndecodedGroup, decoded_slices
from streampgs.reading.scratch import Scratch
from streampgs.stores.access import RemoteObject
from streampgs.stores.copies import Copies
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns

# A window may mix hundreds of files: opening each anew for its lengths and its rows would cost more than reading it.
# At most this many stay open, and half of what the process may open.
_OPEN_FILES = 1024
_WORTH_READING_WHOLE = 0.75


class Stopped(Exception):
    """A fill was asked to end."""


@dataclass
class Block:
    """Rows [start, stop) of a group, and who can read them."""

    group: int
    start: int
    stop: int
    picks: NDArray[np.int64] | None
    source: ArrowGroup | CachedSlice | DecodedRows

    def count(self) -> int:
        return self.stop - self.start if self.picks is None else len(self.picks)


@dataclass
class ArrowGroup:
    opened: Callable[[], ArrowFile]
    number: int

    @property
    def file(self) -> ArrowFile:
        return self.opened()

    @cached_property
    def batch(self) -> BatchMetadata:
        return self.file.metadata(self.number)

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
class CachedSlice:
    opened: Callable[[], CacheFile]
    number: int

    @property
    def file(self) -> CacheFile:
        return self.opened()

    def announce(self, start: int, stop: int) -> None:
        self.file.announce(self.number)

    def lengths(self, start: int, stop: int, lists: str, scratch: Scratch) -> NDArray[np.int64]:
        return self.file.lengths(self.number, lists, scratch)

    def columns(self, start: int, stop: int, scratch: Scratch) -> dict[str, pa.Array]:
        return self.file.columns(self.number, scratch)


@dataclass
class DecodedRows:
    """Rows decoded into memory, of a group that is not cached."""

    batch: pa.RecordBatch

    def announce(self, start: int, stop: int) -> None:
        """They are here."""

    def lengths(self, start: int, stop: int, lists: str, scratch: Scratch) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self.batch.column(lists).offsets.to_numpy().astype(np.int64)
        return np.diff(offsets)

    def columns(self, start: int, stop: int, scratch: Scratch) -> dict[str, pa.Array]:
        return {name: self.batch.column(name) for name in self.batch.schema.names}


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
            if key[0] == "arrow" and file.path == remote:
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
            yield Block(group, start, stop, picks, self._arrow_group(number, in_file))
            return
        slice_rows = int(self.slice_rows[group])
        opened = partial(self._cache_file, group, shard, in_file, slice_rows)
        for first in range(start, stop, slice_rows):
            last = min(first + slice_rows, stop)
            yield Block(group, first, last, picks, CachedSlice(opened, first // slice_rows))

    def _arrow_group(self, number: int, in_file: int) -> ArrowGroup:
        return ArrowGroup(partial(self._arrow_file, number), in_file)

    def _arrow_file(self, number: int) -> ArrowFile:
        shard = self.catalog.shards[number]

        def opened() -> ArrowFile:
            file = ArrowFile(shard.path, shard.fingerprint, self.columns)
            if file.groups != len(shard.group_rows):
                file.close()
                raise DataError(
                    f"shard '{shard.path}' has {file.groups} record batches and not {len(shard.group_rows)} as catalogued",
                    "restore it, or start a new run",
                )
            return file

        file: ArrowFile = self._kept_open(("arrow", number), opened)
        return file

    def _cache_file(self, group: int, shard: Shard, in_file: int, slice_rows: int) -> CacheFile:
        def opened() -> CacheFile:
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

        file: CacheFile = self._kept_open(("cache", group), opened)
        return file

    def _kept_open(self, key: tuple[str, int], opened: Callable[[], Any]) -> Any:
        """An open file, of which only so many are kept: a window may mix more files than a process may open."""
        file = self._open.get(key)
        if file is None:
            while len(self._open) >= self._most_open:
                self._open.popitem(last=False)[1].close()
            file = self._open[key] = opened()
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

        def slices() -> Iterator[pa.RecordBatch]:
            for batch in decoded_slices(shard, group, slice_rows, self.columns):
                self.check_stop()
                yield batch

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
            for batch in decoded_slices(shard, in_file, slice_rows, self.columns):
                yield Block(group, first, first + batch.num_rows, None, DecodedRows(batch))
                first += batch.num_rows
        else:
            for first in range(0, rows, slice_rows):
                yield Block(group, first, min(first + slice_rows, rows), None, self._arrow_group(number, in_file))
