"""Numbers for the features that rows have shown."""

from __future__ import annotations

from streampgs.kernels.jit import compiled, prefetch_for_writing

# Rows that follow each other may be far apart in memory.
_ROWS_AHEAD = 3
_LINE_ENTRIES = 16  # of four bytes in a cache line


@compiled
def number_features(starts, stops, indices, table, listed, count, out):  # type: ignore[no-untyped-def]
    """out[j] = the number of the feature of entry j. Features without one get the next number, in the order of the rows.

    `table` has a number for each feature, 0 for none: it counts from 1, as its memory begins with zeros. `listed` has the
    feature of each number. Returns how many there are."""
    for r in range(starts.size):
        if r + _ROWS_AHEAD < starts.size:
            for line in range(starts[r + _ROWS_AHEAD], stops[r + _ROWS_AHEAD], _LINE_ENTRIES):
                prefetch_for_writing(indices, line)
                prefetch_for_writing(out, line)
        for j in range(starts[r], stops[r]):
            feature = indices[j]
            number = table[feature]
            if number == 0:
                listed[count] = feature
                count += 1
                number = count
                table[feature] = number
            out[j] = number - 1
    return count


@compiled
def look_up(starts, stops, indices, table, unknown, out):  # type: ignore[no-untyped-def]
    """out[j] = the number of the feature of entry j, or `unknown`."""
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            number = table[indices[j]] if indices[j] < table.size else 0
            out[j] = number - 1 if number > 0 else unknown
