"""Random numbers: permutations are bijections, shuffles are uniform, and the pinned results do not change.

Do not change the literal numbers below: that would change the order of rows in every existing run.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.kernels.randomness import checksum, key_of, permuted, random_fractions, random_words, shuffled

WORD = (1 << 64) - 1
GOLDEN, MULTIPLIER_1, MULTIPLIER_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

PINNED_KEY = 17385562691199473667
PINNED_PERMUTATION = [10, 7, 6, 1, 9, 3, 8, 5, 11, 2, 4, 0]
PINNED_START_OF_1000 = [851, 204, 616, 550, 728, 859, 461, 699]
PINNED_SHUFFLE = [7, 11, 3, 1, 6, 10, 5, 8, 9, 0, 4, 2]
PINNED_WORDS = [4882881169824673496, 10115131884820822856]
PINNED_CHECKSUM = 0x1D185CB1CFA9FD97


def plain_mix(x: int) -> int:
    x = (x ^ (x >> 30)) * MULTIPLIER_1 & WORD
    x = (x ^ (x >> 27)) * MULTIPLIER_2 & WORD
    return x ^ (x >> 31)


def plain_shuffle(key: int, size: int) -> list[int]:
    order = list(range(size))
    for i in reversed(range(1, size)):
        word = plain_mix((key + GOLDEN * i) & WORD)
        j = (word >> 32) * (i + 1) >> 32
        order[i], order[j] = order[j], order[i]
    return order


def plain_checksum(data: bytes) -> int:
    lanes = [plain_mix((lane + 1) * GOLDEN & WORD) for lane in range(8)]
    whole = len(data) // 64 * 64
    for place in range(0, whole, 8):
        lane = place // 8 % 8
        mixed = (lanes[lane] ^ int.from_bytes(data[place : place + 8], "little")) * MULTIPLIER_1 & WORD
        lanes[lane] = mixed ^ (mixed >> 32)
    total = plain_mix(len(data) * GOLDEN & WORD)
    for part in [*lanes, *data[whole:]]:
        total = plain_mix(((total ^ part) + GOLDEN) & WORD)
    return total


def whole_permutation(key: int, size: int) -> np.ndarray:
    return permuted(key, size, np.arange(size))


def shuffle_of(key: int, size: int) -> np.ndarray:
    # Words wrap around by design. Without the compiler, numpy would warn about it.
    with np.errstate(over="ignore"):
        return shuffled(np.uint64(key), size)


def checksum_of(data: bytes | bytearray) -> int:
    with np.errstate(over="ignore"):
        return int(checksum(np.frombuffer(data, np.uint8)))


# Keys and words.


def test_key_is_pinned():
    assert key_of("pinned", 7) == PINNED_KEY


def test_words_are_pinned_and_agree_with_splitmix():
    counters = np.arange(2, dtype=np.uint64)
    assert random_words(PINNED_KEY, counters).tolist() == PINNED_WORDS
    assert [plain_mix((PINNED_KEY + GOLDEN * i) & WORD) for i in range(2)] == PINNED_WORDS


def test_fractions_are_uniform_and_never_zero(assert_uniform):
    fractions = random_fractions(3, np.arange(64_000, dtype=np.uint64))
    assert fractions.min() > 0.0
    assert fractions.max() <= 1.0
    assert_uniform(np.histogram(fractions, bins=64, range=(0.0, 1.0))[0])


# The permutation without a table.


@given(key=st.integers(0, WORD), size=st.integers(1, 3000), data=st.data())
def test_permuted_positions_agree_with_the_whole_permutation(key, size, data):
    positions = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=20)), dtype=np.int64)
    assert np.array_equal(permuted(key, size, positions), whole_permutation(key, size)[positions])


def test_permuted_works_for_sizes_beyond_32_bits():
    size = (1 << 40) + 12345
    positions = np.arange(size - 5000, size)
    places = permuted(9, size, positions)
    assert len(set(places.tolist())) == 5000
    assert places.min() >= 0
    assert places.max() < size
    assert places.max() > 1 << 39


def test_permuted_is_pinned():
    assert whole_permutation(PINNED_KEY, 12).tolist() == PINNED_PERMUTATION
    assert permuted(PINNED_KEY, 1000, np.arange(8)).tolist() == PINNED_START_OF_1000


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_order_of_a_few_items_is_equally_likely(size, assert_uniform):
    counts = dict.fromkeys(permutations(range(size)), 0)
    for i in range(2000):
        counts[tuple(whole_permutation(key_of("few", i), size).tolist())] += 1
    assert_uniform(list(counts.values()))


@pytest.mark.parametrize("size", [1 << 16, 50_000])
def test_the_order_of_many_items_shows_no_pattern(size, assert_uniform):
    order = whole_permutation(key_of("many"), size)
    steps = np.diff(order) % size
    assert_uniform(np.bincount(steps * 64 // size, minlength=64))
    first_sixteenth = order[: size // 16]
    assert_uniform(np.bincount(first_sixteenth * 16 // size, minlength=16))


# The shuffle of a window's rows.


@given(key=st.integers(0, WORD), size=st.integers(0, 300))
def test_shuffled_agrees_with_its_plain_twin(key, size):
    assert shuffle_of(key, size).tolist() == plain_shuffle(key, size)


def test_shuffled_is_pinned():
    assert shuffle_of(PINNED_KEY, 12).tolist() == PINNED_SHUFFLE


def test_shuffled_is_uniform(assert_uniform):
    counts = dict.fromkeys(permutations(range(4)), 0)
    for i in range(2400):
        counts[tuple(shuffle_of(key_of("shuffle", i), 4).tolist())] += 1
    assert_uniform(list(counts.values()))
    orders = np.array([shuffle_of(key_of("shuffle", i), 20) for i in range(1000)])
    for position in (0, 9, 19):
        assert_uniform(np.bincount(orders[:, position], minlength=20))


# The checksum.


def bytes_of(size: int) -> bytearray:
    return bytearray(np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes())


@given(data=st.binary(max_size=300))
def test_checksum_agrees_with_its_plain_twin(data):
    assert checksum_of(data) == plain_checksum(data)


def test_checksum_is_pinned():
    assert checksum_of(bytes(range(100))) == PINNED_CHECKSUM


@pytest.mark.parametrize("size", [1, 7, 64, 100, 131])
@pytest.mark.parametrize("made", [bytearray, bytes_of], ids=["zeros", "random"])
def test_checksum_detects_every_flipped_bit(size, made):
    data = made(size)
    seen = {checksum_of(data)}
    for bit in range(8 * size):
        data[bit // 8] ^= 1 << bit % 8
        seen.add(checksum_of(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(seen) == 8 * size + 1
