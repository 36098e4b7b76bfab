"""The values of the label columns of a table: all of them if reading them is quick, otherwise a sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.data.budget import choose_sizes, group_sizes
from streampgs.data.sampling import label_alone, sampled_label_arrays
from streampgs.encoding import types
from streampgs.encoding.labels import LabelCounts, LabelTally
from streampgs.options.commands import ModelOptions, Resources
from streampgs.order.schedule import Schedule
from streampgs.reading.decode import Group, columns_of_batch, raw_slices
from streampgs.stores.access import ASKERS
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns

# A column within these bounds is read in about a second, wherever it is.
MOST_ROWS = 1 << 24
_MOST_GROUPS, _MOST_REMOTE_GROUPS = 1 << 10, 1 << 8
_MOST_BYTES = 256 << 20
_BATCH_ROWS = 1 << 16
_DECODERS = 2


@dataclass(frozen=True)
class LabelPart:
    """Values of a label column in adjacent rows of a group."""

    group: Group
    first: int
    values: pa.Array

    def name_of(self, row: int) -> str:
        return self.group.origin(self.first).name_of(row)


def count_labels(options: ModelOptions, catalog: Catalog, columns: Columns) -> list[LabelCounts]:
    """Count the values of each label column. For a loss that predicts numbers a sample is enough."""
    whole = options.classifies and _is_quick(catalog)
    counts = []
    for number, name in enumerate(options.labels):
        found = _all_counts(catalog, columns, name) if whole else None
        counts.append(found or _sampled_counts(options, catalog, columns, number))
    return counts


def _is_quick(catalog: Catalog) -> bool:
    most_groups = _MOST_REMOTE_GROUPS if catalog.remote else _MOST_GROUPS
    return catalog.rows <= MOST_ROWS and catalog.groups <= most_groups


def _all_counts(catalog: Catalog, columns: Columns, label: str) -> LabelCounts | None:
    """None: the labels are strings so long that reading all of them would take time."""
    tally, size, lock = LabelTally(label), 0, Lock()

    def add(shard: Shard) -> None:
        nonlocal size
        for part in label_parts(shard, columns, label):
            with lock:
                size += _bytes_of(part.values)
                if size > _MOST_BYTES or tally.is_full:
                    return
                tally.add(part.values)

    with ThreadPoolExecutor(ASKERS if catalog.remote else _DECODERS, "streampgs-labels") as pool:
        for _ in pool.map(add, catalog.shards):
            pass  # errors are raised here
    return None if size > _MOST_BYTES else tally.result(complete=True)


def _bytes_of(array: pa.Array) -> int:
    """Without the dictionary, which the parts of a group share."""
    return int((array.indices if pa.types.is_dictionary(array.type) else array).nbytes)


def label_parts(shard: Shard, columns: Columns, label: str) -> Iterator[LabelPart]:
    """The label column of the rows of a shard that are trained on."""
    alone, only = label_alone(shard, columns, label)
    for number in range(len(shard.group_rows)):
        group, first = Group(number, alone, number, _BATCH_ROWS, only), 0
        for batch in raw_slices(alone, number, _BATCH_ROWS, only):
            yield LabelPart(group, first, types.leaf(columns_of_batch(batch, alone), label))
            first += batch.num_rows


def _sampled_counts(options: ModelOptions, catalog: Catalog, columns: Columns, number: int) -> LabelCounts:
    groups = group_sizes(catalog, options.row_values)
    schedule = Schedule(options.seed, groups, choose_sizes(groups, Resources()))
    return LabelCounts.of(options.labels[number], sampled_label_arrays(catalog, schedule, columns, number))


def first_place(catalog: Catalog, columns: Columns, label: str, values: Sequence[Any]) -> str:
    """The name of the first row with one of these labels."""
    for part in chain.from_iterable(label_parts(shard, columns, label) for shard in catalog.shards):
        labels = types.undictionaried(part.values)
        if types.class_of(labels.type) == types.STRING:
            known = pc.is_in(labels.cast(pa.large_string()), pa.array(values, pa.large_string()))
            places = np.flatnonzero(known.to_numpy(zero_copy_only=False))
        else:
            places = np.flatnonzero(np.isin(types.floats_of(labels), values))
        if places.size:
            return part.name_of(int(places[0]))
    return f"{len(catalog.shards)} shards"
