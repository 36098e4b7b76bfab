"""The rows of a batch that fulfil a condition, with the labels that are expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.expressions.expression import Expression


def columns_by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def selected(
    batch: pa.RecordBatch,
    where: Expression | None,
    computed: Sequence[Expression],
    columns_of: Callable[[pa.RecordBatch], dict[str, pa.Array]] = columns_by_name,
) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
    """The rows, and their places in the batch. `columns_of` gives the columns of a batch by name, with those that are not
    in the file."""
    places = np.arange(batch.num_rows)
    if where is not None:
        chosen = where.selects(columns_of(batch), batch.num_rows)
        batch, places = _filtered(batch, chosen), np.flatnonzero(chosen)
    for label in computed:
        batch = batch.append_column(str(label), label.values(columns_of(batch), batch.num_rows))
    return batch, places


def _filtered(batch: pa.RecordBatch, chosen: pa.Array) -> pa.RecordBatch:
    if chosen.true_count == batch.num_rows:
        return batch
    arrays = [_chosen(types.plain(column), chosen) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _chosen(array: pa.Array, chosen: pa.Array) -> pa.Array:
    try:
        return array.filter(chosen)
    except pa.ArrowNotImplementedError:  # strings of views inside of lists: pyarrow copies whole runs of rows only
        ends = np.flatnonzero(np.diff(np.asarray(chosen).astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        return pa.concat_arrays([array.slice(first, stop - first) for first, stop in ends] or [array.slice(0, 0)])
