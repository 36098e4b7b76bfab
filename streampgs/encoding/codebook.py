"""The code book: strings become features, known words each their own, all others by hashing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.kernels.hashing import hash_pairs, hash_spans, hashed_codes, known_codes, lookup_table, wide_keys
from streampgs.options.commands import EncodingOptions

Codes = NDArray[np.uint32]
NULL_TEXT = b"\x00"
"""Stands for null among the values of a category."""
NO_OFFSETS = np.zeros(1, np.int64)
_SECOND_HASH = 0x9E3779B9


@dataclass
class Tokens:
    """Strings of some rows, as spans of a buffer."""

    data: NDArray[np.uint8]
    starts: NDArray[Any]
    stops: NDArray[Any]
    offsets: NDArray[np.int64]
    """Row r has the strings from offsets[r] to offsets[r + 1]."""
    namespace: str
    """Equal strings of two namespaces are different tokens."""

    @staticmethod
    def of(array: pa.Array, namespace: str, offsets: NDArray[np.int64] = NO_OFFSETS) -> Tokens:
        data, bounds = types.bytes_of(array)
        return Tokens(data, bounds[:-1], bounds[1:], offsets, namespace)


@dataclass(frozen=True, eq=False)
class Codebook:
    """Features from `first` on: the known words, then 2 ** hash_bits hashed ones."""

    options: EncodingOptions
    first: int
    hash_bits: int
    words: NDArray[np.uint64]
    """Keys of the known words."""
    rarities: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """By column: the rarity of each feature, from `first` on."""

    @property
    def mask(self) -> int:
        return (1 << self.hash_bits) - 1

    @property
    def slots_first(self) -> int:
        """The first hashed feature."""
        return self.first + len(self.words)

    @property
    def size(self) -> int:
        return len(self.words) + self.mask + 1

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        return np.asarray(lookup_table(self.words, 1 << max(4, int(2 * len(self.words)).bit_length())))

    @cached_property
    def _null_codes(self) -> dict[str, int]:
        return {}

    def seed_of(self, namespace: str) -> np.uint64:
        """Each namespace has its own seed: the hash of its name."""
        return np.uint64(hash_text(namespace.encode(), np.uint64(self.options.hash_seed)))

    def codes(self, tokens: Tokens) -> Codes:
        return self._codes_of(*self._hashes(tokens, 1 + bool(len(self.words))))

    def pair_codes(self, first: Codes, second: Codes, namespace: str) -> Codes:
        """The codes of pairs of hashes."""
        return self._codes_of(*self._pair_hashes(first, second, namespace, 1 + bool(len(self.words))))

    def _codes_of(self, hashes: Codes, second_hashes: Codes | None = None) -> Codes:
        codes: Codes = hashed_codes(hashes, self.slots_first, self.mask)
        if second_hashes is not None:
            known_codes(wide_keys(hashes, second_hashes), self._table, self.words, self.first, codes)
        return codes

    def null_code(self, namespace: str) -> int:
        if namespace not in self._null_codes:
            self._null_codes[namespace] = int(self.codes(Tokens.of(pa.array([NULL_TEXT]), namespace))[0])
        return self._null_codes[namespace]

    def keys(self, tokens: Tokens) -> NDArray[np.uint64]:
        """Two hashes in one number: strings of a namespace have the same key only if they are equal."""
        return np.asarray(wide_keys(*self._hashes(tokens)))

    def pair_keys(self, first: Codes, second: Codes, namespace: str) -> NDArray[np.uint64]:
        return np.asarray(wide_keys(*self._pair_hashes(first, second, namespace)))

    def hashes_of(self, array: pa.Array, namespace: str) -> Codes:
        """The hash of each value, for values of any type."""
        texts = types.as_text(types.undictionaried(array))
        [hashes] = self._hashes(Tokens.of(texts, namespace), 1)
        nulls = types.nulls_of(texts)
        if nulls is not None:
            hashes[nulls] = hash_text(NULL_TEXT, self.seed_of(namespace))
        return hashes

    def _hashes(self, tokens: Tokens, count: int = 2) -> list[Codes]:
        seeds = self._seeds(tokens.namespace)[:count]
        return [hash_spans(tokens.data, tokens.starts, tokens.stops, seed) for seed in seeds]

    def _pair_hashes(self, first: Codes, second: Codes, namespace: str, count: int = 2) -> list[Codes]:
        return [hash_pairs(first, second, seed) for seed in self._seeds(namespace)[:count]]

    def _seeds(self, namespace: str) -> tuple[np.uint64, np.uint64]:
        seed = self.seed_of(namespace)
        return seed, np.uint64(int(seed) ^ _SECOND_HASH)


def hash_text(text: bytes, seed: np.uint64) -> int:
    data = np.frombuffer(text, np.uint8)
    return int(hash_spans(data, np.zeros(1, np.int32), np.full(1, len(data), np.int32), seed)[0])
