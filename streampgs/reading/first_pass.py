"""The first pass over groups that must be decoded: their rows go from the decoder straight into a window, and into the
cache at the same time.

The length of a row is known only after decoding, so a window with such groups cannot be laid out in visiting order.
Rows are stored in the order of decoding instead, and several groups are decoded at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from streampgs.encoding.rows import RowBlock
from streampgs.reading.blocks import Stopped
from streampgs.reading.cache import BlockCache
from streampgs.reading.decode import DECODER_NAME, Group
from streampgs.reading.placing import Found, RowPlacer, RowRules
from streampgs.reading.window import WindowMemory
from streampgs.table.layout import Layout


class Decoding:
    """The groups that are being decoded into one window."""

    def __init__(self, memory: WindowMemory) -> None:
        self.memory = memory
        self.running: list[Future[Found]] = []
        self._given_up = threading.Event()

    def check(self) -> None:
        if self._given_up.is_set():
            raise Stopped

    def end(self) -> None:
        """Return after all threads have left the window alone."""
        self._given_up.set()
        for future in self.running:
            future.cancel()
        wait(self.running)


class Decoders:
    """A few threads that decode groups into windows, in the order of the requests."""

    def __init__(self, rules: RowRules, cache: BlockCache | None, check_stop: Callable[[], None], count: int) -> None:
        self._rules = rules
        self._cache = cache
        self._check_stop = check_stop
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def begin(
        self, memory: WindowMemory, wanted: list[tuple[Group, NDArray[np.int64]]], width: int | None, keep: bool
    ) -> Decoding:
        """`wanted`: groups, and the slots of their rows in the window; `width` as in RowPlacer; `keep`: write
        the rows of cached shards into the cache."""
        decoding = Decoding(memory)
        if wanted and self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, DECODER_NAME)
        for group, slots in wanted:
            assert self._pool is not None
            placer = RowPlacer(self._rules, width)
            cache = self._cache if keep and group.shard.cached else None
            decoding.running.append(self._pool.submit(self._decode, group, slots, placer, cache, decoding))
        return decoding

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _decode(
        self,
        group: Group,
        slots: NDArray[np.int64],
        placer: RowPlacer,
        cache: BlockCache | None,
        decoding: Decoding,
    ) -> Found:
        found = Found()
        placed = self._placed(group, slots, placer, decoding, found)
        if cache is not None:
            slices = (
                block.slice(first, group.slice_rows)
                for block in placed
                for first in range(0, block.num_rows, group.slice_rows)
            )
            cache.write(group, slices)
        else:
            for _ in placed:
                pass
        return found

    def _placed(
        self, group: Group, slots: NDArray[np.int64], placer: RowPlacer, decoding: Decoding, found: Found
    ) -> Iterator[RowBlock]:
        """The group's rows; each block is yielded after it was copied into the window."""
        row = 0
        for block in group.blocks():
            self._check_stop()
            decoding.check()
            here = slots[row : row + block.num_rows]
            lengths = None if placer.width is not None else _lengths(block, placer, group.shard.layout)
            with decoding.memory.room_for(lengths, here):
                placer.place(block, here, decoding.memory.window, group.origin(row), found)
            row += block.num_rows
            yield block


def _lengths(block: RowBlock, placer: RowPlacer, layout: Layout) -> NDArray[np.int64]:
    """The lengths of rows among sparse ones; dense rows of wrong lengths are left out."""
    if block.indices is not None:
        return np.diff(block.bounds)
    return np.full(block.num_rows, placer.width_of(layout) or 0, np.int64)
