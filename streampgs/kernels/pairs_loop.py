"""Entries as numbers of their different pairs of index and value."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import compiled

MOST_PAIRS = (1 << 16) - 1
"""A pair that is first met when there are so many has no number: it is kept once for each of its entries."""

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


@compiled
def number_pairs(indices, values, table, pairs, codes):  # type: ignore[no-untyped-def]
    """codes[j] = the number of the pair of entry j in `pairs`, or MOST_PAIRS: it is the next of the pairs from there on.

    `values` are their bits, and `table` begins with zeros: a power of two, at least twice as many as there may be numbers.
    Returns the length of `pairs`.
    """
    shift = np.uint64(64 - np.int64(np.log2(table.size)))
    count = 0
    for j in range(indices.size):
        pair = (np.uint64(indices[j]) << _32) | np.uint64(values[j])
        place = np.int64((pair * _HASH_MULTIPLIER) >> shift)
        while table[place] and pairs[table[place] - 1] != pair:
            place = (place + 1) & (table.size - 1)
        if table[place]:
            codes[j] = table[place] - 1
            continue
        codes[j] = count if count < MOST_PAIRS else MOST_PAIRS
        pairs[count] = pair
        count += 1
        if count <= MOST_PAIRS:
            table[place] = count
    return count


@compiled
def look_up_pairs(codes, pair_indices, pair_values, indices, values):  # type: ignore[no-untyped-def]
    """The entries with these codes; an empty `indices`: their values alone."""
    following = MOST_PAIRS
    for j in range(codes.size):
        pair = int(codes[j])
        if pair == MOST_PAIRS:
            pair = following
            following += 1
        values[j] = pair_values[pair]
        if indices.size:
            indices[j] = pair_indices[pair]
