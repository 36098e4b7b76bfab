"""A uniform sample of all rows of a stream, in an arena for rows of any length (algorithm L of Li 1994, which changed
Vitter's reservoir to skip directly to the next row to keep).

Suppose that each row draws a key in (0, 1), and the sample is the rows with the smallest keys. Then only the largest
key in the sample must be known: the number of rows until one draws a smaller key has a geometric distribution. If rows
become so long that the arena cannot hold the sample, random rows are dropped from it. The remaining rows are a uniform
sample of fewer rows, and the new largest key is drawn from the previous one in the same way.

Draws are functions of a key and a counter, so the sample does not depend on how the rows are split into offers.
"""

from __future__ import annotations

import math

import numpy as np

from streampgs.kernels.jit import compiled, copy_entries, inlinable
from streampgs.kernels.randomness import STRIDE, mix

# Positions in the array of counts.
SIZE = 0  # number of rows that the sample should have
FILLED = 1  # number of rows that it has
NEXT = 2  # the number of the next row to be kept, counted from the stream's first
PASSED = 3  # number of rows that were offered
DRAWS = 4  # number of random words used
END = 5  # start of the unused part of the arena
LIVE = 6  # number of entries of the rows in the sample
COUNTS = 7

_FARTHEST_JUMP = float(1 << 60)
_SHIFT_11, _SHIFT_32 = np.uint64(11), np.uint64(32)


@inlinable
def _word(key, counts):  # type: ignore[no-untyped-def]
    word = mix(key + STRIDE * np.uint64(counts[DRAWS]))
    counts[DRAWS] += 1
    return word


@inlinable
def _fraction(key, counts):  # type: ignore[no-untyped-def]
    """In (0, 1]."""
    return (np.float64(_word(key, counts) >> _SHIFT_11) + 1.0) * 2.0**-53


@inlinable
def _below(key, counts, size):  # type: ignore[no-untyped-def]
    return np.int64(((_word(key, counts) >> _SHIFT_32) * np.uint64(size)) >> _SHIFT_32)


@inlinable
def _shrunk(key, counts, size):  # type: ignore[no-untyped-def]
    """The largest of so many fractions."""
    return math.exp(math.log(_fraction(key, counts)) / size)


@inlinable
def _jump(key, counts, largest_key):  # type: ignore[no-untyped-def]
    """How many rows pass before one that is kept."""
    jump = math.log(_fraction(key, counts)) / math.log1p(-largest_key)
    return np.int64(min(jump, _FARTHEST_JUMP))


@inlinable
def _drop(slot, counts, starts, lengths, rooms, labels, weights):  # type: ignore[no-untyped-def]
    """Leave a row out of the sample; the last one takes its slot."""
    counts[FILLED] -= 1
    counts[LIVE] -= lengths[slot]
    last = counts[FILLED]
    starts[slot], lengths[slot], rooms[slot] = starts[last], lengths[last], rooms[last]
    labels[slot] = labels[last]
    if weights.size:
        weights[slot] = weights[last]


@compiled
def compact(counts, starts, lengths, rooms, indices, values):  # type: ignore[no-untyped-def]
    """Rows one behind the other from the arena's beginning on."""
    order = np.argsort(starts[: counts[FILLED]])
    end = 0
    for k in range(order.size):
        slot = order[k]
        start, count = starts[slot], lengths[slot]
        if start != end:
            for j in range(count):
                values[end + j] = values[start + j]
            if indices.size:
                for j in range(count):
                    indices[end + j] = indices[start + j]
        starts[slot], rooms[slot] = end, count
        end += count
    counts[END] = end


@compiled
def offer_rows(  # type: ignore[no-untyped-def]
    key, counts, largest_key, starts, lengths, rooms, labels, weights, indices, values,
    new_starts, new_lengths, new_labels, new_weights, new_indices, new_values,
):  # fmt: skip
    """Offer rows to the sample. `key` is a np.uint64, `largest_key` an array of one; slot s of the sample has entries
    [starts[s], starts[s] + lengths[s]) of the arena, where up to rooms[s] entries are its own."""
    first, room = counts[PASSED], values.size
    counts[PASSED] += new_starts.size
    while counts[NEXT] < counts[PASSED]:
        row = counts[NEXT] - first
        need = new_lengths[row]
        filling = counts[FILLED] < counts[SIZE]
        if filling and counts[LIVE] + need > room:
            counts[SIZE] = counts[FILLED]  # from now on, the sample has as many rows as fit
            largest_key[0] = _shrunk(key, counts, counts[SIZE])
            counts[NEXT] += _jump(key, counts, largest_key[0])
            continue
        if filling:
            slot = counts[FILLED]
            counts[FILLED] += 1
            rooms[slot] = 0
        else:
            slot = _below(key, counts, counts[SIZE])
            largest_key[0] *= _shrunk(key, counts, counts[SIZE])
            counts[LIVE] -= lengths[slot]
        lengths[slot] = 0
        while slot >= 0 and counts[LIVE] + need > room:
            victim = _below(key, counts, counts[SIZE])
            _drop(victim, counts, starts, lengths, rooms, labels, weights)
            counts[SIZE] -= 1
            largest_key[0] *= _shrunk(key, counts, counts[SIZE])
            if victim == slot:
                slot = -1
            elif slot == counts[FILLED]:
                slot = victim
        if slot >= 0:
            if need > rooms[slot]:
                starts[slot], rooms[slot] = counts[END], 0
                if counts[END] + need > room:
                    compact(counts, starts, lengths, rooms, indices, values)
                    starts[slot] = counts[END]
                rooms[slot] = need
                counts[END] += need
            lengths[slot] = need
            counts[LIVE] += need
            copy_entries(values, starts[slot], new_values, new_starts[row], need)
            if indices.size:
                copy_entries(indices, starts[slot], new_indices, new_starts[row], need)
            labels[slot] = new_labels[row]
            if weights.size:
                weights[slot] = new_weights[row]
        counts[NEXT] += 1
        if filling and counts[FILLED] == counts[SIZE]:
            largest_key[0] = _shrunk(key, counts, counts[SIZE])
        if counts[FILLED] == counts[SIZE]:
            counts[NEXT] += _jump(key, counts, largest_key[0])


@compiled
def copy_rows(picks, starts, stops, indices, values, new_starts, new_indices, new_values):  # type: ignore[no-untyped-def]
    """Copy the entries of rows picks[k] to where new_starts[k] says."""
    for k in range(picks.size):
        start = starts[picks[k]]
        count = stops[picks[k]] - start
        copy_entries(new_values, new_starts[k], values, start, count)
        if indices.size:
            copy_entries(new_indices, new_starts[k], indices, start, count)
