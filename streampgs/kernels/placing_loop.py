"""Copy rows from the columns of a block to a window, once and in visiting order, and check them at the same time."""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from streampgs.kernels.jit import compiled, copy_entries, inlinable, prefetch_for_writing, reordering

# The reasons why a row cannot be used. 0 means that it can be used.
NEGATIVE_INDEX = 1
INDEX_TOO_LARGE = 2
REPEATED_INDEX = 3
VALUE_NOT_FINITE = 4
VALUE_TOO_LARGE = 5

_LINE_ENTRIES = 16  # of four bytes in a cache line
_ROWS_AHEAD = 3

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
def _fits_float32(value):  # type: ignore[no-untyped-def]
    """Whether the value is finite and stays so in float32. NaN compares as false."""
    return abs(value) <= _LARGEST_FLOAT32


@inlinable
def _copy_values(values, source, target, count, out_values):  # type: ignore[no-untyped-def]
    """Copy as float32; 0 or the reason why not."""
    for j in range(count):
        value = values[source + j]
        if not _fits_float32(value):
            return VALUE_TOO_LARGE if np.isfinite(value) else VALUE_NOT_FINITE
        out_values[target + j] = np.float32(value)
    return 0


@reordering
def _values_are_sound(values):  # type: ignore[no-untyped-def]
    faults = 0
    for j in range(values.size):
        faults += not _fits_float32(values[j])
    return faults == 0


@reordering
def _entries_are_sound(offsets, indices, values, limit, unrepeated):  # type: ignore[no-untyped-def]
    """Whether all rows of a block are beyond doubt, in a few passes over all their entries; and the largest index.

    Beyond doubt: indices below the limit, and strictly increasing in each row unless they are known to be all different,
    values finite in float32.
    """
    # The loops run over slices, from 0: if an index might be negative, a loop does not use vector registers.
    first, stop = offsets[0], offsets[-1]
    block = indices[first:stop]
    largest = indices.dtype.type(0)
    descents = 0
    for j in range(block.size):
        largest = block[j] if block[j] > largest else largest
    behind = block[1:]
    for j in range(0 if unrepeated else behind.size):
        descents += behind[j] <= block[j]
    for r in range(1, offsets.size - 1):
        start = offsets[r]
        if descents and first < start < stop and offsets[r + 1] > start:
            descents -= indices[start] <= indices[start - 1]
    return largest < limit and descents == 0 and _values_are_sound(values[first:stop]), largest


def _copy_converted(target, to, source, start, count):  # type: ignore[no-untyped-def]
    target[to : to + count] = source[start : start + count].astype(target.dtype)


@overload(_copy_converted)
def _copy_converted_compiled(target, to, source, start, count):  # type: ignore[no-untyped-def]
    """A memcpy where the types agree, a loop where they do not."""
    if target.dtype == source.dtype:
        return lambda target, to, source, start, count: copy_entries(target, to, source, start, count)

    def convert(target, to, source, start, count):  # type: ignore[no-untyped-def]
        for j in range(count):
            target[to + j] = source[start + j]

    return convert


@inlinable
def _prefetch_row(out_indices, out_values, target, count):  # type: ignore[no-untyped-def]
    for line in range(target, target + count, _LINE_ENTRIES):
        prefetch_for_writing(out_indices, line)
        prefetch_for_writing(out_values, line)


@compiled
def place_sparse(  # type: ignore[no-untyped-def]
    rows, slots, offsets, indices, values, starts, out_indices, out_values, limit, reasons, table, unrepeated
):
    """Copy rows[k] of a block to the window's slot slots[k]; gives the largest index of the good rows.

    `indices` are unsigned: negative ones appear as very large. An empty `values` means ones. Rows with a reason not to
    use them in `reasons` are left out; others get theirs there, or keep 0. `unrepeated`: no row has an index twice.
    """
    ones = values.size == 0
    sound, block_largest = _entries_are_sound(offsets, indices, values, limit, unrepeated)
    every_row = rows.size == offsets.size - 1
    for k in range(rows.size):
        every_row = every_row and rows[k] == k and reasons[k] == 0
    largest = np.int64(-1)
    for k in range(rows.size):
        # Consecutive rows are far apart in the window, so the target of a later row is fetched in advance.
        if k + _ROWS_AHEAD < rows.size:
            ahead = rows[k + _ROWS_AHEAD]
            _prefetch_row(out_indices, out_values, starts[slots[k + _ROWS_AHEAD]], offsets[ahead + 1] - offsets[ahead])
        if reasons[k]:
            continue
        start, stop = offsets[rows[k]], offsets[rows[k] + 1]
        count = stop - start
        target = starts[slots[k]]
        _copy_converted(out_indices, target, indices, start, count)
        if ones:
            for j in range(count):
                out_values[target + j] = np.float32(1.0)
        elif sound:
            _copy_converted(out_values, target, values, start, count)
        if sound and every_row:
            continue
        row_largest = indices.dtype.type(0)
        unsorted = False
        for j in range(start, stop):
            row_largest = indices[j] if indices[j] > row_largest else row_largest
            unsorted |= j > start and indices[j] <= indices[j - 1]
        if count > 0 and row_largest >= limit:
            negative = row_largest >> (8 * indices.itemsize - 1) != 0
            reasons[k] = NEGATIVE_INDEX if negative else INDEX_TOO_LARGE
        elif unsorted and not unrepeated and _repeats_an_index(indices, start, stop, table):
            reasons[k] = REPEATED_INDEX
        elif not ones:
            reasons[k] = _copy_values(values, start, target, count, out_values)
        if reasons[k] == 0 and count > 0:
            largest = max(largest, np.int64(row_largest))
    if sound and every_row and offsets[-1] > offsets[0]:
        largest = np.int64(block_largest)
    return largest


@compiled
def place_dense(rows, slots, width, values, starts, out_values, reasons):  # type: ignore[no-untyped-def]
    """Copy rows[k] of a block (row r is values[r·width : (r+1)·width]) to the window's slot slots[k], where it starts.

    `reasons` as in `place_sparse`.
    """
    sound = _values_are_sound(values)
    for k in range(rows.size):
        if k + _ROWS_AHEAD < rows.size:
            ahead = starts[slots[k + _ROWS_AHEAD]]
            for line in range(ahead, ahead + width, _LINE_ENTRIES):
                prefetch_for_writing(out_values, line)
        if reasons[k]:
            continue
        if sound:
            _copy_converted(out_values, starts[slots[k]], values, rows[k] * width, width)
        else:
            reasons[k] = _copy_values(values, rows[k] * width, starts[slots[k]], width, out_values)


@compiled
def squared_norms(starts, stops, values, exponent, out):  # type: ignore[no-untyped-def]
    """‖x‖² in the norm of the given exponent, for each row."""
    for r in range(starts.size):
        largest = 0.0
        for j in range(starts[r], stops[r]):
            largest = max(largest, abs(np.float64(values[j])))
        total = 0.0
        if largest > 0.0:
            for j in range(starts[r], stops[r]):
                size = abs(np.float64(values[j])) / largest
                total += size * size if exponent == 2.0 else size**exponent
        norm = largest * total ** (1.0 / exponent)
        out[r] = norm * norm


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


@compiled
def mark_features(starts, stops, indices, found):  # type: ignore[no-untyped-def]
    """found[i] = True for each feature i of the rows that `found` reaches."""
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            if indices[j] < found.size:
                found[indices[j]] = True
