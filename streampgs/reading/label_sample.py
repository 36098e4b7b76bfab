"""The labels of a random sample of blocks, read without anything else of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.plan import Plan
from streampgs.encoding.types import STRING, class_of, leaf, numbers_of, plain, undictionaried
from streampgs.order.schedule import Schedule
from streampgs.reading.decode import columns_of_batch, opened, raw_slices
from streampgs.stores.access import ASKERS
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of those that must be decoded whole
_DECODED_ROWS = 1 << 16
_READ_TOGETHER = 8  # blocks for which a shard is opened once; of a store many such lots are read at a time

_Slice = tuple[int, int, int, int]
"""Number of the shard, number of the group in it, rows [start, stop)."""


def sampled_labels(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[NDArray[np.float64]]:
    """The finite labels of each of some hundred blocks; strings as numbers, an own one for each different string."""
    known: dict[str, int] = {}
    for labels in sampled_label_arrays(catalog, schedule, columns):
        yield _finite(labels, known)


def sampled_label_arrays(catalog: Catalog, schedule: Schedule, columns: Columns, label: int = 0) -> Iterator[pa.Array]:
    """A label column's values in each of some hundred blocks."""
    reads = list(_reads(catalog, schedule, columns, columns.labels[label]))
    if not catalog.remote:
        for read in reads:
            yield from read()
        return
    with ThreadPoolExecutor(ASKERS, "streampgs-labels") as pool:
        for blocks in pool.map(lambda read: read(), reads):
            yield from blocks


def _reads(
    catalog: Catalog, schedule: Schedule, columns: Columns, label: str
) -> Iterator[Callable[[], list[pa.Array]]]:
    """What reads the blocks' labels."""
    groups = schedule.groups
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        yield partial(_of_group, catalog.shards[number], in_file, columns, label, int(schedule.slice_rows[group]))
    sliced = np.flatnonzero(~groups.decoded & (groups.rows > 0))
    blocks = np.repeat(sliced, schedule.slices[sliced])
    together: list[_Slice] = []
    for place in np.sort(random.permutation(len(blocks))[:_SAMPLED_BLOCKS]).tolist():
        group = int(blocks[place])
        part = place - int(np.searchsorted(blocks, group))
        start = part * int(schedule.slice_rows[group])
        stop = min(start + int(schedule.slice_rows[group]), int(groups.rows[group]))
        number, in_file = catalog.shard_of(group)
        if together and (together[0][0] != number or len(together) == _READ_TOGETHER):
            yield partial(_of_slices, catalog.shards[together[0][0]], together, label)
            together = []
        together.append((number, in_file, start, stop))
    if together:
        yield partial(_of_slices, catalog.shards[together[0][0]], together, label)


def _of_slices(shard: Shard, slices: list[_Slice], label: str) -> list[pa.Array]:
    """Of some slices of one shard."""
    with opened(shard) as file:

        def labels(in_file: int, start: int, stop: int) -> pa.Array:
            columns = file.slices(in_file, [label]).columns(
                file.file, start, stop, lambda size: np.empty(size, np.uint8)
            )
            return columns[label]

        return [labels(*rows) for _, *rows in slices]


def _of_group(shard: Shard, in_file: int, columns: Columns, label: str, slice_rows: int) -> list[pa.Array]:
    """Of a group that must be decoded, which needs no other columns for that."""
    top = next((column for column in shard.layout.columns if label == column or label.startswith(column + ".")), None)
    needed = (top,) if top is not None else shard.layout.columns[:1]  # the folders' names tell it
    only = Columns(label if top is not None else None, encoding=Plan((), {}))
    alone = replace(shard, layout=replace(shard.layout, columns=needed))
    batches = raw_slices(alone, in_file, _DECODED_ROWS, only if top is not None else columns)
    parts = [leaf(columns_of_batch(batch, shard), label) for batch in batches]
    labels = plain(pa.chunked_array(parts)) if parts else pa.nulls(0)
    return [labels[first : first + slice_rows] for first in range(0, len(labels), slice_rows)]


def _finite(array: pa.Array, known: dict[str, int]) -> NDArray[np.float64]:
    array = undictionaried(array).drop_null()
    if class_of(array.type) == STRING:
        return np.array([known.setdefault(text, len(known)) for text in array.to_pylist()], np.float64)
    labels = np.asarray(numbers_of(array), np.float64)
    return labels[np.isfinite(labels)]
