"""Texts that are too long to have the spans of all their words or characters in memory: they are split piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.kernels.encoder_loop import tallied, weighed
from streampgs.kernels.grams import (
    TEXT_END,
    TEXT_START,
    character_grams_from,
    lowered,
    word_grams_from,
    words_of,
)

Bytes = NDArray[np.uint8]
_SPACES = (0x20, 0x0A)
_NOTHING = np.empty(0, np.uint8)
_FEWEST_ENTRIES = 1 << 12


class Tally:
    """Counts the tokens of one row, whose codes come piece by piece."""

    def __init__(self) -> None:
        self._indices, self._counts = np.empty(_FEWEST_ENTRIES, np.uint32), np.empty(_FEWEST_ENTRIES, np.float32)
        self._table = np.full(4 * _FEWEST_ENTRIES, -1, np.int32)
        self._end = 0

    def add(self, codes: NDArray[np.uint32]) -> None:
        for first in range(0, len(codes), _FEWEST_ENTRIES):
            part = codes[first : first + _FEWEST_ENTRIES]
            if self._end + len(part) > len(self._indices):
                self._grow()
            self._end = tallied(part, self._indices, self._counts, self._end, self._table)

    def _grow(self) -> None:
        indices, counts, end = self._indices[: self._end], self._counts[: self._end], self._end
        size = 4 * len(self._indices)
        self._indices, self._counts = np.empty(size, np.uint32), np.empty(size, np.float32)
        self._table = np.full(4 * len(self._table), -1, np.int32)
        tallied(indices, self._indices, self._counts, 0, self._table)
        self._counts[:end] = counts

    def entries(
        self, weighting: int, rarity: NDArray[np.float32], rarity_base: int
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]:
        """The row, scaled to length 1."""
        indices, values = self._indices[: self._end], self._counts[: self._end]
        end = weighed(indices, values, weighting, rarity, rarity_base, True)
        return np.array([0, end], np.int64), indices[:end].copy(), values[:end].copy()


def tally_of(book: Codebook, pieces: Iterator[Tokens]) -> Tally:
    tally = Tally()
    for tokens in pieces:
        tally.add(book.codes(tokens))
    return tally


def word_pieces(text: Bytes, sizes: tuple[int, int], most: int, namespace: str, is_text: bool) -> Iterator[Tokens]:
    """Runs of words, of about `most` bytes of the text at a time; `is_text`: it is UTF-8."""
    before = _NOTHING  # the last words of the piece before
    for start, stop in _cuts(text, most, _is_space):
        piece = np.concatenate([before, _in_lower_case(text[start:stop], is_text)])
        words, starts, stops, _ = words_of(piece, np.array([0, len(piece)], np.int32))
        carried = 0 if not len(before) else int(np.count_nonzero(before == _SPACES[0]))
        spans = word_grams_from(starts, stops, carried, *sizes)
        yield Tokens(words, spans[0], spans[1], np.array([0, len(spans[0])], np.int64), namespace)
        kept = min(sizes[1] - 1, len(starts))
        before = words[starts[-kept] : stops[-1] + 1].copy() if kept else _NOTHING


def character_pieces(text: Bytes, sizes: tuple[int, int], most: int, namespace: str, is_text: bool) -> Iterator[Tokens]:
    """Runs of characters, with marks at the start and the end of the text."""
    before = np.array([TEXT_START], np.uint8)
    cuts = list(_cuts(text, most, _begins_character))
    for start, stop in cuts:
        parts = [before, lowered(_in_lower_case(text[start:stop], is_text))]
        if stop == cuts[-1][1]:
            parts.append(np.array([TEXT_END], np.uint8))
        piece = np.concatenate(parts)
        spans = character_grams_from(piece, 0 if start == cuts[0][0] else len(before), *sizes)
        yield Tokens(piece, spans[0], spans[1], np.array([0, len(spans[0])], np.int64), namespace)
        begins = np.flatnonzero(_begins_character(piece))
        kept = min(sizes[1] - 1, len(begins))
        before = piece[begins[-kept] :].copy() if kept else _NOTHING


def _is_space(text: Bytes) -> NDArray[np.bool_]:
    return np.isin(text, _SPACES)


def _begins_character(text: Bytes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = text & 0xC0 != 0x80
    return found


def _cuts(text: Bytes, most: int, is_cut: Callable[[Bytes], NDArray[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Pieces of about `most` bytes, each of which begins where `is_cut` is true."""
    start = 0
    while start < len(text):
        stop = start + most
        while stop < len(text):
            places = np.flatnonzero(is_cut(text[stop : stop + most]))
            if len(places):
                stop += int(places[0])
                break
            stop += most
        stop = min(stop, len(text))
        yield start, stop
        start = stop


def _in_lower_case(text: Bytes, is_text: bool) -> Bytes:
    """Beyond ASCII as well; bytes that are not valid UTF-8 stay as they are."""
    if not is_text or not (text >= 0x80).any():
        return text
    try:
        found = pc.utf8_lower(pa.array([text.tobytes()], pa.large_binary()).cast(pa.large_string()))
    except pa.ArrowInvalid:
        return text
    return np.frombuffer(found.buffers()[2], np.uint8)
