"""The first pass over groups that must be decoded: their rows go from the decoder straight into a window, and on the
way into the cache, while they are still at hand.

How long a row is shows only when it is decoded, so a window with such groups cannot be laid out in visiting order.
Instead rows lie as they come, and several groups are decoded at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.reading.blocks import Stopped
from streampgs.reading.cache import BlockCache
from streampgs.reading.decode import DECODER_NAME, UndecodedGroup
from streampgs.reading.placing import Found, Origin, RowPlacer, RowRules
from streampgs.reading.window import Window


@dataclass(frozen=True)
class Target:
    """Where a group's rows go."""

    window: Window
    slots: NDArray[np.int64]


class Decoding:
    """Groups on their way into one window."""

    def __init__(self) -> None:
        self.running: list[Future[Found]] = []
        self._given_up = threading.Event()

    def check(self) -> None:
        if self._given_up.is_set():
            raise Stopped

    def end(self) -> None:
        """Let nothing touch the window any more."""
        self._given_up.set()
        for future in self.running:
            future.cancel()
        wait(self.running)


class Decoders:
    """A few threads that decode groups into windows, in the order in which they are asked to."""

    def __init__(self, rules: RowRules, cache: BlockCache | None, check_stop: Callable[[], None], count: int) -> None:
        self._rules = rules
        self._cache = cache
        self._check_stop = check_stop
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, wanted: list[tuple[UndecodedGroup, Target]], width: int | None, keep: bool) -> Decoding:
        """`width` as in RowPlacer; `keep`: put the decoded rows into the cache, where they belong there."""
        decoding = Decoding()
        if wanted and self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, DECODER_NAME)
        for group, target in wanted:
            assert self._pool is not None
            placer = RowPlacer(self._rules, width)
            cache = self._cache if keep and group.shard.cached else None
            decoding.running.append(self._pool.submit(self._decode, group, target, placer, cache, decoding))
        return decoding

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _decode(
        self, group: UndecodedGroup, target: Target, placer: RowPlacer, cache: BlockCache | None, decoding: Decoding
    ) -> Found:
        found = Found()
        placed = self._placed(group, target, placer, decoding, found)
        if cache is not None:
            cache.write(group.shard, group.number, group.slice_rows, _in_slices(placed, group.slice_rows))
        else:
            for _ in placed:
                pass
        return found

    def _placed(
        self, group: UndecodedGroup, target: Target, placer: RowPlacer, decoding: Decoding, found: Found
    ) -> Iterator[pa.RecordBatch]:
        """The group's batches, each when its rows are in the window."""
        row = 0
        for batch in group.batches():
            self._check_stop()
            decoding.check()
            with group.naming_faults():
                columns = {name: batch.column(name) for name in batch.schema.names}
                arrays = placer.arrays(columns, group.shard)
            slots = target.slots[row : row + len(arrays)]
            lengths = np.diff(arrays.offsets) if placer.width is None else None
            with target.window.room_for(lengths, slots):
                placer.place(arrays, None, slots, target.window, Origin(group.shard, group.number, row), found)
            row += len(arrays)
            yield batch


def _in_slices(batches: Iterator[pa.RecordBatch], slice_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for first in range(0, batch.num_rows, slice_rows):
            yield batch.slice(first, slice_rows)
