"""Names of hashed features: hashing loses the strings, so the most frequent ones of the sample are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def most_frequent(parts: Sequence[Named]) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.int8]]:
    """Features in ascending order, their names and the signs of their values. If strings share a feature, the most
    frequent one names it."""
    if not parts:
        return np.empty(0, np.int64), (), np.empty(0, np.int8)
    ends = np.cumsum([len(part.keys) for part in parts])
    keys, firsts, places = np.unique(
        np.concatenate([part.keys for part in parts]), return_index=True, return_inverse=True
    )
    times = np.bincount(places, np.concatenate([part.times for part in parts]), len(keys))
    features = (keys >> np.uint64(32)).astype(np.int64)
    order = np.lexsort((-times, features))
    leading = order[np.flatnonzero(np.diff(features[order], prepend=-1))]
    leading = np.sort(leading[np.argsort(-times[leading], kind="stable")[:MOST_NAMES]])
    names, signs = [], np.ones(len(leading), np.int8)
    for number, first in enumerate(firsts[leading].tolist()):
        part = int(np.searchsorted(ends, first, side="right"))
        place = first - (int(ends[part - 1]) if part else 0)
        names.append(parts[part].name_at(int(parts[part].firsts[place])))
        signs[number] = parts[part].signs[place]
    return features[leading], tuple(names), signs


def _lower(keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return keys.astype(np.uint32)


def shown(token: bytes) -> str:
    marked = token.replace(bytes([TEXT_START]), b"^").replace(bytes([TEXT_END]), b"$")
    return marked.decode(errors="replace")


def _value(text: pa.Array) -> str:
    """Of an array of one; it may not be valid UTF-8."""
    data, bounds = types.bytes_of(text)
    return "None" if text.null_count else data[bounds[0] : bounds[1]].tobytes().decode(errors="replace")
