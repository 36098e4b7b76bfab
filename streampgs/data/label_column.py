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
from streampgs.data.sampling import sampled_label_arrays
from streampgs.encoding import types
from streampgs.encoding.label_counts import LabelCounts, LabelTally
from streampgs.options import ModelOptions, Resources
from streampgs.order.schedule import Schedule
from streampgs.reading.decode import opened
from streampgs.stores.access import ASKERS
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns
from streampgs.table.partitions import partition_columns

# A column within these bounds is read in about a second, wherever it is.
MOST_ROWS = 1 << 24
_MOST_GROUPS, _MOST_REMOTE_GROUPS = 1 << 10, 1 << 8
_MOST_BYTES = 256 << 20
_BATCH_ROWS = 1 << 16
_DECODERS = 2


@dataclass(frozen=True)
class LabelPart:
    """Values of a label column in adjacent rows of a shard."""

    shard: Shard
    group: int
    """Number in the shard."""
    first: int
    """Number of the first row in the group."""
    values: pa.Array

    def name_of(self, row: int) -> str:
        in_group = self.first + row
        in_file = sum(self.shard.group_rows[: self.group]) + in_group
        group = f"{self.shard.group_name} {self.group}"
        return f"shard '{self.shard.path}', {group}, row {in_group} (row {in_file} of the file)"


def count_labels(options: ModelOptions, catalog: Catalog, columns: Columns) -> list[LabelCounts]:
    """Of each label column. For a loss that predicts numbers a sample is enough."""
    whole = options.classifies and _is_quick(catalog)
    counts = []
    for number, name in enumerate(options.labels):
        found = _all_counts(catalog, name) if whole else None
        counts.append(found or _sampled_counts(options, catalog, columns, number))
    return counts


def _is_quick(catalog: Catalog) -> bool:
    most_groups = _MOST_REMOTE_GROUPS if catalog.remote else _MOST_GROUPS
    return catalog.rows <= MOST_ROWS and catalog.groups <= most_groups


def _all_counts(catalog: Catalog, column: str) -> LabelCounts | None:
    """None: the labels are strings so long that reading all of them would take time."""
    tally, size, lock = LabelTally(column), 0, Lock()

    def add(shard: Shard) -> None:
        nonlocal size
        for part in label_parts(shard, column):
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


def label_parts(shard: Shard, column: str) -> Iterator[LabelPart]:
    """The label column of a shard; no other column is read."""
    constants = {constant.name for constant in shard.layout.partitions}
    if column in constants:
        for group, rows in enumerate(shard.group_rows):
            yield LabelPart(shard, group, 0, partition_columns(shard.layout.partitions, rows)[column])
        return
    top = next(name for name in shard.layout.columns if column == name or column.startswith(name + "."))
    with opened(shard) as file:
        textual = types.class_of(file.schema.field(top).type) == types.STRING
        for group in range(len(shard.group_rows)):
            first = 0
            for batch in file.decode(group, _BATCH_ROWS, [top], {column} if textual else ()):
                yield LabelPart(shard, group, first, types.leaf({top: batch.column(0)}, column))
                first += batch.num_rows


def _sampled_counts(options: ModelOptions, catalog: Catalog, columns: Columns, number: int) -> LabelCounts:
    groups = group_sizes(catalog, options.row_values)
    schedule = Schedule(options.seed, groups, choose_sizes(groups, Resources()))
    return LabelCounts.of(options.labels[number], sampled_label_arrays(catalog, schedule, columns, number))


def first_place(catalog: Catalog, column: str, values: Sequence[Any]) -> str:
    """The name of the first row with one of these labels."""
    for part in chain.from_iterable(label_parts(shard, column) for shard in catalog.shards):
        labels = types.undictionaried(part.values)
        if types.class_of(labels.type) == types.STRING:
            known = pc.is_in(labels.cast(pa.large_string()), pa.array(values, pa.large_string()))
            places = np.flatnonzero(known.to_numpy(zero_copy_only=False))
        else:
            places = np.flatnonzero(np.isin(types.floats_of(labels), values))
        if places.size:
            return part.name_of(int(places[0]))
    return f"{len(catalog.shards)} shards"
