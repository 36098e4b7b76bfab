"""Tables that have their features ready, as lists: columns of a batch to rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.rows import (
    FEATURES,
    FEATURES_NULL,
    INDICES,
    LENGTHS_DIFFER,
    VALUES,
    Ints,
    RowBlock,
    bounds_of,
    checked_rows,
    entries_of,
    width_of,
)
from streampgs.table.layout import Columns


def rows_of_table(arrays: dict[str, pa.Array], columns: Columns) -> RowBlock:
    faults = np.zeros(len(next(iter(arrays.values()))), np.uint8)
    lists = arrays[INDICES] if INDICES in arrays else arrays[FEATURES]
    _mark_nulls(lists, faults)
    bounds, indices = bounds_of(lists), None
    if INDICES not in arrays:
        values: NDArray[np.generic] | None = entries_of(lists, whole=False)
    else:
        indices = entries_of(lists, whole=True)
        values = _aligned_values(arrays[VALUES], bounds, faults) if VALUES in arrays else None
    labels = [arrays[name] for name in columns.labels]
    weight, offset = (None if name is None else arrays[name] for name in (columns.weight, columns.offset))
    return checked_rows(faults, labels, weight, offset, bounds, indices, values, width_of(lists))


def _mark_nulls(lists: pa.Array, faults: NDArray[np.uint8]) -> None:
    if lists.null_count:
        faults[lists.is_null().to_numpy(zero_copy_only=False)] = FEATURES_NULL


def _aligned_values(lists: pa.Array, bounds: Ints, faults: NDArray[np.uint8]) -> NDArray[np.generic]:
    """Values in the places of their indices."""
    _mark_nulls(lists, faults)
    own_bounds, values = bounds_of(lists), entries_of(lists, whole=False)
    if np.array_equal(own_bounds, bounds):
        return values
    lengths = np.diff(bounds)
    differ = np.diff(own_bounds) != lengths
    faults[differ & (faults == 0)] = LENGTHS_DIFFER
    # Rows whose lengths differ get zeros, and are not used.
    source = np.repeat(own_bounds[:-1] - bounds[:-1], lengths) + np.arange(bounds[-1])
    source[np.repeat(differ, lengths)] = -1
    if not values.size:
        return np.zeros(int(bounds[-1]), values.dtype)
    aligned: NDArray[np.generic] = np.where(source >= 0, values[np.maximum(source, 0)], 0).astype(values.dtype)
    return aligned
