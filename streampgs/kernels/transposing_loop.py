"""Rows become columns, and parts of columns are joined."""

from __future__ import annotations

from streampgs.kernels.jit import compiled

_ROWS_AT_ONCE = 16


@compiled
def count_entries(starts, stops, indices, counts):  # type: ignore[no-untyped-def]
    """Add the entries of each feature in these rows to `counts`."""
    for r in range(starts.size):
        for k in range(starts[r], stops[r]):
            counts[indices[k]] += 1


@compiled
def transpose(starts, stops, indices, values, places, rows, out):  # type: ignore[no-untyped-def]
    """Put the entries of each feature one after the other, in the order of the rows: row numbers into `rows`, values into
    `out`. `places`: where the entries of each feature begin; where they end afterwards."""
    for r in range(starts.size):
        for k in range(starts[r], stops[r]):
            place = places[indices[k]]
            rows[place] = r
            out[place] = values[k]
            places[indices[k]] = place + 1


@compiled
def transpose_dense(starts, values, features, out):  # type: ignore[no-untyped-def]
    """The value of feature j in row r becomes out[j · rows + r]."""
    rows = starts.size
    for first in range(0, rows, _ROWS_AT_ONCE):
        stop = min(rows, first + _ROWS_AT_ONCE)
        for j in range(features):
            for r in range(first, stop):
                out[j * rows + r] = values[starts[r] + j]


@compiled
def append_parts(lines, bounds, first, stop, rows, values, first_row, places, out_rows, out):  # type: ignore[no-untyped-def]
    """Append the entries [first, stop) of parts of columns: part k has entries [bounds[k], bounds[k + 1]), for line lines[k].
    `rows` and `values` begin at entry `first`. `places`: the next free entry of each line in `out_rows` and `out`. Row numbers
    grow by `first_row`; dense columns have none."""
    for k in range(lines.size):
        begin, end = max(first, bounds[k]), min(stop, bounds[k + 1])
        place = places[lines[k]]
        for entry in range(begin, end):
            if out_rows.size:
                out_rows[place] = rows[entry - first] + first_row
            out[place] = values[entry - first]
            place += 1
        places[lines[k]] = place
