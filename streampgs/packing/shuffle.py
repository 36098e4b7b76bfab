"""All rows in a random order, in bounded memory.

Each row has a random key, a pure function of the seed and its number, and the rows are sorted by key. Every order is
equally likely, and it depends neither on the memory nor on interruptions. First sorted runs are written, as large as the
memory allows, each cut into record batches at fixed keys. Then the runs are merged, one interval of keys at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.checks import Count
from streampgs.base.errors import DataError
from streampgs.base.faults import naming_faults
from streampgs.base.files import OWN, closed_after_reading, explaining, native_path, new_file, sync_folder
from streampgs.kernels.randomness import key_of, random_words
from streampgs.reading.array_slices import rows_a_slice

_KEY_BITS, _RANGE_BITS = 64, 8  # a run has a record batch for each value of the first bits of the keys
_LARGEST_SHARE = 1 << 30  # the reach of Arrow's 32-bit offsets
_KEYS = pa.field("", pa.uint64())

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Run:
    """A file of rows sorted by their keys."""

    name: str
    rows: Count
    bytes: Count
    """In memory, with the keys."""
    file_bytes: Count


def share_of(memory: int) -> int:
    """Bytes of rows in memory at once; sorting holds them twice."""
    return min(_LARGEST_SHARE, memory // 5)


def keys_of(seed: int, first: int, rows: int) -> Keys:
    return random_words(key_of("pack", seed), np.arange(first, first + rows, dtype=np.uint64))


def write_runs(batches: Iterable[pa.RecordBatch], folder: Path, seed: int, share: int) -> list[Run]:
    """Write sorted runs of about `share` bytes."""
    folder.mkdir(exist_ok=True)
    runs: list[Run] = []
    held: list[pa.RecordBatch] = []
    size = first = rows = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes + 8 * batch.num_rows
        rows += batch.num_rows
        if size >= share:
            runs.append(_write_run(folder / f"run-{len(runs):05d}.arrow", held, keys_of(seed, first, rows), size))
            first, rows, size, held = first + rows, 0, 0, []
    if rows:
        runs.append(_write_run(folder / f"run-{len(runs):05d}.arrow", held, keys_of(seed, first, rows), size))
    sync_folder(folder)
    return runs


def _write_run(path: Path, batches: list[pa.RecordBatch], keys: Keys, size: int) -> Run:
    table = pa.concat_batches(batches)
    batches.clear()
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    bounds = np.arange(1, 1 << _RANGE_BITS, dtype=np.uint64) << np.uint64(_KEY_BITS - _RANGE_BITS)
    schema = pa.schema([_KEYS, *table.schema])
    with explaining(path), open(new_file(path), "wb") as file:
        with pa.ipc.new_file(file, schema) as writer:
            for start, stop in pairwise([0, *np.searchsorted(keys, bounds).tolist(), len(keys)]):
                part = table.take(pa.array(order[start:stop]))
                writer.write_batch(
                    pa.RecordBatch.from_arrays([pa.array(keys[start:stop]), *part.columns], schema=schema)
                )
        file.flush()
        os.fsync(file.fileno())
        file_bytes = file.tell()
    del table
    pa.default_memory_pool().release_unused()
    return Run(path.name, len(keys), size, file_bytes)


def merged(paths: list[Path], total_bytes: int, share: int) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order of their keys."""
    ranges = 1 << _RANGE_BITS
    intervals_a_range = -(-total_bytes // (share * ranges)) or 1
    intervals = ranges * intervals_a_range
    try:
        for interval in range(intervals):
            low, high = ((side << _KEY_BITS) // intervals for side in (interval, interval + 1))
            table = _interval(paths, interval // intervals_a_range, low, high)
            order = np.argsort(table.column(0).to_numpy(), kind="stable")
            rows = rows_a_slice(table.nbytes / max(1, len(table)))
            table = table.select(range(1, table.num_columns))
            for start in range(0, len(order), rows):
                yield table.take(pa.array(order[start : start + rows]))
            del table
            pa.default_memory_pool().release_unused()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"a run of the shuffle is damaged: {error}", "start over with --overwrite") from error


def _interval(paths: list[Path], number: int, low: int, high: int) -> pa.RecordBatch:
    parts = []
    for path in paths:
        with naming_faults(path), native_path(path, OWN) as name, closed_after_reading(pa.OSFile(name)) as file:
            batch = pa.ipc.open_file(file).get_batch(number)
        keys = batch.column(0).to_numpy()
        start = int(np.searchsorted(keys, np.uint64(low)))
        stop = len(keys) if high >> _KEY_BITS else int(np.searchsorted(keys, np.uint64(high)))
        whole = start == 0 and stop == len(keys)
        parts.append(batch if whole else batch.take(pa.array(np.arange(start, stop))))  # a copy: frees the rest
    return pa.concat_batches(parts)
