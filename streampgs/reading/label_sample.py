"""The labels of a random sample of blocks, read without anything else of their rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.order.schedule import Schedule
from streampgs.table.arrow_columns import read_column
from streampgs.table.catalog import Catalog
from streampgs.table.layout import Columns
from streampgs.table.shard_files import ArrowFile, ParquetShard, read_exactly

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of those that must be decoded whole


def sampled_labels(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[NDArray[np.float64]]:
    """The finite labels of each of some hundred blocks."""
    groups = schedule.groups
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        labels = _group_labels(catalog, number, in_file, columns)
        slice_rows = int(schedule.slice_rows[group])
        yield from (labels[first : first + slice_rows] for first in range(0, len(labels), slice_rows))
    sliced = np.flatnonzero(~groups.decoded & (groups.rows > 0))
    blocks = np.repeat(sliced, schedule.slices[sliced])
    for place in np.sort(random.permutation(len(blocks))[:_SAMPLED_BLOCKS]).tolist():
        group = int(blocks[place])
        part = place - int(np.searchsorted(blocks, group))
        start = part * int(schedule.slice_rows[group])
        stop = min(start + int(schedule.slice_rows[group]), int(groups.rows[group]))
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        with ArrowFile(shard.path, shard.fingerprint, columns) as file:
            body = file.body_offset(in_file)

            def read(offset: int, size: int, body: int = body, file: ArrowFile = file) -> NDArray[np.uint8]:
                return np.frombuffer(read_exactly(file.fd, size, body + offset, file.path), np.uint8)

            place_of_label = file.places[str(columns.labels[0])]
            yield _finite(read_column(place_of_label, file.metadata(in_file), start, stop, read))


def _group_labels(catalog: Catalog, number: int, in_file: int, columns: Columns) -> NDArray[np.float64]:
    shard = catalog.shards[number]
    label = str(columns.labels[0])
    if shard.kind == "parquet":
        parquet = ParquetShard(shard.path, shard.layout, only=(label,))
        try:
            parts = [batch.column(label) for batch in parquet.decoded_slices(in_file, 1 << 16)]
        finally:
            parquet.close()
    else:
        with ArrowFile(shard.path, shard.fingerprint, columns) as file:
            parts = [batch.column(label) for batch in file.decoded_slices(in_file, 1 << 16)]
    return np.concatenate([_finite(part) for part in parts]) if parts else np.empty(0)


def _finite(array: pa.Array) -> NDArray[np.float64]:
    labels = array.cast(pa.float64(), safe=False).drop_null().to_numpy(zero_copy_only=False)
    return np.asarray(labels[np.isfinite(labels)])
