"""Walk through a Parquet footer, which is a struct of Thrift's compact protocol, without making objects of it.

(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md) Every read is bounds-checked. A place
below 0 is the reason why the bytes cannot be read; for `SHORT` there may be more of them.
"""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import called, compiled, inlinable

SHORT = -1
TOO_DEEP = -2
UNKNOWN_TYPE = -3
LONG_NUMBER = -4
NOT_STRUCTS = -5
NO_COLUMN = -6
NO_COUNT = -7
UNUSUAL = -8

REASONS = {
    SHORT: "it ends too early",
    TOO_DEEP: "structs nested too deeply",
    UNKNOWN_TYPE: "a value of unknown type",
    LONG_NUMBER: "a number of too many bytes",
    NOT_STRUCTS: "not a list of structs where one is expected",
    NO_COLUMN: "a row group without all of the columns",
    NO_COUNT: "a row group without its number of rows, or a column without its number of values",
    UNUSUAL: "the fields of a column in an unusual order",
}

# Types of values.
FALSE, I64, LIST, STRUCT = 2, 6, 9, 12
_TRUE, _BYTE, _I16, _DOUBLE, _BINARY, _SET, _MAP = 1, 3, 4, 7, 8, 10, 11

_DEEPEST = 32
_LARGEST = np.int64(1) << 40  # no count is as large; sums of a place and a count stay within 64 bits

# Numbers of fields in parquet.thrift.
_COLUMNS, _ROWS = 1, 3  # of a row group
_META_DATA = 3  # of a column chunk
_VALUES, _SIZE_STATISTICS, _NO_FIELD = 5, 16, 18  # of its metadata


@inlinable
def _varint(data, place):  # type: ignore[no-untyped-def]
    """(its bits, the place behind it)"""
    value, shift = np.uint64(0), np.uint64(0)
    while True:
        if place >= data.size:
            return value, np.int64(SHORT)
        byte = np.uint64(data[place])
        place += 1
        value |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        if byte < np.uint64(0x80):
            return value, np.int64(place)
        if shift > np.uint64(63):
            return value, np.int64(LONG_NUMBER)


@called
def _integer(data, place):  # type: ignore[no-untyped-def]
    bits, place = _varint(data, place)
    half = np.int64(bits >> np.uint64(1))
    return (-half - 1 if bits & np.uint64(1) else half), place


@inlinable
def _count(data, place):  # type: ignore[no-untyped-def]
    """A number of bytes or elements."""
    bits, place = _varint(data, place)
    if bits > np.uint64(_LARGEST):
        return np.int64(0), np.int64(LONG_NUMBER) if place >= 0 else place
    return np.int64(bits), place


@inlinable
def _field(data, place, number):  # type: ignore[no-untyped-def]
    """(number, type, place of its value) of the field behind the one of this number; type 0 at the end of the struct"""
    if place >= data.size:
        return number, 0, np.int64(SHORT)
    header = np.int64(data[place])
    place = np.int64(place + 1)
    if header == 0:
        return number, 0, place
    if header >> 4:
        return number + (header >> 4), header & 0xF, place
    following, place = _integer(data, place)
    return following, header & 0xF, place


@inlinable
def _elements(data, place):  # type: ignore[no-untyped-def]
    """(how many, type, place of the first) of a list"""
    if place >= data.size:
        return np.int64(0), 0, np.int64(SHORT)
    header = np.int64(data[place])
    place = np.int64(place + 1)
    if header >> 4 < 0xF:
        return header >> 4, header & 0xF, place
    size, place = _count(data, place)
    return size, header & 0xF, place


@called
def _structs(data, place, kind):  # type: ignore[no-untyped-def]
    """(how many, place of the first) of a list that must be one of structs"""
    if kind != LIST:
        return np.int64(0), np.int64(NOT_STRUCTS)
    size, of, place = _elements(data, place)
    if place >= 0 and size > 0 and of != STRUCT:
        return np.int64(0), np.int64(NOT_STRUCTS)
    return size, place


@called
def _skip(data, place, kind):  # type: ignore[no-untyped-def]
    """The place behind a value of this type. Values in values are on a stack: (elements left, type of an even one, type of
    an odd one), for a struct (-1, number of the last field, 0)."""
    left = np.empty(_DEEPEST, np.int64)
    even = np.empty(_DEEPEST, np.int64)
    odd = np.empty(_DEEPEST, np.int64)
    depth, in_list = 0, False
    while True:
        if kind in (_TRUE, FALSE):
            place += 1 if in_list else 0
        elif kind == _BYTE:
            place += 1
        elif _I16 <= kind <= I64:
            _, place = _varint(data, place)
        elif kind == _DOUBLE:
            place += 8
        elif kind == _BINARY:
            size, place = _count(data, place)
            place += size if place >= 0 else 0
        elif kind in (LIST, _SET, _MAP, STRUCT):
            if depth == _DEEPEST:
                return np.int64(TOO_DEEP)
            if kind == STRUCT:
                left[depth], even[depth], odd[depth] = -1, 0, 0
            elif kind == _MAP:
                size, place = _count(data, place)
                kinds = np.int64(0)
                if place >= 0 and size > 0:
                    if place >= data.size:
                        return np.int64(SHORT)
                    kinds = np.int64(data[place])
                    place += 1
                left[depth], even[depth], odd[depth] = 2 * size, kinds >> 4, kinds & 0xF
            else:
                size, of, place = _elements(data, place)
                left[depth], even[depth], odd[depth] = size, of, of
            depth += 1
        else:
            return np.int64(UNKNOWN_TYPE)
        if place < 0:
            return np.int64(place)
        if place > data.size:
            return np.int64(SHORT)
        while depth > 0:
            top = depth - 1
            if left[top] == -1:
                even[top], kind, place = _field(data, place, even[top])
                if place < 0:
                    return np.int64(place)
                in_list = False
                if kind:
                    break
            elif left[top] > 0:
                kind = even[top] if left[top] & 1 == 0 else odd[top]
                left[top] -= 1
                in_list = True
                break
            depth -= 1
        if depth == 0:
            return np.int64(place)


@called
def _values_of_chunk(data, place):  # type: ignore[no-untyped-def]
    """(number of values, the place behind it) of a column chunk"""
    values, number, kind = np.int64(-1), np.int64(0), 1
    while True:
        number, kind, place = _field(data, place, number)
        if place < 0 or kind == 0:
            break
        if number != _META_DATA or kind != STRUCT:
            place = _skip(data, place, kind)
            if place < 0:
                break
            continue
        inner = np.int64(0)
        while place >= 0:
            inner, kind, place = _field(data, place, inner)
            if place < 0 or kind == 0:
                break
            if inner == _VALUES and kind == I64:
                values, place = _integer(data, place)
            else:
                place = _skip(data, place, kind)
        if place < 0:
            break
    if place >= 0 and values < 0:
        place = np.int64(NO_COUNT)
    return values, np.int64(place)


@called
def _row_group(data, place, leaf):  # type: ignore[no-untyped-def]
    """(rows, values of the column `leaf`, the place behind it) of a row group"""
    rows, values, number = np.int64(-1), np.int64(-1), np.int64(0)
    while True:
        number, kind, place = _field(data, place, number)
        if place < 0 or kind == 0:
            break
        if number == _ROWS and kind == I64:
            rows, place = _integer(data, place)
        elif number == _COLUMNS and leaf >= 0:
            size, place = _structs(data, place, kind)
            for chunk in range(size if place >= 0 else 0):
                if chunk == leaf:
                    values, place = _values_of_chunk(data, place)
                else:
                    place = _skip(data, place, STRUCT)
                if place < 0:
                    break
        else:
            place = _skip(data, place, kind)
        if place < 0:
            break
    if place >= 0 and rows < 0:
        place = np.int64(NO_COUNT)
    if place >= 0 and leaf >= 0 and values < 0:
        place = np.int64(NO_COLUMN)
    return rows, values, np.int64(place)


@compiled
def next_field(data, place, number):  # type: ignore[no-untyped-def]
    """(number, type, place of its value) of the field behind the one of this number; type 0 at the end of the struct"""
    return _field(data, np.int64(place), np.int64(number))


@compiled
def skip_value(data, place, kind):  # type: ignore[no-untyped-def]
    """(the place behind a value,)"""
    return (_skip(data, np.int64(place), np.int64(kind)),)


@compiled
def list_of_structs(data, place, kind):  # type: ignore[no-untyped-def]
    """(how many, place of the first)"""
    return _structs(data, np.int64(place), np.int64(kind))


@compiled
def row_groups(data, place, leaf, ends, rows, values):  # type: ignore[no-untyped-def]
    """Where each of the next row groups ends, its rows, and the number of values of its column `leaf` (-1: of none).
    Returns how many were read, all or the complete ones, and the reason why there are no more, or 0."""
    place = np.int64(place)
    for group in range(ends.size):
        rows[group], values[group], place = _row_group(data, place, np.int64(leaf))
        if place < 0:
            return group, place
        ends[group] = place
    return ends.size, np.int64(0)


@called
def _hide_in_chunk(data, place):  # type: ignore[no-untyped-def]
    """The place behind a column chunk."""
    number = np.int64(0)
    while True:
        number, kind, place = _field(data, place, number)
        if place < 0 or kind == 0:
            return np.int64(place)
        if number != _META_DATA or kind != STRUCT:
            place = _skip(data, place, kind)
            if place < 0:
                return np.int64(place)
            continue
        inner = np.int64(0)
        while True:
            header, before = place, inner
            inner, kind, place = _field(data, place, inner)
            if place < 0:
                return np.int64(place)
            if kind == 0:
                break
            if inner <= before or (inner >= _SIZE_STATISTICS and before < _SIZE_STATISTICS and place != header + 1):
                return np.int64(UNUSUAL)
            if inner == _SIZE_STATISTICS:
                if inner - before + _NO_FIELD - _SIZE_STATISTICS > 15:
                    return np.int64(UNUSUAL)
                data[header] += np.uint8((_NO_FIELD - _SIZE_STATISTICS) << 4)
            place = _skip(data, place, kind)
            if place < 0:
                return np.int64(place)


@compiled
def hide_size_statistics(data):  # type: ignore[no-untyped-def]
    """Give the histograms of a row group's columns the number of a field that does not exist, so that they are passed over:
    pyarrow aborts the process if they contradict the schema. Returns 0, or the reason why this is not possible."""
    place, number = np.int64(0), np.int64(0)
    while True:
        number, kind, place = _field(data, place, number)
        if place < 0 or kind == 0:
            return np.int64(min(place, 0))
        if number == _COLUMNS and kind == LIST:
            size, place = _structs(data, place, kind)
            for _ in range(size if place >= 0 else 0):
                place = _hide_in_chunk(data, place)
                if place < 0:
                    return np.int64(place)
        else:
            place = _skip(data, place, kind)
        if place < 0:
            return np.int64(place)
