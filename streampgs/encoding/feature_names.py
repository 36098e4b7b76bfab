"""Names of hashed features: hashing loses the strings, so the most frequent ones of the sample are written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.kernels.grams import TEXT_END, TEXT_START
from streampgs.kernels.hashing import wide_keys

MOST_NAMES = 1 << 15
MOST_COUNTED = 1 << 21
"""Different strings whose counts are kept; of more, the rarer ones are dropped."""
LONGEST_NAME = 1 << 10
_FEW_KEYS = 1 << 16
_INDEX = np.uint32(2**31 - 1)


@dataclass(frozen=True)
class Named:
    """The different strings of some rows."""

    keys: NDArray[np.uint64]
    """The feature in the upper half, a second hash of the string in the lower."""
    times: NDArray[np.int64]
    """How often each occurs."""
    signs: NDArray[np.int8]
    firsts: NDArray[Any]
    """Where each occurs first."""
    name_at: Callable[[int], str]
    """The name by such a place."""

    @staticmethod
    def of(codes: NDArray[np.uint32], second_hashes: NDArray[np.uint32], name_at: Callable[[int], str]) -> Named:
        keys, firsts, times = np.unique(wide_keys(codes & _INDEX, second_hashes), return_index=True, return_counts=True)
        signs = np.where(codes[firsts] >> np.uint32(31), -1, 1).astype(np.int8)
        return Named(keys, times, signs, firsts, name_at)

    @staticmethod
    def of_tokens(book: Codebook, tokens: Tokens, prefix: str) -> Named:
        def name_at(place: int) -> str:
            return prefix + shown(tokens.data[tokens.starts[place] : tokens.stops[place]].tobytes())

        return Named.of(book.codes(tokens), _lower(book.keys(tokens)), name_at)

    @staticmethod
    def of_pairs(codes: NDArray[np.uint32], keys: NDArray[np.uint64], parts: Sequence[tuple[str, pa.Array]]) -> Named:
        """`parts`: two columns by name; each row has one value of each."""

        def name_at(row: int) -> str:
            return " ".join(f"{name}={_value(array[row : row + 1])}" for name, array in parts)

        return Named.of(codes, _lower(keys), name_at)

    @staticmethod
    def of_null(book: Codebook, column: str, times: int) -> Named:
        codes = np.full(1 if times else 0, book.null_code(column), np.uint32)
        found = Named.of(codes, np.zeros(len(codes), np.uint32), lambda _: f"{column} is null")
        return Named(found.keys, found.times * times, found.signs, found.firsts, found.name_at)


class KeyCounts:
    """How often each key occurs in the parts so far; ascending. Of more than `most` keys, the rarer ones are dropped."""

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self.keys, self.times = np.empty(0, np.uint64), np.empty(0, np.int64)
        self._most = most
        self._waiting: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
        self._size = 0

    def add(self, keys: NDArray[np.uint64], times: NDArray[np.int64]) -> None:
        self._waiting.append((keys, times))
        self._size += len(keys)
        if self._size > max(_FEW_KEYS, len(self.keys)):
            self.merge()

    def merge(self) -> None:
        keys, times = (np.concatenate(parts) for parts in zip((self.keys, self.times), *self._waiting, strict=True))
        self.keys, places = np.unique(keys, return_inverse=True)
        self.times = np.bincount(places, times, len(self.keys)).astype(np.int64)
        self._waiting, self._size = [], 0
        if len(self.keys) > self._most:
            kept = np.sort(np.argsort(-self.times, kind="stable")[: self._most // 2])
            self.keys, self.times = self.keys[kept], self.times[kept]


def most_frequent(
    parts: Callable[[], Iterable[Named]],
) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.int8]]:
    """Features in ascending order, their names and the signs of their values. If strings share a feature, the most
    frequent one names it. `parts` is called twice: strings are only kept once it is known which ones are frequent."""
    counts = KeyCounts()
    for part in parts():
        counts.add(part.keys, part.times)
    counts.merge()
    features = (counts.keys >> np.uint64(32)).astype(np.int64)
    order = np.lexsort((-counts.times, features))
    leading = order[np.flatnonzero(np.diff(features[order], prepend=-1))]
    leading = np.sort(leading[np.argsort(-counts.times[leading], kind="stable")[:MOST_NAMES]])
    return features[leading], *_names_of(counts.keys[leading], parts)


def _names_of(
    keys: NDArray[np.uint64], parts: Callable[[], Iterable[Named]]
) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    """The names of strings, and the signs of their features."""
    names: list[str | None] = [None] * len(keys)
    signs = np.ones(len(keys), np.int8)
    left = len(keys)
    for part in parts() if left else ():
        places = np.minimum(np.searchsorted(part.keys, keys), max(0, len(part.keys) - 1))
        found = part.keys[places] == keys if len(part.keys) else np.zeros(len(keys), np.bool_)
        for number in np.flatnonzero(found).tolist():
            if names[number] is None:
                place = places[number]
                names[number], signs[number] = part.name_at(int(part.firsts[place])), part.signs[place]
                left -= 1
        if not left:
            break
    return tuple(name or "" for name in names), signs


def _lower(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return keys.astype(np.uint32)


def shown(token: bytes) -> str:
    """As a part of a name; of a very long string the beginning."""
    if len(token) > LONGEST_NAME:
        token = token[:LONGEST_NAME] + "…".encode()
    marked = token.replace(bytes([TEXT_START]), b"^").replace(bytes([TEXT_END]), b"$")
    return marked.decode(errors="replace")


def _value(text: pa.Array) -> str:
    """The value in an array of one; it may not be valid UTF-8."""
    data, bounds = types.bytes_of(text)
    return "None" if text.null_count else shown(data[bounds[0] : bounds[1]].tobytes())
