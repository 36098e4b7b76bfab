"""Hash strings with MurmurHash3 (x86, 32 bits; Appleby 2011), which other tools also use, and turn hashes into codes.

A **code** is the feature of a string, in the lower 31 bits, and the sign of its value, in bit 31.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.jit import compiled, frozen, inlinable

Words = NDArray[np.uint32]

# Computed in 64 bits with the upper half masked: Numba would convert smaller words to wider or signed numbers anyway.
_LOW = np.uint64(0xFFFFFFFF)
_C1, _C2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
_FIVE, _ADDED = np.uint64(5), np.uint64(0xE6546B64)
_FINAL_1, _FINAL_2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
_ZERO, _8, _13, _15, _16, _17, _19, _24 = (np.uint64(n) for n in (0, 8, 13, 15, 16, 17, 19, 24))

NO_CODE = 0xFFFFFFFF
"""Instead of a code: the row has no such feature."""


@inlinable
def _scrambled(word):  # type: ignore[no-untyped-def]
    word = (word * _C1) & _LOW
    word = ((word << _15) & _LOW) | (word >> _17)
    return (word * _C2) & _LOW


@inlinable
def _with_word(state, word):  # type: ignore[no-untyped-def]
    state = state ^ _scrambled(word)
    state = ((state << _13) & _LOW) | (state >> _19)
    return (state * _FIVE + _ADDED) & _LOW


@inlinable
def _finished(state, size):  # type: ignore[no-untyped-def]
    state = state ^ np.uint64(size)
    state = ((state ^ (state >> _16)) * _FINAL_1) & _LOW
    state = ((state ^ (state >> _13)) * _FINAL_2) & _LOW
    return state ^ (state >> _16)


@inlinable
def murmur3(data, start, stop, seed):  # type: ignore[no-untyped-def]
    """The hash of the bytes data[start:stop], as a uint64 below 2^32."""
    state = np.uint64(seed)
    whole = start + (stop - start) // 4 * 4
    for place in range(start, whole, 4):
        word = np.uint64(data[place]) | (np.uint64(data[place + 1]) << _8)
        word |= (np.uint64(data[place + 2]) << _16) | (np.uint64(data[place + 3]) << _24)
        state = _with_word(state, word)
    rest = stop - whole
    word = _ZERO
    if rest > 2:
        word |= np.uint64(data[whole + 2]) << _16
    if rest > 1:
        word |= np.uint64(data[whole + 1]) << _8
    if rest > 0:
        word |= np.uint64(data[whole])
        state = state ^ _scrambled(word)
    return _finished(state, stop - start)


def hash_spans(data: NDArray[np.uint8], starts: NDArray[Any], stops: NDArray[Any], seed: np.uint64) -> Words:
    """The hash of each of the strings data[starts[i]:stops[i]]."""
    found: Words = _hash_spans(frozen(data), frozen(starts), frozen(stops), seed)
    return found


@compiled
def _hash_spans(data, starts, stops, seed):  # type: ignore[no-untyped-def]
    hashes = np.empty(starts.size, np.uint32)
    for i in range(starts.size):
        hashes[i] = np.uint32(murmur3(data, starts[i], stops[i], seed))
    return hashes


@compiled
def hash_pairs(first, second, seed):  # type: ignore[no-untyped-def]
    """The hash of each pair of hashes, taken as eight bytes."""
    hashes = np.empty(first.size, np.uint32)
    for i in range(first.size):
        state = _with_word(_with_word(np.uint64(seed), np.uint64(first[i])), np.uint64(second[i]))
        hashes[i] = np.uint32(_finished(state, 8))
    return hashes


def hashed_codes(hashes: Words, base: int, mask: int) -> Words:
    """The lower bits of a hash choose one of mask + 1 features from `base` on; its highest bit is the sign."""
    return (np.uint32(base) + (hashes & np.uint32(mask))) | (hashes & np.uint32(1 << 31))


@compiled
def lookup_table(keys, size):  # type: ignore[no-untyped-def]
    """Places of the keys in a table of open addressing; `size` is a power of two above their number."""
    table = np.full(size, -1, np.int64)
    for i in range(keys.size):
        place = np.int64(keys[i] & np.uint64(size - 1))
        while table[place] >= 0:
            place = (place + 1) & (size - 1)
        table[place] = i
    return table


@compiled
def known_codes(wanted, table, keys, base, codes):  # type: ignore[no-untyped-def]
    """Set codes[i] to feature base + k if wanted[i] is keys[k]; leave it unchanged if it is not a key."""
    for i in range(wanted.size):
        place = np.int64(wanted[i] & np.uint64(table.size - 1))
        while table[place] >= 0:
            if keys[table[place]] == wanted[i]:
                codes[i] = np.uint32(base + table[place])
                break
            place = (place + 1) & (table.size - 1)


def wide_keys(first: Words, second: Words) -> NDArray[np.uint64]:
    """Two hashes of the same string, by different seeds, as one key of 64 bits; equal keys mean equal strings."""
    return (first.astype(np.uint64) << np.uint64(32)) | second
