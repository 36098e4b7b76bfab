"""Rows first, columns later: the source of solvers that step on single columns.

In epoch 0, and in updates, windows have rows in the usual order. Each is transposed and becomes a layer of the columns. In
later epochs windows have columns: a block of them, which joins the parts of all layers, is visited several times while it
is in memory, and meanwhile the next one is read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import Count, decode, encode
from streampgs.base.errors import DataError, OptionError, RunError
from streampgs.base.stage import Bundle
from streampgs.data.source import Source
from streampgs.order.columns import SWEEPS, ColumnVisit, TooLarge, block_at, block_bounds, of_columns
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import UpdatePass, WindowSpan
from streampgs.reading.column_files import LayerDamaged
from streampgs.reading.columns import (
    Columns,
    Layer,
    MemoryLayer,
    Part,
    Room,
    column_window,
    joined,
    transposed,
    warm_up,
)
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import Window

# Of a line: its feature and bounds, those of a sweep, and the numbers with which the next block is joined.
LINE_BYTES = 100
_ENTRY_BYTES = 8
_DENSE_BYTES = 4
_LINES_AT_ONCE = 1 << 18
_POLL_SECONDS = 0.1
_TRIES = 3


class Store(Protocol):
    """Where layers are kept."""

    def keep(self, columns: Columns) -> str:
        """The name of the layer."""

    def layer(self, name: str) -> Layer:
        """Raises LayerDamaged."""

    def forget(self, name: str) -> None: ...

    def close(self) -> None: ...


class MemoryStore:
    """Keeps layers in memory."""

    def __init__(self) -> None:
        self._layers: list[Columns] = []

    def keep(self, columns: Columns) -> str:
        self._layers.append(columns)
        return str(len(self._layers) - 1)

    def layer(self, name: str) -> Layer:
        return MemoryLayer(self._layers[int(name)])

    def forget(self, name: str) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class KeptLayer:
    """A window of rows that has become a layer."""

    name: str
    start: Cursor
    """Of the window: so it can be read again."""
    rows: Count
    dense: bool


@dataclass(frozen=True)
class _Block:
    """A range of features, and the lines of each layer in it."""

    first: int
    stop: int
    places: tuple[tuple[int, int], ...]


class Blocks:
    """How the columns of all layers are cut into blocks: a function of the counts of their entries."""

    def __init__(self, layers: list[Layer], dense: bool, most: int, line_bytes: int = LINE_BYTES) -> None:
        self._layers, self._dense = layers, dense
        rows = sum(layer.rows for layer in layers)
        counts = _counts(layers)
        if dense:
            counts[...] = rows
        used = counts > 0
        sizes = counts.astype(np.float64)
        sizes *= _DENSE_BYTES if dense else _ENTRY_BYTES
        np.add(sizes, line_bytes, out=sizes, where=used)
        self.lines = int(np.count_nonzero(used))
        try:
            bounds = block_bounds(sizes, most)
        except TooLarge as error:
            raise OptionError(
                f"feature {error.column:,} takes {error.size / 1e6:,.0f} MB, because {counts[error.column]:,} rows have it; "
                f"a block of columns may have {most / 2e6:,.0f} MB",
                f"start a new run with {error.size / (most / 2):.1f} times as much --memory",
            ) from error
        cuts = [_cuts(layer, bounds) for layer in layers]
        self._blocks = [
            _Block(int(bounds[k]), int(bounds[k + 1]), tuple((int(cut[k]), int(cut[k + 1])) for cut in cuts))
            for k in range(len(bounds) - 1)
        ]

    def __len__(self) -> int:
        return len(self._blocks)

    def read(self, number: int, room: Room) -> Columns:
        """Into this room, if it is not in memory as it is. Raises LayerDamaged."""
        block = self._blocks[number]
        parts = [Part(layer, *place) for layer, place in zip(self._layers, block.places, strict=True)]
        return joined(parts, block.first, block.stop, self._dense, room)


def _counts(layers: list[Layer]) -> NDArray[np.int64]:
    """The entries of each feature."""
    counts = np.zeros(0, np.int64)
    for layer in layers:
        for first in range(0, len(layer), _LINES_AT_ONCE):
            columns, bounds = layer.lines(first, min(len(layer), first + _LINES_AT_ONCE))
            if columns[-1] >= len(counts):
                counts = np.concatenate([counts, np.zeros(int(columns[-1]) + 1 - len(counts), np.int64)])
            counts[columns] += np.diff(bounds)
    return counts


def _cuts(layer: Layer, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many lines of the layer are before each of these features."""
    cuts = np.zeros(len(bounds), np.int64)
    for first in range(0, len(layer), _LINES_AT_ONCE):
        columns, _ = layer.lines(first, min(len(layer), first + _LINES_AT_ONCE))
        cuts += np.searchsorted(columns, bounds)
    return cuts


class _Reader:
    """Reads blocks, the next one in a thread. Keeps the block in use."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self._rooms = [Room(), Room()]
        """The first one is for the next block, the second one for the block in use."""
        self._present: tuple[int, Columns] | None = None
        self._ahead: tuple[int, Future[Columns]] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def take(self, number: int, stop: StopAsked) -> Columns | None:
        """None on a stop. Raises LayerDamaged."""
        if self._present is not None and self._present[0] == number:
            return self._present[1]
        self._present = None
        if self._ahead is None or self._ahead[0] != number:
            self.announce(number)
        assert self._ahead is not None
        future = self._ahead[1]
        while not wait([future], _POLL_SECONDS).done:
            if stop.reason is not None:
                return None
        self._ahead = None
        self._present = number, future.result()
        self._rooms.reverse()
        return self._present[1]

    def announce(self, number: int) -> None:
        """Read this block in the thread, unless it is in use."""
        if (self._present is not None and self._present[0] == number) or (self._ahead and self._ahead[0] == number):
            return
        if self._ahead is not None:
            wait([self._ahead[1]])
        self._thread = self._thread or ThreadPoolExecutor(1, "streampgs-columns")
        self._ahead = number, self._thread.submit(self.blocks.read, number, self._rooms[0])

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._present, self._ahead, self._thread = None, None, None


class ColumnSource:
    """`rows` gives the windows of rows."""

    access: Literal["rows", "columns"] = "columns"
    ends = "epochs"
    rows_taken = None
    has_unsaved = False

    def __init__(
        self,
        rows: Source,
        store: Store,
        seed: int,
        dense: bool,
        most: int,
        line_bytes: int = LINE_BYTES,
        read_again: Callable[[Cursor], Window] | None = None,
    ) -> None:
        """`most`: the bytes of a block that has all columns; `line_bytes`: those of a column besides its entries.
        `read_again`: the window of rows that starts at a cursor, if its layer can be lost."""
        self.rows = rows
        self._line_bytes = line_bytes
        self._store, self._seed, self._dense, self._most, self._read_again = store, seed, dense, most, read_again
        self._layers: list[KeptLayer] = []
        self._reader: _Reader | None = None
        self._last_epoch: int | None = None
        self._waited = 0.0
        self.made_again = 0
        """How many layers were missing or damaged."""

    @property
    def epoch_rows(self) -> int:
        """Rows; once columns are visited, lines."""
        return self.rows.epoch_rows if self._reader is None else self._reader.blocks.lines * SWEEPS

    @property
    def seconds_waiting(self) -> float:
        return self._waited + self.rows.seconds_waiting

    def prepare(self, last_epoch: int | None) -> None:
        self._last_epoch = last_epoch
        warm_up()
        self.rows.prepare(1)  # rows are read in one epoch only

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        if of_columns(cursor):
            began = time.perf_counter()
            self.rows.close()
            try:
                return self._window_of_columns(cursor, stop)
            finally:
                self._waited += time.perf_counter() - began
        self._close_reader()
        window = self.rows.window(cursor, stop)
        if window is not None and window.rows > 0:
            began = time.perf_counter()
            self._take(window)
            self._waited += time.perf_counter() - began
        return window

    # Rows become layers.

    def _take(self, window: Window) -> None:
        assert window.plan is not None
        start = window.plan.start
        if self._layers and _same_place(self._layers[-1].start, start):
            return
        name = self._store.keep(transposed(window, self._dense))
        self._layers.append(KeptLayer(name, start, window.rows, self._dense))

    def _make_again(self, damage: LayerDamaged) -> None:
        """Read the rows of a layer again, and transpose them."""
        kept = next(layer for layer in self._layers if layer.name == damage.name)
        self._store.forget(kept.name)
        assert self._read_again is not None, "columns in memory are not lost"
        columns = transposed(self._read_again(kept.start), self._dense)
        if kept.dense and not self._dense:  # other shards are sparse by now
            columns = replace(columns, indices=np.empty(0, np.uint32), dense=True)
        self.made_again += 1
        if self._store.keep(columns) != kept.name:
            raise RunError(
                f"the columns of {kept.rows:,} rows are gone ({damage}), and the shards do not give these rows any more",
                "restore the shards as they were, or the file of columns; or start a new run",
            )

    # Columns.

    def _window_of_columns(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        if stop.reason is not None or self._is_last(cursor.epoch):
            return None
        attempts: Counter[str] = Counter()
        while True:
            try:
                return self._sweep(cursor, stop)
            except LayerDamaged as damage:
                attempts[damage.name] += 1
                if attempts[damage.name] == _TRIES:
                    raise DataError(
                        f"the file of columns '{damage.name}' is damaged repeatedly: {damage}",
                        "check the disk with the run's cache, and start a new run with another `--cache DIR`",
                    ) from damage
                self._close_reader()
                self._make_again(damage)

    def _sweep(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        if self._reader is None:
            layers = [self._store.layer(kept.name) for kept in self._layers]
            blocks = Blocks(layers, self._dense, self._most, self._line_bytes)
            if not blocks.lines:
                raise DataError(
                    "no row has a feature, so there are no columns",
                    "check the columns of the table with `streampgs inspect DATA`, or use another solver",
                )
            self._reader = _Reader(blocks)
        reader, start = self._reader, cursor.at_row(0)
        visit = ColumnVisit(cursor.epoch, cursor.position, len(reader.blocks), cursor.slice, SWEEPS)
        if visit.position >= visit.blocks or visit.sweep >= SWEEPS:
            raise _no_place()
        block = reader.take(self._number(start), stop)
        if block is None:
            return None
        following = replace(start, position=start.position + 1, slice=0)
        if following.position == visit.blocks:
            following = replace(start, epoch=start.epoch + 1, position=0, slice=0)
        if not self._is_last(following.epoch):
            reader.announce(self._number(following))
        window, key = column_window(block, visit, self._seed)
        if cursor.row > window.rows:
            raise _no_place()
        is_last_sweep = visit.sweep == SWEEPS - 1
        window.plan = WindowSpan(start, following if is_last_sweep else replace(start, slice=start.slice + 1), key)
        return window

    def _number(self, cursor: Cursor) -> int:
        """Of the block at a cursor."""
        assert self._reader is not None
        return block_at(self._seed, cursor.epoch, cursor.position, len(self._reader.blocks))

    def _is_last(self, epoch: int) -> bool:
        """Whether reading ends before this epoch."""
        return self._last_epoch is not None and epoch >= self._last_epoch and not self._follows_new_rows(epoch)

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def release(self, window: Window) -> None:
        if window.visit is None:
            self.rows.release(window)
        else:  # the block after the next one takes this memory
            window.indices, window.values = np.empty(0, np.uint32), np.empty(0, np.float32)
            window.starts = window.stops = window.columns = np.empty(0, np.int64)

    def close(self) -> None:
        self._close_reader()
        self.rows.close()
        self._store.close()

    # Where training is.

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        if not of_columns(cursor):
            return self.rows.epochs(cursor, window)
        if self._reader is None or window is None or not window.rows:
            return float(cursor.epoch)
        sweeps = cursor.slice + cursor.row / window.rows
        return cursor.epoch + (cursor.position + sweeps / SWEEPS) / len(self._reader.blocks)

    def has_done(self, cursor: Cursor, epochs: int) -> bool:
        """After new rows, one more epoch follows."""
        return self.rows.has_done(cursor, epochs) and not self._follows_new_rows(cursor.epoch)

    def _follows_new_rows(self, epoch: int) -> bool:
        last = self._layers[-1].start if self._layers else None
        return last is not None and last.part > 0 and last.epoch == epoch - 1

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        """None: new rows join the problem, and no other model is trained next to this one."""
        return None

    def update_rows(self, cursor: Cursor, window: Window | None) -> tuple[float, float] | None:
        return None if of_columns(cursor) else self.rows.update_rows(cursor, window)

    # The section of the checkpoint.

    def state(self) -> Bundle:
        bundle = self.rows.state()
        bundle.values["layers"] = [encode(layer) for layer in self._layers]
        return bundle

    def restore(self, bundle: Bundle) -> None:
        self.rows.restore(bundle)
        self._layers = [decode(KeptLayer, record) for record in bundle.values["layers"]]


def _same_place(one: Cursor, other: Cursor) -> bool:
    return (one.place, one.slice) == (other.place, other.slice)


def _no_place() -> RunError:
    return RunError(
        "the position in the checkpoint does not exist among the columns of the run",
        "restore the run's folder from a copy, or start a new run",
    )
