"""Random numbers as pure functions of a key and a counter, so that there is no state to save or restore."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.jit import compiled, frozen, inlinable

STRIDE = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_SHIFT_32 = np.uint64(32)

_PERMUTATION_ROUNDS = 6


def key_of(*parts: int | str) -> int:
    """A 64-bit key from any mixture of integers and words; different mixtures give unrelated keys."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


@inlinable
def mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words without visible pattern."""
    x = (x ^ (x >> _SHIFT_30)) * _MULTIPLIER_1
    x = (x ^ (x >> _SHIFT_27)) * _MULTIPLIER_2
    return x ^ (x >> _SHIFT_31)


def random_words(key: int, counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One 64-bit word for each counter."""
    with np.errstate(over="ignore"):
        return np.asarray(mix(np.uint64(key) + STRIDE * counters.astype(np.uint64)))


def random_fractions(key: int, counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in (0, 1] for each counter."""
    return ((random_words(key, counters) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53


def permuted(key: int, size: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values at `positions` of the keyed permutation of [0, size): no table, any position at once.

    A few rounds of add, fold and odd multiplication are a bijection of the next power of two; results that fall
    outside [0, size) are sent round again until they fall inside (cycle walking), which keeps it a bijection.
    """
    bits = max(1, (size - 1).bit_length())
    mask = np.uint64((1 << bits) - 1)
    fold = np.uint64(max(1, bits // 2))
    round_keys = random_words(key, np.arange(2 * _PERMUTATION_ROUNDS, dtype=np.uint64))

    def scramble(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        for r in range(_PERMUTATION_ROUNDS):
            x = (x + round_keys[2 * r]) & mask
            x ^= x >> fold
            x = (x * (round_keys[2 * r + 1] | np.uint64(1))) & mask
        x ^= x >> fold
        return x

    with np.errstate(over="ignore"):
        result = scramble(np.asarray(positions, dtype=np.uint64))
        while True:
            outside = np.flatnonzero(result >= np.uint64(size))
            if not outside.size:
                return result.astype(np.int64)
            result[outside] = scramble(result[outside])


@compiled
def shuffled(key, size):  # type: ignore[no-untyped-def]
    """A random order of [0, size): Fisher and Yates with counter-based words. `key` is a np.uint64."""
    order = np.arange(size)
    for i in range(size - 1, 0, -1):
        word = mix(key + STRIDE * np.uint64(i))
        j = np.int64(((word >> _SHIFT_32) * np.uint64(i + 1)) >> _SHIFT_32)
        order[i], order[j] = order[j], order[i]
    return order


def checksum(data: NDArray[np.uint8]) -> int:
    """A 64-bit checksum of bytes at memory speed: eight independent lanes, each step a bijection of its lane, so
    that no single changed word can go unnoticed."""
    return int(_checksum(frozen(data)))


@compiled
def _checksum(data):  # type: ignore[no-untyped-def]
    lanes = np.empty(8, np.uint64)
    for lane in range(8):
        lanes[lane] = mix(np.uint64(lane + 1) * STRIDE)
    whole = data.size // 64
    words = data[: whole * 64].view(np.uint64)
    for i in range(whole):
        for lane in range(8):
            mixed = (lanes[lane] ^ words[8 * i + lane]) * _MULTIPLIER_1
            lanes[lane] = mixed ^ (mixed >> _SHIFT_32)
    total = mix(np.uint64(data.size) * STRIDE)
    for lane in range(8):
        total = mix((total ^ lanes[lane]) + STRIDE)
    for i in range(whole * 64, data.size):
        total = mix((total ^ np.uint64(data[i])) + STRIDE)
    return total
