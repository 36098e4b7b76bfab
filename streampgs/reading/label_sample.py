"""The labels of a random sample of blocks, read without anything else of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.plan import Plan
from streampgs.encoding.types import STRING, class_of, leaf, numbers_of, plain, undictionaried
from streampgs.order.schedule import Schedule
from streampgs.reading.decoding import columns_of_batch, raw_slices
from streampgs.table.arrow_columns import read_column
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns, Layout
from streampgs.table.shard_files import ArrowFile, read_exactly

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of those that must be decoded whole


def sampled_labels(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[NDArray[np.float64]]:
    """The finite labels of each of some hundred blocks; strings as numbers, an own one for each different string."""
    known: dict[str, int] = {}
    for labels in sampled_label_arrays(catalog, schedule, columns):
        yield _finite(labels, known)


def sampled_label_arrays(catalog: Catalog, schedule: Schedule, columns: Columns, label: int = 0) -> Iterator[pa.Array]:
    """A label column's values in each of some hundred blocks."""
    name = columns.labels[label]
    groups = schedule.groups
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        shard = catalog.shards[number]
        labels = _group_labels(shard, in_file, columns, name)
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

            yield read_column(file.places[name], file.metadata(in_file), start, stop, read)


def _group_labels(shard: Shard, in_file: int, columns: Columns, name: str) -> pa.Array:
    top = next((column for column in shard.layout.columns if name == column or name.startswith(column + ".")), None)
    only = columns if top is None else replace(columns, label=name, weight=None, encoding=Plan((), {}))
    batches = raw_slices(replace(shard, layout=_of_one(shard, top)), in_file, 1 << 16, only)
    parts = [leaf(columns_of_batch(batch, shard), name) for batch in batches]
    return plain(pa.chunked_array(parts)) if parts else pa.nulls(0)


def _of_one(shard: Shard, column: str | None) -> Layout:
    return replace(shard.layout, columns=(column,) if column is not None else shard.layout.columns[:1])


def _finite(array: pa.Array, known: dict[str, int]) -> NDArray[np.float64]:
    array = undictionaried(array).drop_null()
    if class_of(array.type) == STRING:
        return np.array([known.setdefault(text, len(known)) for text in array.to_pylist()], np.float64)
    labels = np.asarray(numbers_of(array), np.float64)
    return labels[np.isfinite(labels)]
