"""All rows in a random order, in bounded memory.

Each row has a random key, a pure function of the seed and its number, and the rows are sorted by key. So every order is
equally likely, and it does not depend on the memory. Rows that do not fit into memory are spread over files by the first
bits of their keys, and each file is sorted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from streampgs.base.files import OWN, explaining, reading
from streampgs.kernels.randomness import key_of, random_words
from streampgs.reading.array_slices import rows_a_slice

_KEY_BITS, _BITS_A_LEVEL = 64, 5
_LARGEST_SHARE = 1 << 30  # the reach of Arrow's 32-bit offsets
_KEY = ""
"""The name of the first column, which holds the keys."""


def share_of(memory: int) -> int:
    """Bytes of rows in memory at once; sorting holds them twice."""
    return min(_LARGEST_SHARE, memory // 5)


def shuffled(batches: Iterator[pa.RecordBatch], folder: Path, seed: int, share: int) -> Iterator[pa.RecordBatch]:
    """The rows in the order of their keys. Files in `folder` hold those for which `share` bytes have no room."""
    return _sorted(_with_keys(batches, seed), folder, share, _KEY_BITS - _BITS_A_LEVEL)


def _with_keys(batches: Iterator[pa.RecordBatch], seed: int) -> Iterator[pa.RecordBatch]:
    first, key = 0, key_of("pack", seed)
    for batch in batches:
        numbers = np.arange(first, first + batch.num_rows, dtype=np.uint64)
        first += batch.num_rows
        yield batch.add_column(0, _KEY, pa.array(random_words(key, numbers)))


def _sorted(batches: Iterator[pa.RecordBatch], folder: Path, share: int, shift: int) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > share:
            files = _spread(_both(held, batches), folder, shift)
            del held, batch
            for file in files:
                yield from _sorted(_read(file), folder, share, shift - _BITS_A_LEVEL)
                file.unlink()
            return
    if held:
        rows = pa.concat_batches(held)
        del held
        order = np.argsort(rows.column(0).to_numpy(), kind="stable")
        rows = rows.select(range(1, rows.num_columns))
        at_once = rows_a_slice(rows.nbytes / len(order))
        for start in range(0, len(order), at_once):
            yield rows.take(pa.array(order[start : start + at_once]))


def _both(held: list[pa.RecordBatch], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while held:
        yield held.pop(0)
    yield from batches


def _spread(batches: Iterator[pa.RecordBatch], folder: Path, shift: int) -> list[Path]:
    """Files with the rows whose keys begin with the same bits, in ascending order."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{shift:02d}-{bucket:02d}.arrows" for bucket in range(1 << _BITS_A_LEVEL)]
    first = next(batches)
    with explaining(folder), ExitStack() as stack:
        writers = [stack.enter_context(pa.ipc.new_stream(str(file), first.schema)) for file in files]
        for batch in _both([first], batches):
            buckets = batch.column(0).to_numpy() >> np.uint64(shift) & np.uint64(len(files) - 1)
            for bucket in np.unique(buckets).tolist():
                writers[bucket].write_batch(batch.take(pa.array(np.flatnonzero(buckets == bucket))))
    return files


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with reading(path, OWN) as file:
        yield from pa.ipc.open_stream(file)
