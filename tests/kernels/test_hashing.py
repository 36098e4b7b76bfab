"""Hashes agree with the MurmurHash3 of scikit-learn, and codes agree with their definition."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from streampgs.kernels.hashing import (
    hash_pairs,
    hash_spans,
    hashed_codes,
    known_codes,
    lookup_table,
    wide_keys,
)

words = st.integers(0, 2**32 - 1)
seeds = st.one_of(st.sampled_from([0, 1, 2**31, 2**32 - 1]), words)
SIGN = 1 << 31


def plain_hash(text: bytes, seed: int) -> int:
    return int(murmurhash3_32(text, seed=seed, positive=True))


@given(texts=st.lists(st.binary(max_size=40), max_size=8), seed=seeds, before=st.binary(max_size=5))
@example(texts=[b"a" * size for size in range(20)], seed=2**32 - 1, before=b"xyz")
@example(texts=[b"", b"\x00", b"\x00\x00", b"\xff\xff\xff\xff\xff"], seed=0, before=b"")
def test_hashes_of_spans_agree_with_murmur3(texts, seed, before):
    """At any position in a buffer, and with positions of either integer type."""
    data = np.frombuffer(before + b"".join(texts) + b"behind", np.uint8)
    bounds = len(before) + np.cumsum([0, *(len(text) for text in texts)])
    for kind in (np.int32, np.int64):
        hashes = hash_spans(data, bounds[:-1].astype(kind), bounds[1:].astype(kind), np.uint64(seed))
        assert hashes.dtype == np.uint32
        assert hashes.tolist() == [plain_hash(text, seed) for text in texts]


@given(pairs=st.lists(st.tuples(words, words), max_size=8), seed=seeds)
def test_the_hash_of_a_pair_is_the_hash_of_its_eight_bytes(pairs, seed):
    first, second = (np.array([pair[k] for pair in pairs], np.uint32) for k in (0, 1))
    expected = [plain_hash(np.array(pair, "<u4").tobytes(), seed) for pair in pairs]
    assert hash_pairs(first, second, np.uint64(seed)).tolist() == expected


@given(hashes=st.lists(words, max_size=8), base=st.integers(0, 2**30), bits=st.integers(1, 28))
@example(hashes=[0, 2**32 - 1, SIGN, SIGN - 1], base=2**30, bits=28)
def test_a_code_is_base_plus_the_low_bits_of_the_hash_with_its_highest_bit_as_sign(hashes, base, bits):
    codes = hashed_codes(np.array(hashes, np.uint32), base, (1 << bits) - 1)
    assert codes.dtype == np.uint32
    for code, hashed in zip(codes.tolist(), hashes, strict=True):
        assert code % SIGN == base + hashed % 2**bits
        assert code // SIGN == hashed // SIGN


@given(
    keys=st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=30),
    others=st.lists(st.integers(0, 2**64 - 1), max_size=10),
    crowded=st.booleans(),
    base=st.integers(0, 2**30),
)
@example(keys=[0, 2**64 - 1, 2**63], others=[1], crowded=True, base=0)
def test_known_words_get_features_in_order_and_other_words_keep_their_codes(keys, others, crowded, base):
    if crowded:  # all keys collide at one position near the end of the table
        keys = list(dict.fromkeys(key | 0xFFFF for key in keys))
        others = [key | 0xFFFF for key in others]
    size = 1 << max(1, len(keys).bit_length())
    array = np.array(keys, np.uint64)
    table = lookup_table(array, size)
    assert sorted(table[table >= 0].tolist()) == list(range(len(keys)))
    wanted = [*others, *keys, *reversed(keys)]
    before = list(range(2**32 - len(wanted), 2**32))
    codes = np.array(before, np.uint32)
    known_codes(np.array(wanted, np.uint64), table, array, base, codes)
    place = {key: base + number for number, key in enumerate(keys)}
    assert codes.tolist() == [place.get(key, code) for key, code in zip(wanted, before, strict=True)]


@given(pairs=st.lists(st.tuples(words, words), max_size=8))
def test_a_wide_key_has_one_hash_in_each_half(pairs):
    first, second = (np.array([pair[k] for pair in pairs], np.uint32) for k in (0, 1))
    found = wide_keys(first, second)
    assert found.dtype == np.uint64
    assert found.tolist() == [(one << 32) + other for one, other in pairs]
