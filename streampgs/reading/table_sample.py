"""A random sample of a table's rows with the columns as the files have them: what encodings are learnt from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streampgs.reading.decoding import columns_of_batch, raw_slices
from streampgs.table.catalog import Catalog
from streampgs.table.layout import Columns

_MOST_ROWS, _FEWEST_ROWS = 1 << 16, 1 << 13
_MOST_CELLS = 1 << 23
_MOST_BYTES = 64 << 20
_GROUPS = 8
_BATCH_ROWS = 1 << 11


def sampled_rows(catalog: Catalog, columns: Columns, seed: int) -> list[dict[str, pa.Array]]:
    """Batches of rows, in the order of the table: the first rows of some groups drawn at random, from as many groups as
    it takes. Of a small table it is all rows."""
    wide = max(1, max(len(shard.layout.columns) for shard in catalog.shards))
    wanted = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_CELLS // wide))
    each = max(_BATCH_ROWS, wanted // _GROUPS)
    filled = np.flatnonzero(catalog.group_rows > 0)
    if catalog.rows <= wanted:
        chosen, each = filled, wanted
    else:
        drawn = np.random.default_rng(seed).permutation(filled)
        reach = np.cumsum(np.minimum(catalog.group_rows[drawn], each))
        chosen = np.sort(drawn[: int(np.searchsorted(reach, wanted)) + 1])
    found: list[dict[str, pa.Array]] = []
    room = _MOST_BYTES
    for place, group in enumerate(chosen.tolist()):
        share = room // (len(chosen) - place)
        batches, taken = _first_rows(catalog, columns, group, each, share)
        found += batches
        room -= taken
    return found


def _first_rows(
    catalog: Catalog, columns: Columns, group: int, rows: int, most_bytes: int
) -> tuple[list[dict[str, pa.Array]], int]:
    """About the first so many rows of a group, and how many bytes they are."""
    number, in_file = catalog.shard_of(group)
    shard = catalog.shards[number]
    found, taken, size = [], 0, 0
    for batch in raw_slices(shard, in_file, _BATCH_ROWS, columns):
        found.append(columns_of_batch(batch, shard))
        taken += batch.num_rows
        size += batch.nbytes
        if taken >= rows or size >= most_bytes:
            break
    return found, size
