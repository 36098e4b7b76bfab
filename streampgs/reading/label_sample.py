"""The labels of a random sample of blocks, read without anything else of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.order.schedule import Schedule
from streampgs.stores.access import ASKERS, RemoteObject
from streampgs.table.arrow_columns import read_column
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns
from streampgs.table.remote_shards import decoded_remotely, opened_groups
from streampgs.table.shard_files import ArrowFile, ArrowGroups, ParquetShard

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of those that must be decoded whole
_DECODED_ROWS = 1 << 16

Labels = NDArray[np.float64]


def sampled_labels(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[Labels]:
    """The finite labels of each of some hundred blocks."""
    reads = list(_reads(catalog, schedule, columns))
    if not catalog.remote:
        for read in reads:
            yield from read()
        return
    with ThreadPoolExecutor(ASKERS, "streampgs-labels") as pool:
        for blocks in pool.map(lambda read: read(), reads):
            yield from blocks


def _reads(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[Callable[[], list[Labels]]]:
    """What reads the blocks' labels."""
    groups = schedule.groups
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        yield partial(_of_group, catalog.shards[number], in_file, columns, int(schedule.slice_rows[group]))
    sliced = np.flatnonzero(~groups.decoded & (groups.rows > 0))
    blocks = np.repeat(sliced, schedule.slices[sliced])
    for place in np.sort(random.permutation(len(blocks))[:_SAMPLED_BLOCKS]).tolist():
        group = int(blocks[place])
        part = place - int(np.searchsorted(blocks, group))
        start = part * int(schedule.slice_rows[group])
        stop = min(start + int(schedule.slice_rows[group]), int(groups.rows[group]))
        number, in_file = catalog.shard_of(group)
        yield partial(_of_slice, catalog.shards[number], in_file, columns, start, stop)


def _of_slice(shard: Shard, in_file: int, columns: Columns, start: int, stop: int) -> list[Labels]:
    with _opened(shard, columns) as file:
        body = file.body_offset(in_file)

        def read(offset: int, size: int) -> NDArray[np.uint8]:
            return np.frombuffer(file.read(size, body + offset), np.uint8)

        return [_finite(read_column(file.places[columns.labels[0]], file.metadata(in_file), start, stop, read))]


def _opened(shard: Shard, columns: Columns) -> AbstractContextManager[ArrowGroups]:
    if isinstance(shard.path, RemoteObject):
        return opened_groups(shard.path, shard.fingerprint, columns)
    return ArrowFile(shard.path, shard.fingerprint, columns)


def _of_group(shard: Shard, in_file: int, columns: Columns, slice_rows: int) -> list[Labels]:
    label = columns.labels[0]
    parts = [_finite(batch.column(label)) for batch in _decoded(shard, in_file, columns)]
    labels = np.concatenate(parts) if parts else np.empty(0)
    return [labels[first : first + slice_rows] for first in range(0, len(labels), slice_rows)]


def _decoded(shard: Shard, in_file: int, columns: Columns) -> list[pa.RecordBatch]:
    if isinstance(shard.path, RemoteObject):
        return decoded_remotely(shard.path, shard.kind, shard.layout, in_file, columns.labels[0], _DECODED_ROWS)
    if shard.kind == "parquet":
        parquet = ParquetShard(shard.path, shard.layout, only=(columns.labels[0],))
        try:
            return list(parquet.decoded_slices(in_file, _DECODED_ROWS))
        finally:
            parquet.close()
    with ArrowFile(shard.path, shard.fingerprint, columns) as file:
        return list(file.decoded_slices(in_file, _DECODED_ROWS))


def _finite(array: pa.Array) -> Labels:
    labels = array.cast(pa.float64(), safe=False).drop_null().to_numpy(zero_copy_only=False)
    return np.asarray(labels[np.isfinite(labels)])
