"""Random samples of a table: the labels of some hundred blocks, and rows as the files have them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds.kind import Arrays, row_count
from streampgs.encoding.plan import Plan
from streampgs.encoding.rows import joined
from streampgs.encoding.sizes import parts
from streampgs.formats.registry import FORMATS
from streampgs.kernels.rows import Rows
from streampgs.order.schedule import Schedule
from streampgs.reading.decode import columns_of_batch, opened, raw_slices, refuse_long_rows
from streampgs.reading.placing import LARGEST_INDEX, targets_of
from streampgs.stores.access import ASKERS
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns, is_needed

_SAMPLED_BLOCKS = 256
_SAMPLED_GROUPS = 32  # of groups that must be decoded whole
_DECODED_ROWS = 1 << 16
_BLOCKS_PER_OPEN = 8  # of one shard; of an object store several such lots are read at a time

_MOST_ROWS, _FEWEST_ROWS = 1 << 16, 1 << 13
_MOST_CELLS = 1 << 23
_MOST_GROUPS, _FEWEST_GROUPS = 8, 4
_MOST_CHUNKS = 1 << 10  # columns × groups: opening each takes as long as reading a page
_BATCH_ROWS = 1 << 11
_FIRST_LOOK_ROWS = 8
_SMALL_ROWS, _JOINED_BATCHES = 256, 64

# Labels.

_Slice = tuple[int, int, int]
"""Number of the group in its shard, rows [start, stop)."""


def sampled_labels(catalog: Catalog, schedule: Schedule, columns: Columns) -> Iterator[NDArray[np.float64]]:
    """The finite labels of each sampled block; each different string becomes a number."""
    known: dict[int, int] = {}
    for labels in sampled_label_arrays(catalog, schedule, columns):
        yield _finite(labels, known)


def sampled_label_arrays(catalog: Catalog, schedule: Schedule, columns: Columns, label: int = 0) -> Iterator[pa.Array]:
    """The values of a label column in each sampled block."""
    reads = list(_reads(catalog, schedule, columns, columns.labels[label]))
    if not catalog.remote:
        for read in reads:
            yield from read()
        return
    with ThreadPoolExecutor(ASKERS, "streampgs-labels") as pool:
        for blocks in pool.map(lambda read: list(read()), reads):
            yield from blocks


def _reads(
    catalog: Catalog, schedule: Schedule, columns: Columns, label: str
) -> Iterator[Callable[[], Iterable[pa.Array]]]:
    """Functions that read the labels of one shard's sampled blocks."""
    groups = schedule.groups
    random = np.random.default_rng(0)
    decoded = np.flatnonzero(groups.decoded & (groups.rows > 0))
    for group in np.sort(random.permutation(decoded)[:_SAMPLED_GROUPS]).tolist():
        number, in_file = catalog.shard_of(group)
        yield partial(_of_group, catalog.shards[number], in_file, columns, label, int(schedule.slice_rows[group]))
    sliced = np.flatnonzero(~groups.decoded & (groups.rows > 0))
    blocks = np.repeat(sliced, schedule.slices[sliced])
    of_shard: defaultdict[int, list[_Slice]] = defaultdict(list)
    for place in np.sort(random.permutation(len(blocks))[:_SAMPLED_BLOCKS]).tolist():
        group = int(blocks[place])
        part = place - int(np.searchsorted(blocks, group))
        start = part * int(schedule.slice_rows[group])
        stop = min(start + int(schedule.slice_rows[group]), int(groups.rows[group]))
        number, in_file = catalog.shard_of(group)
        of_shard[number].append((in_file, start, stop))
    for number, slices in of_shard.items():
        for first in range(0, len(slices), _BLOCKS_PER_OPEN):
            yield partial(_of_slices, catalog.shards[number], slices[first : first + _BLOCKS_PER_OPEN], label)


def _of_slices(shard: Shard, slices: list[_Slice], label: str) -> list[pa.Array]:
    with opened(shard) as file:

        def labels(in_file: int, start: int, stop: int) -> pa.Array:
            columns = file.slices(in_file, [label]).columns(
                file.file, start, stop, lambda size: np.empty(size, np.uint8)
            )
            return columns[label]

        return [labels(*rows) for rows in slices]


def label_alone(shard: Shard, columns: Columns, label: str) -> tuple[Shard, Columns]:
    """For reading a label column, and of the other columns only those that it and the condition are computed from."""
    only = replace(columns, label=label, weight=None, offset=None, label_specs=(), encoding=Plan((), {}))
    only = replace(only, computed=tuple(one for one in columns.computed if str(one) == label))
    needed = tuple(name for name in shard.layout.columns if is_needed(name, only.needed))
    needed = needed or shard.layout.columns[:1]  # the label is in the folders' names
    return replace(shard, layout=replace(shard.layout, columns=needed)), only


def _of_group(shard: Shard, in_file: int, columns: Columns, label: str, slice_rows: int) -> Iterator[pa.Array]:
    """Decode the label column of a whole group."""
    alone, only = label_alone(shard, columns, label)
    for batch in raw_slices(alone, in_file, max(1, _DECODED_ROWS // slice_rows) * slice_rows, only):
        labels = types.leaf(columns_of_batch(batch, shard), label)
        yield from (labels[first : first + slice_rows] for first in range(0, len(labels), slice_rows))


def _finite(array: pa.Array, known: dict[int, int]) -> NDArray[np.float64]:
    array = types.undictionaried(array).drop_null()
    if types.class_of(array.type) == types.STRING:
        return np.array([known.setdefault(hash(text), len(known)) for text in array.to_pylist()], np.float64)
    labels = np.asarray(types.numbers_of(array), np.float64)
    return labels[np.isfinite(labels)]


# Rows.


@dataclass
class TableSample:
    batches: list[dict[str, pa.Array]] = field(default_factory=list)
    rows: int = 0
    read_bytes: int = 0
    decoder_bytes: int = 0
    """The most memory that decoding a group took in addition to its rows."""
    _small: int = 0
    """Batches of few rows at the end."""

    def add(self, batch: dict[str, pa.Array], rows: int, read_bytes: float) -> None:
        self.batches.append(batch)
        self.rows += rows
        self.read_bytes += int(read_bytes)
        self._small = self._small + 1 if rows < _SMALL_ROWS else 0
        if self._small == _JOINED_BATCHES:
            self._join_small()

    def _join_small(self) -> None:
        """An array takes some hundred bytes besides its values: too much for row groups of a few rows."""
        small = self.batches[-_JOINED_BATCHES:]
        self._small = 0
        if len({tuple((name, array.type) for name, array in batch.items()) for batch in small}) > 1:
            return
        whole = {name: pa.concat_arrays([batch[name] for batch in small]) for name in small[0]}
        self.batches[-_JOINED_BATCHES:] = [whole]
        self._small = int(all(len(array) < _SMALL_ROWS for array in whole.values()))


def sampled_rows(catalog: Catalog, columns: Columns, seed: int, most_bytes: int) -> TableSample:
    """Batches of rows in the order of the table: the first rows of some random groups; all rows of a small table."""
    wide = max(1, max(len(shard.layout.columns) for shard in catalog.shards))
    wanted = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_CELLS // wide))
    groups = max(_FEWEST_GROUPS, min(_MOST_GROUPS, _MOST_CHUNKS // wide))
    each = max(_BATCH_ROWS, wanted // groups)
    filled = np.flatnonzero(catalog.group_rows > 0)
    if catalog.rows <= wanted:
        chosen, each = filled, wanted
    else:
        drawn = np.random.default_rng(seed).permutation(filled)
        reach = np.cumsum(np.minimum(catalog.group_rows[drawn], each))
        few = drawn[: int(np.searchsorted(reach, each * groups)) + 1]
        chosen = np.sort(np.concatenate([few, _of_other_columns(catalog, few, filled)]))
    sample = TableSample()
    bytes_left = most_bytes
    for place, group in enumerate(chosen.tolist()):
        bytes_left -= _take_first_rows(sample, catalog, columns, group, each, bytes_left // (len(chosen) - place))
    return sample


def some_of(batches: Sequence[Arrays], rows: int) -> list[Arrays]:
    """About so many rows, evenly from all batches."""
    share = min(1.0, rows / max(1, sum(map(row_count, batches))))
    return [{name: array[: math.ceil(share * len(array))] for name, array in batch.items()} for batch in batches]


def encoded_rows(batches: Sequence[Arrays], columns: Columns, classifies: bool, encoding: Encoding) -> Rows:
    """The usable rows that have labels. Their numbers are their places."""
    encoder = Encoder(encoding)
    block = joined(
        [
            encoder.encode(batch, row_count(batch), columns.labelled, columns.weight, columns.offset).lasting()
            for batch in batches
        ]
    )
    faults = block.faults.copy()
    targets, weights = targets_of(block, columns, classifies, columns.class_count, faults)
    indices = np.empty(0, np.uint32) if block.indices is None else block.indices.view(np.uint32)
    values = np.empty(0, np.float32) if block.values is None else block.values
    starts, stops = block.bounds[:-1], block.bounds[1:]
    for wrong in (~np.isfinite(values), indices > LARGEST_INDEX):
        faults[np.searchsorted(stops, np.flatnonzero(wrong), side="right")] = 1
    features = encoding.features or int(indices[indices <= LARGEST_INDEX].max(initial=0)) + 1
    found = Rows(starts, stops, indices, values, targets, weights, block.offsets, features=features)
    return found.at(np.flatnonzero(faults == 0))


def _of_other_columns(catalog: Catalog, drawn: NDArray[np.int64], filled: NDArray[np.int64]) -> NDArray[np.int64]:
    """More groups, so that every column is in the sample."""

    def columns_of(shard: int) -> frozenset[str]:
        layout = catalog.shards[shard].layout
        return frozenset([*layout.columns, *(constant.name for constant in layout.partitions)])

    shards, firsts = np.unique(np.searchsorted(catalog.shard_starts, filled, side="right") - 1, return_index=True)
    found = frozenset[str]().union(*(columns_of(catalog.shard_of(group)[0]) for group in drawn.tolist()))
    more = []
    for shard, first in zip(shards.tolist(), firsts.tolist(), strict=True):
        if not columns_of(shard) <= found:
            found |= columns_of(shard)
            more.append(int(filled[first]))
    return np.array(more, np.int64)


def _rows_at_once(sample: TableSample, shard: Shard, group: int, columns: Columns, most_bytes: int) -> int:
    """Rows of a batch of about `most_bytes`, by the size of the rows read so far or of a few first ones."""
    rows, size = sample.rows, sample.read_bytes
    if not rows:
        for batch in raw_slices(shard, group, _FIRST_LOOK_ROWS, columns):
            rows, size = batch.num_rows, int(sum(part_bytes for _, part_bytes in parts(batch, most_bytes)))
            break
    return max(1, min(_BATCH_ROWS, int(most_bytes * max(1, rows) / max(1, size))))


def _take_first_rows(
    sample: TableSample, catalog: Catalog, columns: Columns, group: int, rows: int, most_bytes: int
) -> int:
    """Take about the first `rows` rows of a group; returns their bytes."""
    number, in_file = catalog.shard_of(group)
    shard = catalog.shards[number]
    taken, size, stored = 0, 0.0, 0
    readers = FORMATS[shard.format].column_bytes * len(shard.layout.columns)
    sample.decoder_bytes = max(sample.decoder_bytes, readers)
    before = pa.total_allocated_bytes()
    for batch in raw_slices(shard, in_file, _rows_at_once(sample, shard, in_file, columns, most_bytes), columns):
        if columns.encoding is not None:
            refuse_long_rows(shard, in_file, taken, batch, columns.encoding.work)
        # Dictionaries count as often as they are used: learning writes them out.
        for part, part_bytes in parts(batch, most_bytes):
            if taken < rows and size < most_bytes:
                sample.add(columns_of_batch(part, shard), part.num_rows, part_bytes)
                taken += part.num_rows
                size += part_bytes
        stored += batch.nbytes
        sample.decoder_bytes = max(sample.decoder_bytes, readers + pa.total_allocated_bytes() - before - stored)
        if taken >= rows or size >= most_bytes:
            break
    return int(size)
