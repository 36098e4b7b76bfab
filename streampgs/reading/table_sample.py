"""A random sample of a table's rows with the columns as the files have them: what encodings are learnt from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.learning import read_bytes
from streampgs.reading.decode import columns_of_batch, raw_slices
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns

_MOST_ROWS, _FEWEST_ROWS = 1 << 16, 1 << 13
_MOST_CELLS = 1 << 23
_MOST_GROUPS, _FEWEST_GROUPS = 8, 4
_MOST_CHUNKS = 1 << 10  # columns of groups to be opened: each takes the time of a page
_BATCH_ROWS = 1 << 11
_FIRST_LOOK_ROWS = 8


@dataclass
class TableSample:
    batches: list[dict[str, pa.Array]] = field(default_factory=list)
    decoder_bytes: int = 0
    """The most that the decoder of a group had in hand, beside the rows that it gave."""


def sampled_rows(catalog: Catalog, columns: Columns, seed: int, most_bytes: int) -> TableSample:
    """Batches of rows, in the order of the table: the first rows of some groups drawn at random, from as many groups as
    it takes. Of a small table it is all rows."""
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
    room = most_bytes
    for place, group in enumerate(chosen.tolist()):
        room -= _take_first_rows(sample, catalog, columns, group, each, room // (len(chosen) - place))
    return sample


def _of_other_columns(catalog: Catalog, drawn: NDArray[np.int64], filled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups for the columns that no group drawn has: something must be learnt of each."""

    def columns_of(group: int) -> set[str]:
        layout = catalog.shards[catalog.shard_of(group)[0]].layout
        return {*layout.columns, *(constant.name for constant in layout.partitions)}

    found = set().union(*(columns_of(group) for group in drawn.tolist()))
    more = []
    for group in filled.tolist():
        if not columns_of(group) <= found:
            found |= columns_of(group)
            more.append(group)
    return np.array(more, np.int64)


def _rows_at_once(sample: TableSample, shard: Shard, group: int, columns: Columns, most_bytes: int) -> int:
    """As many as will not be more than asked for, as far as the rows before tell, or a few first ones."""
    rows = sum(len(next(iter(batch.values()))) for batch in sample.batches)
    size = sum(read_bytes(batch) for batch in sample.batches)
    if not rows:
        for batch in raw_slices(shard, group, _FIRST_LOOK_ROWS, columns):
            rows, size = batch.num_rows, read_bytes(columns_of_batch(batch, shard))
            break
    return max(1, min(_BATCH_ROWS, int(most_bytes * max(1, rows) / max(1, size))))


def _take_first_rows(
    sample: TableSample, catalog: Catalog, columns: Columns, group: int, rows: int, most_bytes: int
) -> int:
    """About the first so many rows of a group; gives how many bytes they are."""
    number, in_file = catalog.shard_of(group)
    shard = catalog.shards[number]
    taken = size = 0
    before = pa.total_allocated_bytes()
    for batch in raw_slices(shard, in_file, _rows_at_once(sample, shard, in_file, columns, most_bytes), columns):
        sample.batches.append(columns_of_batch(batch, shard))
        taken += batch.num_rows
        size += batch.nbytes
        sample.decoder_bytes = max(sample.decoder_bytes, pa.total_allocated_bytes() - before - size)
        if taken >= rows or size >= most_bytes:
            break
    return size
