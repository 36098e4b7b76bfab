"""Split texts into words, runs of words, or runs of characters. Tokens are spans of bytes in a new buffer."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import compiled, inlinable

TEXT_START, TEXT_END = 2, 3
"""Bytes that mark the start and the end of a text in runs of characters."""


def _word_bytes() -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    table = np.zeros(256, np.bool_)
    table[[ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"]] = True
    table[0x80:] = True
    return table


_WORD_BYTES = _word_bytes()


@inlinable
def _lower(byte):  # type: ignore[no-untyped-def]
    return byte + 32 if 65 <= byte <= 90 else byte


@inlinable
def _punctuation_bytes(data, place, stop):  # type: ignore[no-untyped-def]
    """Bytes of the UTF-8 character at `place` if it is a mark of U+0080–BF, U+2000–206F or U+3000–303F, else 0."""
    lead = data[place]
    if place + 1 >= stop or data[place + 1] & 0xC0 != 0x80:  # not a character: do not consume the next byte
        return 0
    second = data[place + 1]
    if lead == 0xC2 and second != 0xAA and second != 0xB5 and second != 0xBA:
        return 2
    if place + 2 < stop and data[place + 2] & 0xC0 == 0x80:
        if lead == 0xE2 and (second == 0x80 or (second == 0x81 and data[place + 2] < 0xB0)):
            return 3
        if lead == 0xE3 and second == 0x80:
            return 3
    return 0


@compiled
def words_of(data, offsets):  # type: ignore[no-untyped-def]
    """The words of each text data[offsets[r]:offsets[r + 1]], in lower case, with one space between them.

    A word is a run of letters, digits and underscores; all characters beyond ASCII count as letters, except the blocks
    of punctuation. Returns the buffer of words, start and stop of each, and the number of each row's first word.
    """
    total = offsets[-1] - offsets[0]
    text = np.empty(total + offsets.size, np.uint8)
    starts = np.empty(total // 2 + offsets.size, np.int32)
    stops = np.empty(starts.size, np.int32)
    row_words = np.zeros(offsets.size, np.int64)
    end, words = 0, 0
    for r in range(offsets.size - 1):
        place, stop = offsets[r], offsets[r + 1]
        inside = False
        while place < stop:
            byte = data[place]
            size = 0 if _WORD_BYTES[byte] else 1
            if byte >= 0x80:
                size = _punctuation_bytes(data, place, stop)
            if size == 0:
                if not inside:
                    starts[words] = end
                    inside = True
                text[end] = _lower(byte)
                end += 1
                place += 1
                continue
            if inside:
                stops[words] = end
                words += 1
                text[end] = 32
                end += 1
                inside = False
            place += size
        if inside:
            stops[words] = end
            words += 1
            text[end] = 32
            end += 1
        row_words[r + 1] = words
    return text, starts[:words], stops[:words], row_words


@compiled
def word_grams(starts, stops, row_words, shortest, longest):  # type: ignore[no-untyped-def]
    """Spans of all runs of `shortest` to `longest` words, row by row: starts, stops, and the first span of each row."""
    most = starts.size * (longest + 1 - shortest)
    gram_starts = np.empty(most, np.int32)
    gram_stops = np.empty(most, np.int32)
    offsets = np.zeros(row_words.size, np.int64)
    end = 0
    for r in range(row_words.size - 1):
        stop = row_words[r + 1]
        for first in range(row_words[r], stop):
            for last in range(first + shortest - 1, min(first + longest, stop)):
                gram_starts[end] = starts[first]
                gram_stops[end] = stops[last]
                end += 1
        offsets[r + 1] = end
    return gram_starts[:end], gram_stops[:end], offsets


@compiled
def character_grams(data, offsets, shortest, longest):  # type: ignore[no-untyped-def]
    """Runs of `shortest` to `longest` UTF-8 characters of each text, ASCII letters in lower case, with a mark before the
    first character and after the last. Returns the buffer of marked texts, and spans as `word_grams` does."""
    rows = offsets.size - 1
    total = offsets[-1] - offsets[0] + 2 * rows
    text = np.empty(total, np.uint8)
    most = total * (longest + 1 - shortest)
    starts = np.empty(most, np.int32)
    stops = np.empty(most, np.int32)
    row_grams = np.zeros(offsets.size, np.int64)
    end, grams = 0, 0
    for r in range(rows):
        begin = end
        text[end] = TEXT_START
        end += 1
        for place in range(offsets[r], offsets[r + 1]):
            text[end] = _lower(data[place])
            end += 1
        text[end] = TEXT_END
        end += 1
        if end == begin + 2:  # the text is empty
            row_grams[r + 1] = grams
            continue
        for first in range(begin, end):
            if text[first] & 0xC0 == 0x80:  # inside a character
                continue
            characters, stop = 0, first
            while characters < longest and stop < end:
                stop += 1
                while stop < end and text[stop] & 0xC0 == 0x80:
                    stop += 1
                characters += 1
                if characters >= shortest:
                    starts[grams] = first
                    stops[grams] = stop
                    grams += 1
        row_grams[r + 1] = grams
    return text, starts[:grams], stops[:grams], row_grams
