"""Numbers written in decimal, read exactly: the double nearest to the text.

A mantissa below 2^53 and a power of ten up to 10^22 are both doubles, so one product or quotient of them is rounded once
and is right (Clinger 1990). What is longer is recognised here, and left to the caller.
"""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import inlinable

EXACT, LONG, NO_NUMBER = 0, 1, 2

_POWERS = np.array([10.0**k for k in range(23)])
_MOST_DIGITS = 19  # as many as always fit into 64 bits
_LARGEST_MANTISSA = np.uint64(1 << 53)
_LARGEST_EXPONENT = 22
_EXPONENT_CAP = 1_000_000  # beyond it a double is 0 or infinite, however many digits come first

_PLUS, _MINUS, _POINT, _ZERO, _NINE = 43, 45, 46, 48, 57
_LOWER = 32  # the bit that tells small letters from capitals
_E = ord("e")
_NAN = np.frombuffer(b"nan", np.uint8)
_INF = np.frombuffer(b"inf", np.uint8)
_INFINITY = np.frombuffer(b"infinity", np.uint8)


@inlinable
def is_digit(byte):  # type: ignore[no-untyped-def]
    return _ZERO <= byte <= _NINE


@inlinable
def _word_ends(data, start, stop, word):  # type: ignore[no-untyped-def]
    """Where the word that stands at `start` in letters of any size ends; `start` if it is another."""
    if stop - start < word.size:
        return start
    for j in range(word.size):
        if data[start + j] | _LOWER != word[j]:
            return start
    return start + word.size


@inlinable
def read_number(data, start, stop):  # type: ignore[no-untyped-def]
    """The number that begins at `start`: (EXACT, its value, its end); LONG has no value yet but 1, NO_NUMBER no end."""
    p = start
    negative = p < stop and data[p] == _MINUS
    if p < stop and (data[p] == _MINUS or data[p] == _PLUS):
        p += 1
    first = p
    mantissa = np.uint64(0)
    kept = 0
    digits = 0
    exponent = 0
    fraction = False
    while p < stop:
        byte = data[p]
        if is_digit(byte):
            digits += 1
            if kept > 0 or byte != _ZERO:
                kept += 1
                if kept <= _MOST_DIGITS:
                    mantissa = mantissa * np.uint64(10) + np.uint64(byte - _ZERO)
            if fraction:
                exponent -= 1
        elif byte == _POINT and not fraction:
            fraction = True
        else:
            break
        p += 1
    if digits == 0:
        end = _word_ends(data, first, stop, _INFINITY)
        if end == first:
            end = _word_ends(data, first, stop, _INF)
        if end == first:
            end = _word_ends(data, first, stop, _NAN)
        return (NO_NUMBER if end == first else LONG), 1.0, end
    if p < stop and data[p] | _LOWER == _E:
        q = p + 1
        down = q < stop and data[q] == _MINUS
        if q < stop and (data[q] == _MINUS or data[q] == _PLUS):
            q += 1
        written = np.int64(0)
        begun = q
        while q < stop and is_digit(data[q]):
            if written < _EXPONENT_CAP:
                written = written * 10 + (data[q] - _ZERO)
            q += 1
        if q > begun:
            exponent += int(-written if down else written)
            p = q
    if mantissa == 0:
        return EXACT, (-0.0 if negative else 0.0), p
    if kept > _MOST_DIGITS or mantissa > _LARGEST_MANTISSA or abs(exponent) > _LARGEST_EXPONENT:
        return LONG, 1.0, p
    value = np.float64(mantissa)
    value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
    return EXACT, (-value if negative else value), p
