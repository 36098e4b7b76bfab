"""All rows in a random order, in bounded memory.

Each row has a random key, a pure function of seed and row number, and the rows are sorted by it: every order is equally
likely, and which comes out depends neither on the memory nor on where the work was interrupted. First sorted runs are
written, as large as memory allows, each cut into record batches at fixed keys; then the keys are gone through interval by
interval, with the rows of one interval from all runs in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError
from streampgs.files import new_file
from streampgs.kernels.randomness import key_of, random_words
from streampgs.packing.array_slices import rows_a_slice
from streampgs.packing.pieces import Piece
from streampgs.packing.shards import sync_folder

_KEY_BITS = 64
_LARGEST_SHARE = 1 << 30  # what Arrow's 32-bit offsets reach
_MOST_OPEN = 128
_FEWEST_RANGES_BITS, _MOST_RANGES_BITS = 4, 13

Keys = NDArray[np.uint64]


def share_of(memory: int) -> int:
    """Bytes of rows held at once: they are there twice while they are put in order."""
    return min(_LARGEST_SHARE, memory // 5)


def range_bits(input_bytes: int, memory: int) -> int:
    """Into how many ranges of keys a run is cut, as a power of two; a guess at many more than there will be intervals."""
    intervals = max(1, 8 * input_bytes // share_of(memory))
    return min(_MOST_RANGES_BITS, max(_FEWEST_RANGES_BITS, (4 * intervals).bit_length()))


def keys_of(seed: int, first: int, rows: int) -> Keys:
    return random_words(key_of("pack", seed), np.arange(first, first + rows, dtype=np.uint64))


class RunWriter:
    """Gathers rows until there are enough for a sorted run."""

    def __init__(self, folder: Path, schema: pa.Schema, seed: int, share: int, bits: int, first_number: int) -> None:
        self._folder, self._schema, self._seed, self._share, self._bits = folder, schema, seed, share, bits
        self._number = first_number
        self._batches: list[pa.RecordBatch] = []
        self._keys: list[Keys] = []
        self._bytes = 0
        folder.mkdir(exist_ok=True)

    @property
    def full(self) -> bool:
        return self._bytes >= self._share

    @property
    def rows(self) -> int:
        return sum(map(len, self._keys))

    def add(self, batch: pa.RecordBatch, first_row: int) -> None:
        self._batches.append(batch)
        self._keys.append(keys_of(self._seed, first_row, batch.num_rows))
        self._bytes += batch.nbytes + self._keys[-1].nbytes

    def finish(self) -> dict[str, Any]:
        keys = np.concatenate(self._keys)
        size = self._bytes
        table = pa.Table.from_batches(self._batches).combine_chunks()
        self._batches, self._keys, self._bytes = [], [], 0
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        # Bounds of the ranges but the last, which ends with the keys.
        bounds = np.arange(1, 1 << self._bits, dtype=np.uint64) << np.uint64(_KEY_BITS - self._bits)
        cuts = [0, *np.searchsorted(keys, bounds).tolist(), len(keys)]
        schema = pa.schema([pa.field("", pa.uint64()), *self._schema])
        name = f"run-{self._number:05d}.arrow"
        with open(new_file(self._folder / name), "wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                for start, stop in pairwise(cuts):
                    part = table.take(pa.array(order[start:stop])).combine_chunks()
                    columns = [
                        column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in part.columns
                    ]
                    writer.write_batch(
                        pa.RecordBatch.from_arrays([pa.array(keys[start:stop]), *columns], schema=schema)
                    )
            file.flush()
            os.fsync(file.fileno())
            file_bytes = file.tell()
        sync_folder(self._folder)
        self._number += 1
        del table
        pa.default_memory_pool().release_unused()
        return {"name": name, "rows": len(keys), "bytes": size, "file_bytes": file_bytes}


class _Runs:
    """The files of sorted runs, open as long as they are few."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._open: dict[Path, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        for path in self._paths:
            if len(self._paths) <= _MOST_OPEN:
                if path not in self._open:
                    self._open[path] = pa.ipc.open_file(self._stack.enter_context(pa.OSFile(str(path))))
                yield from map(self._open[path].get_batch, range(first, stop))
            else:
                with pa.OSFile(str(path)) as file:
                    yield from map(pa.ipc.open_file(file).get_batch, range(first, stop))


def merged(
    paths: list[Path], schema: pa.Schema, total_bytes: int, share: int, bits: int, first_interval: int
) -> Iterator[Piece]:
    """The rows of all runs by their keys; the mark of a piece is its interval."""
    intervals = max(1, -(-total_bytes // share))
    shift = _KEY_BITS - bits
    try:
        with _Runs(paths) as runs:
            for interval in range(first_interval, intervals):
                low, high = ((side << _KEY_BITS) // intervals for side in (interval, interval + 1))
                table = _interval(runs.batches(low >> shift, ((high - 1) >> shift) + 1), schema, low, high)
                rows = rows_a_slice(table.nbytes / max(1, len(table)))
                order = (
                    np.argsort(table.column(0).chunk(0).to_numpy(), kind="stable") if len(table) else np.empty(0, int)
                )
                table = table.select(range(1, table.num_columns))
                for start in range(0, len(order), rows):
                    part = table.take(pa.array(order[start : start + rows])).combine_chunks().to_batches()[0]
                    yield Piece(pa.RecordBatch.from_arrays(part.columns, schema=schema), (interval,), start)
                del table
                pa.default_memory_pool().release_unused()
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"a run of the shuffle is damaged: {error}", "start anew with --overwrite") from error


def _interval(batches: Iterator[pa.RecordBatch], schema: pa.Schema, low: int, high: int) -> pa.Table:
    parts = []
    for batch in batches:
        keys = batch.column(0).to_numpy()
        start = int(np.searchsorted(keys, np.uint64(low)))
        stop = len(keys) if high >> _KEY_BITS else int(np.searchsorted(keys, np.uint64(high)))
        if stop > start:
            whole = start == 0 and stop == len(keys)
            # A copy, so that what lies beside it is let go of.
            parts.append(batch if whole else batch.take(pa.array(np.arange(start, stop))))
    keyed = pa.schema([pa.field("", pa.uint64()), *schema])
    return pa.Table.from_batches(parts, schema=keyed).combine_chunks()
