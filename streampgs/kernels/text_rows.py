"""Rows out of text: svmlight, Vowpal Wabbit, and matrices of numbers.

Each loop parses whole lines of `data` and stops where its output arrays are full, so that no text, however odd, takes
more memory than they have. Numbers that `number_text` leaves open are listed in `long` as (place, start, stop), for the
caller to multiply into what stands at the place: an entry, a label at -1 - row, or a weight another labels.size below.
"""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import called, compiled, copy_entries, inlinable
from streampgs.kernels.number_text import LONG, NO_NUMBER, is_digit, read_number

# Why a line is no row.
LABEL_MISSING = 1
LABEL_NOT_A_NUMBER = 2
COLON_MISSING = 3
INDEX_NOT_A_NUMBER = 4
INDEX_NEGATIVE = 5
INDEX_TOO_LARGE = 6
VALUE_NOT_A_NUMBER = 7
QUERY_NOT_A_NUMBER = 8
WIDTH_DIFFERS = 9
WEIGHT_NOT_A_NUMBER = 10
BAR_MISSING = 11
NAME_MISSING = 12
NAME_NOT_TEXT = 13
ROW_TOO_LARGE = 14
FAULTS = 15

# What a call leaves behind besides rows: next byte and line; how many rows, entries, long numbers, bytes of names there
# are; the length of the namespace whose names are numbers (-1: none came yet).
POSITION, LINE, ROWS, ENTRIES, LONGS, NAME_BYTES, SPACE_BYTES = range(7)
# The first line that is no row: its fault (0: there is none), its number, and the bytes that are at fault.
FAULT, FAULT_LINE, FAULT_START, FAULT_STOP = range(4)

_NEWLINE, _SPACE, _TAB, _RETURN, _COMMENT, _COLON, _BAR, _QUOTE, _COMMA, _MINUS, _CARET = (
    ord(letter) for letter in "\n \t\r#:|',-^"
)
_QID = np.frombuffer(b"qid:", np.uint8)
_MOST_INDEX_DIGITS = 18


@inlinable
def _is_blank(byte):  # type: ignore[no-untyped-def]
    # Within a line: what lies between the two is a line break, or a tabulator of another kind.
    return byte == _SPACE or _TAB <= byte <= _RETURN


@inlinable
def _after_blanks(data, p, stop):  # type: ignore[no-untyped-def]
    while p < stop and _is_blank(data[p]):
        p += 1
    return p


@inlinable
def _token_end(data, p, stop):  # type: ignore[no-untyped-def]
    while p < stop and not _is_blank(data[p]):
        p += 1
    return p


@inlinable
def _line_end(data, p):  # type: ignore[no-untyped-def]
    while p < data.size and data[p] != _NEWLINE:
        p += 1
    return p


@inlinable
def _read_whole(data, start, stop):  # type: ignore[no-untyped-def]
    """The digits that begin at `start` as a number, and where they end; -1 if there are too many for 64 bits."""
    p = start
    number = np.int64(0)
    while p < stop and is_digit(data[p]):
        if p - start < _MOST_INDEX_DIGITS:
            number = number * 10 + (data[p] - 48)
        p += 1
    return (number if p - start <= _MOST_INDEX_DIGITS else np.int64(-1)), p


@inlinable
def _contains(data, start, stop, byte):  # type: ignore[no-untyped-def]
    p = start
    while p < stop and data[p] != byte:
        p += 1
    return p < stop


@inlinable
def _note_long(kind, place, start, stop, long, at):  # type: ignore[no-untyped-def]
    if kind == LONG:
        long[at, 0], long[at, 1], long[at, 2] = place, start, stop
        return at + 1
    return at


@inlinable
def _record(fault, line, start, stop, faults, first_fault):  # type: ignore[no-untyped-def]
    faults[fault] += 1
    if first_fault[FAULT] == 0:
        first_fault[FAULT], first_fault[FAULT_LINE] = fault, line
        first_fault[FAULT_START], first_fault[FAULT_STOP] = start, stop


@called
def _svmlight_row(data, p, stop, row, entry, longs, labels, queries, indices, values, long):  # type: ignore[no-untyped-def]
    """One line from its first letter on: (fault, start and stop of what is at fault, entries, long numbers, a query?)."""
    kind, value, end = read_number(data, p, stop)
    if kind == NO_NUMBER or (end < stop and not _is_blank(data[end])):
        end = _token_end(data, p, stop)
        fault = LABEL_MISSING if _contains(data, p, end, _COLON) else LABEL_NOT_A_NUMBER
        return fault, p, end, entry, longs, False
    labels[row] = value
    longs = _note_long(kind, -1 - row, p, end, long, longs)
    p = _after_blanks(data, end, stop)
    has_query = False
    if (
        stop - p >= 4
        and data[p] == _QID[0]
        and data[p + 1] == _QID[1]
        and data[p + 2] == _QID[2]
        and data[p + 3] == _QID[3]
    ):
        query, end = _read_whole(data, p + 4, stop)
        if end == p + 4 or query < 0 or (end < stop and not _is_blank(data[end])):
            return QUERY_NOT_A_NUMBER, p, _token_end(data, p, stop), entry, longs, False
        queries[row] = query
        has_query = True
        p = _after_blanks(data, end, stop)
    while p < stop:
        index, end = _read_whole(data, p, stop)
        if end in (p, stop) or data[end] != _COLON:
            token_end = _token_end(data, p, stop)
            fault = INDEX_NOT_A_NUMBER
            if not _contains(data, p, token_end, _COLON):
                fault = COLON_MISSING
            elif data[p] == _MINUS and p + 1 < stop and is_digit(data[p + 1]):
                fault = INDEX_NEGATIVE
            return fault, p, token_end, entry, longs, has_query
        if index < 0:
            return INDEX_TOO_LARGE, p, _token_end(data, p, stop), entry, longs, has_query
        kind, value, value_end = read_number(data, end + 1, stop)
        if kind == NO_NUMBER or (value_end < stop and not _is_blank(data[value_end])):
            return VALUE_NOT_A_NUMBER, p, _token_end(data, p, stop), entry, longs, has_query
        indices[entry] = index
        values[entry] = value
        longs = _note_long(kind, entry, end + 1, value_end, long, longs)
        entry += 1
        p = _after_blanks(data, value_end, stop)
    return 0, p, p, entry, longs, has_query


@compiled
def parse_svmlight(data, state, skip, labels, queries, offsets, indices, values, long, faults, first_fault):  # type: ignore[no-untyped-def]
    """Lines `label [qid:query] index:value … [# comment]` from state[POSITION] on; True if any has a query.

    `queries` comes in filled with -1, which a row without a query keeps. Unless `skip`, stops at the first bad line.
    """
    p, line = state[POSITION], state[LINE]
    row = entry = longs = 0
    offsets[0] = 0
    any_query = False
    while p < data.size and row < labels.size:
        end = _line_end(data, p)
        stop = p
        while stop < end and data[stop] != _COMMENT:
            stop += 1
        first = _after_blanks(data, p, stop)
        if first < stop:
            fault, bad_start, bad_stop, row_entry, row_longs, query = _svmlight_row(
                data, first, stop, row, entry, longs, labels, queries, indices, values, long
            )
            if fault:
                queries[row] = -1
                _record(fault, line, bad_start, bad_stop, faults, first_fault)
                if not skip:
                    break
            else:
                any_query |= query
                entry, longs = row_entry, row_longs
                row += 1
                offsets[row] = entry
        p = end + 1
        line += 1
    state[POSITION], state[LINE], state[ROWS], state[ENTRIES], state[LONGS] = p, line, row, entry, longs
    return any_query


@compiled
def parse_matrix(data, state, skip, width, values, long, faults, first_fault):  # type: ignore[no-untyped-def]
    """Lines of `width` numbers with blanks or commas between them, from state[POSITION] on. `#` begins a comment."""
    p, line = state[POSITION], state[LINE]
    row = longs = 0
    while p < data.size and (row + 1) * width <= values.size:
        end = _line_end(data, p)
        stop = p
        while stop < end and data[stop] != _COMMENT:
            stop += 1
        q = _after_blanks(data, p, stop)
        if q < stop:
            fault = column = 0
            row_longs = longs
            start = token_end = q
            while q < stop:
                kind, value, token_end = read_number(data, q, stop)
                start = q
                if kind == NO_NUMBER or (
                    token_end < stop and not _is_blank(data[token_end]) and data[token_end] != _COMMA
                ):
                    fault = VALUE_NOT_A_NUMBER
                    token_end = _token_end(data, q, stop)
                    break
                if column == width:
                    fault = WIDTH_DIFFERS
                    break
                place = row * width + column
                values[place] = value
                row_longs = _note_long(kind, place, q, token_end, long, row_longs)
                column += 1
                q = _after_blanks(data, token_end, stop)
                if q < stop and data[q] == _COMMA:
                    q = _after_blanks(data, q + 1, stop)
            if fault == 0 and column < width:
                fault = WIDTH_DIFFERS
            if fault:
                _record(fault, line, start, token_end, faults, first_fault)
                if not skip:
                    break
            else:
                row += 1
                longs = row_longs
        p = end + 1
        line += 1
    state[POSITION], state[LINE], state[ROWS], state[ENTRIES], state[LONGS] = p, line, row, row * width, longs


@compiled
def matrix_width(data):  # type: ignore[no-untyped-def]
    """How many numbers the first line has that has any; 0 if none has."""
    p = 0
    while p < data.size:
        end = _line_end(data, p)
        columns = 0
        q = _after_blanks(data, p, end)
        while q < end and data[q] != _COMMENT:
            columns += 1
            while q < end and not _is_blank(data[q]) and data[q] != _COMMA and data[q] != _COMMENT:
                q += 1
            q = _after_blanks(data, q, end)
            if q < end and data[q] == _COMMA:
                q = _after_blanks(data, q + 1, end)
        if columns:
            return columns
        p = end + 1
    return 0


@compiled
def gather(data, spans, offsets, out):  # type: ignore[no-untyped-def]
    """The texts that stand at the spans (place, start, stop), one behind the other."""
    for k in range(spans.shape[0]):
        copy_entries(out, offsets[k], data, spans[k, 1], spans[k, 2] - spans[k, 1])


# --------------------------------------------------------------------------------------------- Vowpal Wabbit


@called
def _is_utf8(data, start, stop):  # type: ignore[no-untyped-def]
    p = start
    while p < stop:
        byte = data[p]
        if byte < 0x80:
            p += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            count = 1
        elif 0xE0 <= byte <= 0xEF:
            count = 2
        elif 0xF0 <= byte <= 0xF4:
            count = 3
        else:
            return False
        if p + count >= stop:
            return False
        for j in range(1, count + 1):
            if data[p + j] & 0xC0 != 0x80:
                return False
        second = data[p + 1]
        # Overlong forms, surrogates, and what lies beyond the last code point.
        if (byte == 0xE0 and second < 0xA0) or (byte == 0xED and second > 0x9F):
            return False
        if (byte == 0xF0 and second < 0x90) or (byte == 0xF4 and second > 0x8F):
            return False
        p += count + 1
    return True


@inlinable
def _vw_token_end(data, p, stop):  # type: ignore[no-untyped-def]
    while p < stop and not _is_blank(data[p]) and data[p] != _BAR:
        p += 1
    return p


@inlinable
def _number_fills(data, start, stop):  # type: ignore[no-untyped-def]
    """The number that all of the text is: as `read_number`, NO_NUMBER if something follows it."""
    kind, value, end = read_number(data, start, stop)
    return (kind if end == stop else NO_NUMBER), value


@called
def _vw_label(data, p, bar, row, longs, labels, weights, long):  # type: ignore[no-untyped-def]
    """`label [weight [base]] [tag]` before the first bar: (fault, start and stop of it, long numbers, a weight?)."""
    weights[row] = 1.0
    position = 0
    while True:
        p = _after_blanks(data, p, bar)
        if p == bar:
            break
        end = _token_end(data, p, bar)
        if data[p] == _QUOTE or end == bar:  # a word that touches the bar is a tag
            break
        kind, value = _number_fills(data, p, end)
        if kind == NO_NUMBER or position > 2:
            return (LABEL_NOT_A_NUMBER if position == 0 else WEIGHT_NOT_A_NUMBER), p, end, longs, False
        if position == 0:
            labels[row] = value
            longs = _note_long(kind, -1 - row, p, end, long, longs)
        elif position == 1:
            weights[row] = value
            longs = _note_long(kind, -1 - row - labels.size, p, end, long, longs)
        position += 1
        p = end
    if position == 0:
        return LABEL_MISSING, p, min(p + 1, data.size), longs, False
    return 0, p, p, longs, position > 1


@called
def _same_space(data, start, stop, space, state):  # type: ignore[no-untyped-def]
    """Whether this namespace is the one whose features are numbers; the first that comes is."""
    if state[SPACE_BYTES] < 0:
        if stop - start > space.size:
            return False
        state[SPACE_BYTES] = stop - start
        for j in range(stop - start):
            space[j] = data[start + j]
    if stop - start != state[SPACE_BYTES]:
        return False
    same = 0
    while same < stop - start and data[start + same] == space[same]:
        same += 1
    return same == stop - start


@called
def _put_name(data, space_start, space_stop, start, stop, names, used):  # type: ignore[no-untyped-def]
    """Append `space^name`; gives the bytes used then, more than there are if it does not fit."""
    after = used + (stop - start) + (space_stop - space_start + 1 if space_stop > space_start else 0)
    if after > names.size:
        return after
    if space_stop > space_start:
        for p in range(space_start, space_stop):
            names[used] = data[p]
            used += 1
        names[used] = _CARET
        used += 1
    for p in range(start, stop):
        names[used] = data[p]
        used += 1
    return used


@called
def _vw_features(  # type: ignore[no-untyped-def]
    data, p, stop, entry, longs, used, space, state, indices, values, long, named, name_offsets, names
):
    """All from the first bar on: (fault, start and stop of it, entries, long numbers, bytes of names, names needed?)."""
    needs_names = False
    space_start = space_stop = p
    factor = 1.0
    factor_kind = factor_start = factor_stop = 0
    while True:
        p = _after_blanks(data, p, stop)
        if p == stop:
            return 0, p, p, entry, longs, used, needs_names
        if data[p] == _BAR:
            end = _vw_token_end(data, p + 1, stop)
            space_start = space_stop = p + 1
            while space_stop < end and data[space_stop] != _COLON:
                space_stop += 1
            factor, factor_kind = 1.0, 0
            if space_stop < end:
                factor_start, factor_stop = space_stop + 1, end
                factor_kind, factor = _number_fills(data, factor_start, end)
                if factor_kind == NO_NUMBER:
                    return WEIGHT_NOT_A_NUMBER, p, end, entry, longs, used, needs_names
            if not _is_utf8(data, space_start, space_stop):
                return NAME_NOT_TEXT, p, end, entry, longs, used, needs_names
            p = end
            continue
        end = _vw_token_end(data, p, stop)
        name_stop = p
        while name_stop < end and data[name_stop] != _COLON:
            name_stop += 1
        if name_stop == p:
            return NAME_MISSING, p, end, entry, longs, used, needs_names
        values[entry] = factor
        longs = _note_long(factor_kind, entry, factor_start, factor_stop, long, longs)
        if name_stop < end:
            kind, value = _number_fills(data, name_stop + 1, end)
            if kind == NO_NUMBER:
                return VALUE_NOT_A_NUMBER, p, end, entry, longs, used, needs_names
            values[entry] = factor * value
            longs = _note_long(kind, entry, name_stop + 1, end, long, longs)
        index, index_stop = _read_whole(data, p, name_stop)
        if index_stop < name_stop and not _is_utf8(data, p, name_stop):
            return NAME_NOT_TEXT, p, end, entry, longs, used, needs_names
        if named:
            used = _put_name(data, space_start, space_stop, p, name_stop, names, used)
            if used > names.size:
                return ROW_TOO_LARGE, p, end, entry, longs, used, needs_names
            name_offsets[entry + 1] = used
        else:
            if index_stop < name_stop or index < 0 or not _same_space(data, space_start, space_stop, space, state):
                needs_names = True
            indices[entry] = index
        entry += 1
        p = end


@compiled
def parse_vw(  # type: ignore[no-untyped-def]
    data,
    state,
    skip,
    named,
    space,
    labels,
    weights,
    offsets,
    indices,
    values,
    name_offsets,
    names,
    long,
    faults,
    first_fault,
):
    """Lines `label [weight [base]] [tag]|space[:factor] name[:value] … |…` from state[POSITION] on.

    Names become numbers in `indices`, or, if `named`, texts in `names`. Gives whether a row has a weight, and whether a
    name is no number of the one namespace `space`; then nothing of this call can be used.
    """
    p, line = state[POSITION], state[LINE]
    row = entry = longs = used = 0
    offsets[0] = name_offsets[0] = 0
    any_weight = False
    while p < data.size and row < labels.size:
        end = _line_end(data, p)
        first = _after_blanks(data, p, end)
        if first < end:
            bar = first
            while bar < end and data[bar] != _BAR:
                bar += 1
            row_entry, row_longs, row_used, weighted, needs_names = entry, longs, used, False, False
            space_before = state[SPACE_BYTES]
            fault, bad_start, bad_stop = BAR_MISSING, first, end
            if bar < end:
                fault, bad_start, bad_stop, row_longs, weighted = _vw_label(
                    data, first, bar, row, longs, labels, weights, long
                )
            if fault == 0:
                fault, bad_start, bad_stop, row_entry, row_longs, row_used, needs_names = _vw_features(
                    data,
                    bar,
                    end,
                    entry,
                    row_longs,
                    used,
                    space,
                    state,
                    indices,
                    values,
                    long,
                    named,
                    name_offsets,
                    names,
                )
            if fault == ROW_TOO_LARGE and row > 0:
                break  # it may fit when it comes first
            if fault:
                state[SPACE_BYTES] = space_before
                _record(fault, line, bad_start, bad_stop, faults, first_fault)
                if not skip:
                    break
            else:
                if needs_names:
                    return any_weight, True
                any_weight |= weighted
                entry, longs, used = row_entry, row_longs, row_used
                row += 1
                offsets[row] = entry
        p = end + 1
        line += 1
    state[POSITION], state[LINE], state[ROWS], state[ENTRIES] = p, line, row, entry
    state[LONGS], state[NAME_BYTES] = longs, used
    return any_weight, False
