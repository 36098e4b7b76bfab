"""Convert columns of codes and numbers to rows of (index, value) entries. An index occurs at most once in a row.

Entries are not sorted: sorting a row would cost more than all other work, and nothing needs it. A small hash table with
open addressing finds equal indices. It has the row in the upper and the entry in the lower half of a number, and is never
cleared: what it has of other rows does not count.
"""

from __future__ import annotations

import numpy as np

from streampgs.kernels.hashing import NO_CODE
from streampgs.kernels.jit import compiled, inlinable

BINARY, COUNTED, LOG_COUNTED = range(3)
"""The value of a token that occurs c times in a text: 1, c, or 1 + log c."""

_SIGN = np.uint32(1 << 31)
_INDEX = np.uint32((1 << 31) - 1)
_NONE = np.uint32(NO_CODE)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_64 = np.uint64(64)
_ENTRY = (1 << 32) - 1
_CACHED_BITS = 11


@inlinable
def _table_bits(longest_row):  # type: ignore[no-untyped-def]
    """A table of 16 places an entry seldom needs a second look, if it fits into the first-level cache."""
    bits = 4
    while (1 << bits) < 2 * longest_row or (bits < _CACHED_BITS and (1 << bits) < 16 * longest_row):
        bits += 1
    return bits


@inlinable
def _entry_of(index, row, first, end, indices, table, bits):  # type: ignore[no-untyped-def]
    """The entry of the row with this index, in [first, end); `end` if the index is new, which is then remembered."""
    place = np.int64((np.uint64(index) * _SPREAD) >> (_64 - np.uint64(bits)))
    while table[place] >> 32 == row:
        entry = first + (table[place] & _ENTRY)
        if indices[entry] == index:
            return entry
        place = (place + 1) & (table.size - 1)
    table[place] = (np.int64(row) << 32) | (end - first)
    return end


@inlinable
def _without_zeros(indices, values, first, end):  # type: ignore[no-untyped-def]
    kept = first
    for k in range(first, end):
        indices[kept] = indices[k]
        values[kept] = values[k]
        kept += values[k] != 0.0
    return kept


@inlinable
def _longest(offsets):  # type: ignore[no-untyped-def]
    longest = 0
    for r in range(offsets.size - 1):
        longest = max(longest, offsets[r + 1] - offsets[r])
    return longest


@inlinable
def _weighed(indices, values, first, end, weighting, rarity, rarity_base, normalised):  # type: ignore[no-untyped-def]
    """Turn the signed counts of a row's entries [first, end) into values; returns the new end."""
    squares = 0.0
    for k in range(first, end):
        count = float(abs(values[k]))
        value = count
        if count > 1.0 and weighting == BINARY:
            value = 1.0
        elif count > 1.0 and weighting == LOG_COUNTED:
            value = 1.0 + np.log(count)
        if rarity.size:
            value *= rarity[np.int64(indices[k]) - rarity_base]
        squares += value * value
        values[k] = np.float32(value if values[k] > 0.0 else -value)
    if normalised and squares > 0.0:
        scale = 1.0 / np.sqrt(squares)
        for k in range(first, end):
            values[k] = np.float32(values[k] * scale)
    return _without_zeros(indices, values, first, end)  # tokens whose signs cancelled out


@compiled
def bags(codes, offsets, weighting, rarity, rarity_base, normalised):  # type: ignore[no-untyped-def]
    """Rows of the tokens codes[offsets[r]:offsets[r + 1]]: equal ones are counted and weighted, multiplied by
    rarity[index - rarity_base] if there are rarities, and scaled to length 1 if `normalised`. Returns offsets, indices and
    values."""
    out_offsets = np.zeros(offsets.size, np.int64)
    indices = np.empty(codes.size, np.uint32)
    values = np.empty(codes.size, np.float32)
    bits = _table_bits(_longest(offsets))
    table = np.full(1 << bits, -1, np.int64)
    end = 0
    for r in range(offsets.size - 1):
        first = end
        for k in range(offsets[r], offsets[r + 1]):
            index = codes[k] & _INDEX
            sign = np.float32(-1.0 if codes[k] & _SIGN else 1.0)
            entry = _entry_of(index, r, first, end, indices, table, bits)
            if entry == end:
                indices[end] = index
                values[end] = sign
                end += 1
            else:
                values[entry] += sign
        end = _weighed(indices, values, first, end, weighting, rarity, rarity_base, normalised)
        out_offsets[r + 1] = end
    return out_offsets, indices[:end], values[:end]


@compiled
def standardize(values, nulls, centre, scale, largest, out, clipped):  # type: ignore[no-untyped-def]
    """out[r] = (values[r] - centre)·scale, at most `largest` in size, 0 for null; an empty `nulls`: no row is.

    clipped[r] = 1 for the rows whose number is cut down; the first of them is returned, or the number of rows. NaN and
    infinite values stay as they are.
    """
    first = values.size
    for r in range(values.size):
        number = (values[r] - centre) * scale
        if nulls.size and nulls[r]:
            number = 0.0
        elif abs(number) > largest and np.isfinite(values[r]):
            number = np.copysign(largest, number)
            clipped[r] = 1
            first = min(first, r)
        out[r] = number
    return first


@compiled
def between_knots(values, nulls, knots, first, features, shares):  # type: ignore[no-untyped-def]
    """features[r] = first + the place of the knot before values[r], and shares[r] how near it is to the next one, from 0 to
    1. Values beyond the knots count as the last knot; null has no feature. An empty `nulls`: no row is null."""
    last = knots.size - 1
    for r in range(values.size):
        if nulls.size and nulls[r]:
            features[r] = _NONE
            continue
        low, high = 0, last
        while low + 1 < high:
            middle = (low + high) >> 1
            if values[r] >= knots[middle]:
                low = middle
            else:
                high = middle
        between = 0.5 * knots[low + 1] - 0.5 * knots[low]  # halves: the difference itself may leave the range
        share = (0.5 * values[r] - 0.5 * knots[low]) / between if between > 0.0 else 0.0 * values[r]
        features[r] = first + np.uint32(low)
        shares[r] = min(max(share, 0.0), 1.0) if share == share else np.nan


@compiled
def codes_of_places(codes, places, nulls, null_code, out):  # type: ignore[no-untyped-def]
    """out[r] = codes[places[r]], the code of null where a row is null; an empty `nulls`: no row is. Returns whether all
    places are there."""
    sound = True
    for r in range(places.size):
        if nulls.size and nulls[r]:
            out[r] = null_code
        elif 0 <= places[r] < codes.size:
            out[r] = codes[places[r]]
        else:
            sound = False
    return sound


@compiled
def counted_rows(indices, counts):  # type: ignore[no-untyped-def]
    """counts[index] += 1 for each of the indices."""
    for k in range(indices.size):
        counts[indices[k]] += 1


@compiled
def side_by_side(offsets, indices, values, more_offsets, more_indices, more_values):  # type: ignore[no-untyped-def]
    """In each row the entries of the first, then those of the second."""
    rows = offsets.size - 1
    total = offsets[rows] - offsets[0] + more_offsets[rows] - more_offsets[0]
    out_offsets = np.zeros(rows + 1, np.int64)
    out_indices = np.empty(total, np.uint32)
    out_values = np.empty(total, np.float32)
    end = 0
    for r in range(rows):
        for k in range(offsets[r], offsets[r + 1]):
            out_indices[end] = indices[k]
            out_values[end] = values[k]
            end += 1
        for k in range(more_offsets[r], more_offsets[r + 1]):
            out_indices[end] = more_indices[k]
            out_values[end] = more_values[k]
            end += 1
        out_offsets[r + 1] = end
    return out_offsets, out_indices, out_values


@compiled
def assembled_rows(  # type: ignore[no-untyped-def]
    rows, numbers, knots, shares, codes, offsets, indices, values, out_indices, out_values
):
    """Rows of four parts: numbers[f, r] as feature f, unless it is 0; 1 - shares[k, r] as feature knots[k, r], and shares[k, r]
    as the next one; codes[k, r] with value 1 or -1; and the entries of a bag, [offsets[r], offsets[r + 1]) if there is one,
    whose indices are in the range of the codes.

    Indices and values are written to `out_indices` and `out_values`, which are one longer than the longest result;
    returns the offsets.
    """
    features, curves, coded = numbers.shape[0], knots.shape[0], codes.shape[0]
    bagged = offsets.size > 1
    out_offsets = np.zeros(rows + 1, np.int64)
    bits = _table_bits(coded + (_longest(offsets) if bagged else 0))
    table = np.full(1 << bits, -1, np.int64)
    end = 0
    for r in range(rows):
        for f in range(features):
            value = numbers[f, r]
            out_indices[end] = np.uint32(f)
            out_values[end] = value
            end += value != 0.0  # the next value overwrites a 0
        for k in range(curves):
            if knots[k, r] == _NONE:
                continue
            share = shares[k, r]
            out_indices[end] = knots[k, r]
            out_values[end] = np.float32(1.0) - share
            end += share != 1.0
            out_indices[end] = knots[k, r] + np.uint32(1)
            out_values[end] = share
            end += share != 0.0
        first, cancelled = end, False
        for k in range(coded):
            code = codes[k, r]
            if code == _NONE:
                continue
            index = code & _INDEX
            sign = np.float32(-1.0 if code & _SIGN else 1.0)
            entry = _entry_of(index, r, first, end, out_indices, table, bits)
            if entry == end:
                out_indices[end] = index
                out_values[end] = sign
                end += 1
            else:
                out_values[entry] += sign
                cancelled = cancelled or out_values[entry] == 0.0
        if bagged:
            for k in range(offsets[r], offsets[r + 1]):
                entry = end
                if coded:  # without codes no index can repeat
                    entry = _entry_of(indices[k], r, first, end, out_indices, table, bits)
                if entry == end:
                    out_indices[end] = indices[k]
                    out_values[end] = values[k]
                    end += 1
                else:
                    out_values[entry] += values[k]
                    cancelled = cancelled or out_values[entry] == 0.0
        if cancelled:
            end = _without_zeros(out_indices, out_values, first, end)
        out_offsets[r + 1] = end
    return out_offsets


@compiled
def merged_bags(offsets, indices, values):  # type: ignore[no-untyped-def]
    """Rows in which an index may repeat: the values of equal indices are added up."""
    out_offsets = np.zeros(offsets.size, np.int64)
    out_indices = np.empty(indices.size, np.uint32)
    out_values = np.empty(indices.size, np.float32)
    bits = _table_bits(_longest(offsets))
    table = np.full(1 << bits, -1, np.int64)
    end = 0
    for r in range(offsets.size - 1):
        first = end
        for k in range(offsets[r], offsets[r + 1]):
            entry = _entry_of(indices[k], r, first, end, out_indices, table, bits)
            if entry == end:
                out_indices[end] = indices[k]
                out_values[end] = values[k]
                end += 1
            else:
                out_values[entry] += values[k]
        end = _without_zeros(out_indices, out_values, first, end)
        out_offsets[r + 1] = end
    return out_offsets, out_indices[:end], out_values[:end]


@compiled
def rows_from_columns(numbers, out):  # type: ignore[no-untyped-def]
    """out[r, f] = numbers[f, r]."""
    for r in range(out.shape[0]):
        for f in range(numbers.shape[0]):
            out[r, f] = numbers[f, r]
