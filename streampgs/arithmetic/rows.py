"""Rows on their way from a block's columns to a window: copied once, into visiting order, and checked on the way."""

from __future__ import annotations

import numpy as np

from streampgs.arithmetic.jit import compiled, inlinable, reordering

# Why a row cannot be used. 0 is a good row.
NEGATIVE_INDEX = 1
INDEX_TOO_LARGE = 2
REPEATED_INDEX = 3
VALUE_NOT_FINITE = 4
VALUE_TOO_LARGE = 5

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def repeat_table(longest_row: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Room for `place_sparse` to look for repeated indices in rows that are not sorted."""
    size = 16
    while size < 4 * longest_row:
        size *= 2
    return np.full(size, -1, np.int64)


@inlinable
def _repeats_an_index(indices, start, stop, table):  # type: ignore[no-untyped-def]
    """Whether an index occurs twice, by open addressing; `table` is all -1 before and after."""
    shift = np.uint64(64 - np.int64(np.log2(table.size)))
    repeated = False
    for j in range(start, stop):
        index = np.int64(indices[j])
        place = np.int64((np.uint64(index) * _HASH_MULTIPLIER) >> shift)
        while table[place] != -1 and table[place] != index:
            place = (place + 1) & (table.size - 1)
        repeated |= table[place] == index
        table[place] = index
    for j in range(start, stop):
        index = np.int64(indices[j])
        place = np.int64((np.uint64(index) * _HASH_MULTIPLIER) >> shift)
        while table[place] != -1:
            table[place] = -1
            place = (place + 1) & (table.size - 1)
    return repeated


@inlinable
def _copy_values(values, source, target, count, out_values):  # type: ignore[no-untyped-def]
    """Copy as float32; 0 or the reason why not."""
    bad = 0
    for j in range(count):
        value = np.float32(values[source + j])
        out_values[target + j] = value
        bad += (value - value) != np.float32(0.0)
    if bad == 0:
        return 0
    for j in range(count):
        if not np.isfinite(values[source + j]):
            return VALUE_NOT_FINITE
    return VALUE_TOO_LARGE


@compiled
def place_sparse(rows, slots, offsets, indices, values, starts, out_indices, out_values, limit, reasons, table):  # type: ignore[no-untyped-def]
    """Copy rows[k] of a block to the window's slot slots[k]; gives the largest index of the good rows.

    An empty `values` means ones. `reasons[k]` becomes 0 or why row rows[k] cannot be used.
    """
    largest = np.int64(-1)
    ones = values.size == 0
    for k in range(rows.size):
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        count = stop - start
        target = starts[slots[k]]
        outside = 0
        unsorted = 0
        row_largest = np.int64(-1)
        for j in range(count):
            index = np.int64(indices[start + j])
            outside += (index < 0) | (index >= limit)
            row_largest = index if index > row_largest else row_largest
            out_indices[target + j] = np.uint32(index)
        for j in range(1, count):
            unsorted += indices[start + j] <= indices[start + j - 1]
        reason = 0
        if outside:
            reason = INDEX_TOO_LARGE
            for j in range(start, stop):
                if indices[j] < 0:
                    reason = NEGATIVE_INDEX
        elif unsorted and _repeats_an_index(indices, start, stop, table):
            reason = REPEATED_INDEX
        elif ones:
            for j in range(count):
                out_values[target + j] = np.float32(1.0)
        else:
            reason = _copy_values(values, start, target, count, out_values)
        reasons[k] = reason
        if reason == 0:
            largest = max(largest, row_largest)
    return largest


@compiled
def place_dense(rows, slots, width, values, out_values, reasons):  # type: ignore[no-untyped-def]
    """Copy rows[k] of a block (row r is values[r·width : (r+1)·width]) to the window's slot slots[k]."""
    for k in range(rows.size):
        reasons[k] = _copy_values(values, rows[k] * width, slots[k] * width, width, out_values)


@compiled
def squared_norms(starts, stops, values, exponent, out):  # type: ignore[no-untyped-def]
    """‖x‖² in the norm of the given exponent, for each row."""
    for r in range(starts.size):
        total = 0.0
        for j in range(starts[r], stops[r]):
            size = abs(np.float64(values[j]))
            total += size * size if exponent == 2.0 else size**exponent
        out[r] = total ** (2.0 / exponent)


@reordering
def _known_dot(weights, indices, values, start, stop):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(start, stop):
        if indices[j] < weights.size:
            total += weights[indices[j]] * values[j]
    return total


@reordering
def _dense_dot(weights, values, start, count):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(count):
        total += weights[j] * values[start + j]
    return total


@compiled
def score_rows(weights, intercept, starts, stops, indices, values, sparse, scores):  # type: ignore[no-untyped-def]
    """<w, x> + b for each row. Indices that the weights do not reach belong to features never seen: they add nothing."""
    for r in range(starts.size):
        if sparse:
            scores[r] = intercept + _known_dot(weights, indices, values, starts[r], stops[r])
        else:
            count = min(weights.size, stops[r] - starts[r])
            scores[r] = intercept + _dense_dot(weights, values, starts[r], count)
