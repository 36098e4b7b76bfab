"""Chunks of text cut into tokens, all at once with numpy, and numbers made of them with pyarrow.

A parser checks all tokens of a chunk at once and raises `BadTokens` for those that break a rule. `parsed` turns these
into an error that names the first bad line, or leaves the bad lines out and parses the others again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.packing.source import Chunk, Source, ahead, text_chunks

NEWLINE, BLANK, COLON, BAR, COMMA = (ord(letter) for letter in "\n :|,")
_CHUNK_BYTES = 1 << 20
_LONELY_RETURN = re.compile(rb"\r(?!\n)")
_BLANKS = bytes.maketrans(b"\t\v\f\r", b"    ")
_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class BadTokens(Exception):
    """Lines that are not rows."""

    def __init__(self, reason: str, lines: Ints, place: int) -> None:
        self.reason, self.lines, self.place = reason, np.unique(lines), place


@dataclass(frozen=True)
class Tokens:
    """Runs of bytes between separators. Empty ones count where a colon or a bar is next to them."""

    letters: NDArray[np.uint8]
    texts: pa.Array
    before: NDArray[np.uint8]
    """The separator before each token."""
    starts: Ints
    ends: Ints
    lines: Ints
    """The line of each token, counted from 0."""

    @property
    def firsts(self) -> Mask:
        """Whether a token is the first of its line."""
        return np.diff(self.lines, prepend=-1) > 0

    def places_in_row(self) -> Ints:
        first = self.firsts
        places: Ints = np.arange(len(first)) - np.flatnonzero(first)[np.cumsum(first) - 1]
        return places

    def refuse(self, bad: Mask | Ints, reason: str) -> None:
        """Raise unless there are no `bad` tokens."""
        which = np.flatnonzero(bad) if bad.dtype == bool else bad
        if which.size:
            raise BadTokens(reason, self.lines[which], int(self.starts[which[0]]))

    def texts_at(self, which: Ints) -> pa.Array:
        return self.texts.take(pa.array(which))

    def numbers(self, which: Ints, reason: str) -> NDArray[np.float64]:
        """The doubles nearest to the texts of tokens."""
        texts = self.texts_at(which)
        try:
            return np.asarray(texts.cast(pa.float64()))
        except pa.ArrowInvalid:
            words = texts.cast(pa.binary()).to_pylist()
            good = np.array([_NUMBER.fullmatch(word) is not None for word in words])
            self.refuse(which[~good], reason)
            return np.array([float(word) for word in words])

    def wholes(self, which: Ints) -> tuple[Ints, Mask]:
        """Whole numbers from 0 up, and which of the texts are any; the others are 0."""
        first, second = (np.append(self.letters, 0)[self.starts[which] + place] for place in (0, 1))
        # pyarrow reads hexadecimal numbers, too.
        good = (first >= ord("0")) & (first <= ord("9")) & ((second | 32) != ord("x"))
        try:
            texts = self.texts_at(which[good])
            found: Any = texts.cast(pa.int64())
        except pa.ArrowInvalid:
            words = texts.cast(pa.binary()).to_pylist()
            fit = np.array([word.isdigit() and int(word) < 1 << 63 for word in words])
            good[good] = fit
            found = [int(word) for word, fits in zip(words, fit, strict=True) if fits]
        numbers = np.zeros(len(which), np.int64)
        numbers[good] = found
        return numbers, good


def tokens_of(data: bytes, separators: bytes) -> Tokens:
    """Of text that ends with a line break."""
    if b"\r" in data:
        _refuse_lonely_returns(data)
    letters = np.frombuffer(data.translate(_BLANKS), np.uint8)
    is_separator = np.zeros(256, bool)
    is_separator[list(separators)] = True
    separating = is_separator[letters]
    ends = np.flatnonzero(separating)
    starts = np.append(0, ends[:-1] + 1)
    before = np.append(np.uint8(NEWLINE), letters[ends[:-1]])
    beside_colon = (before == COLON) | (before == BAR) | (letters[ends] == COLON)
    kept = np.flatnonzero((ends > starts) | beside_colon)
    lines = np.cumsum(before == NEWLINE) - 1
    offsets = np.append(0, (ends - np.arange(len(ends)))[kept]).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(kept), pa.py_buffer(offsets), pa.py_buffer(letters[~separating]))
    return Tokens(letters, texts, before[kept], starts[kept], ends[kept], lines[kept])


def _refuse_lonely_returns(data: bytes) -> None:
    """A carriage return alone ends lines in some old files. Taken for a blank, it would join two rows."""
    places = [found.start() for found in _LONELY_RETURN.finditer(data)]
    if places:
        lines = np.searchsorted(np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE), places)
        raise BadTokens("a carriage return without a line feed: tr '\\r' '\\n' converts it", lines, places[0])


def lists(counts: Ints, child: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(counts)), pa.int32()), child)


def parsed(source: Source, parse: Callable[[bytes], pa.RecordBatch | None]) -> Iterator[pa.RecordBatch]:
    """The rows of all chunks of a text."""
    for chunk in ahead(text_chunks(source, _CHUNK_BYTES)):
        batch = _of_good_lines(source, chunk, parse)
        if batch is not None:
            yield batch


def _of_good_lines(source: Source, chunk: Chunk, parse: Callable[[bytes], pa.RecordBatch | None]) -> Any:
    data = chunk.data
    while True:
        try:
            return parse(data)
        except BadTokens as found:
            if source.options.skips_bad_rows:
                source.skipped[found.reason] += len(found.lines)
                bad = set(found.lines.tolist())
                data = b"\n".join(line for at, line in enumerate(data.split(b"\n")) if at not in bad)
                continue
            first = _first_bad(data, parse, found)
            words = data[first.place :].split(maxsplit=1)
            source.refuse(first.reason, f"line {chunk.first_line + int(first.lines[0]):,}", words[0] if words else b"")


def _first_bad(data: bytes, parse: Callable[[bytes], Any], found: BadTokens) -> BadTokens:
    """Rules are checked one after the other, so a line before may break another rule."""
    lines = data.split(b"\n")
    while True:
        try:
            parse(b"".join(line + b"\n" for line in lines[: found.lines[0]]))
            return found
        except BadTokens as earlier:
            found = earlier


def check_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        lines = data.split(b"\n")
        bad = [at for at, line in enumerate(lines) if _is_not_utf8(line)]
        place = sum(len(line) + 1 for line in lines[: bad[0]])
        raise BadTokens("a line that is not UTF-8", np.array(bad), place) from None


def _is_not_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False
