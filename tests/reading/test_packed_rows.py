"""Packed rows are the same rows when they are unpacked, and take few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.encoding.rows import RowBlock
from streampgs.kernels.pairs_loop import MOST_PAIRS, look_up_pairs, number_pairs
from streampgs.kernels.rows import Rows
from streampgs.reading.packed_rows import lengths_of, packed, packed_row_bytes, unpacked
from streampgs.reading.reused import Scratch

NONE = np.empty(0)


def block_of(lengths, indices, values, *, labels=None, width=None, **more):
    """Rows in the middle of longer arrays of entries, as slices of a block have them."""
    bounds = 1 + np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    around = [None if entries is None else np.concatenate([entries[:1], entries]) for entries in (indices, values)]
    if labels is None:
        labels = np.zeros((len(lengths), 1))
    faults = more.pop("faults", np.zeros(len(lengths), np.uint8))
    columns = {"weights": NONE, "offsets": NONE, "clipped": np.empty(0, np.uint8)} | more
    return RowBlock(faults, labels, columns["weights"], columns["offsets"], bounds, *around, width, columns["clipped"])


def assert_comes_back(block):
    data, head = packed(block)
    written = np.frombuffer(data, np.uint8)
    np.testing.assert_array_equal(lengths_of(written[:head]), np.diff(block.bounds))
    found = unpacked(written, Scratch().take)
    first, stop = block.bounds[0], block.bounds[-1]
    assert (found.bounds.tolist(), found.width) == ((block.bounds - first).tolist(), block.width)
    for name in ("faults", "labels", "weights", "offsets", "clipped"):
        one, other = getattr(found, name), getattr(block, name)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
    for one, other in ((found.indices, block.indices), (found.values, block.values)):
        assert (one is None) == (other is None)
        if other is not None:
            assert (one.dtype, one.tobytes()) == (other.dtype, other[first:stop].tobytes())


numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 255.0, 256.0, 1e-300, 1e300, np.nan, np.inf])


@given(
    rows=st.lists(st.lists(st.tuples(st.integers(0, 3), numbers), max_size=6), min_size=1, max_size=60),
    types=st.sampled_from([(np.int32, np.float32), (np.int64, np.float64), (np.int32, None)]),
    targets=st.integers(0, 2),
    weighted=st.booleans(),
    data=st.data(),
)
def test_sparse_rows_come_back(rows, types, targets, weighted, data):
    entries = [entry for row in rows for entry in row]
    indices = np.array([index for index, _ in entries], types[0])
    with np.errstate(over="ignore"):
        values = None if types[1] is None else np.array([value for _, value in entries]).astype(types[1])
    column = st.lists(numbers, min_size=len(rows), max_size=len(rows)).map(np.array)
    labels = np.stack([data.draw(column) for _ in range(targets)], axis=1) if targets else np.empty((len(rows), 0))
    marks = np.arange(len(rows), dtype=np.uint8) % 3
    more = {"weights": data.draw(column), "offsets": data.draw(column), "clipped": marks} if weighted else {}
    assert_comes_back(block_of([*map(len, rows)], indices, values, labels=labels, faults=marks, **more))


@pytest.mark.parametrize("width", [0, 3, None])
@pytest.mark.parametrize("values", [np.arange(600), np.arange(600) % 7])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_dense_rows_come_back(width, values, kind):
    values = values[:0] if width == 0 else values
    lengths = [3] * 200 if width is None else [width] * 200
    assert_comes_back(block_of(lengths, None, values.astype(kind), width=width))


def test_more_pairs_than_numbers_come_back():
    """The later ones are kept once for each of their entries."""
    draw = np.random.default_rng(0)
    indices = np.concatenate([np.arange(MOST_PAIRS + 500), draw.integers(0, MOST_PAIRS + 500, 400_000)]).astype(
        np.int32
    )
    indices[:5000] = 7  # else there seem to be too many
    block = block_of(np.full(len(indices) // 5, 5), indices, np.ones(len(indices), np.float32))
    assert_comes_back(block)
    assert len(packed(block)[0]) < 8 * len(indices) // 2


def test_rows_of_few_different_entries_take_few_bytes():
    draw = np.random.default_rng(0)
    indices = draw.integers(0, 2_000, 40_000).astype(np.int32)
    sparse = block_of(
        np.full(1_000, 40), indices, np.ones(40_000, np.float32), labels=draw.integers(0, 2, (1_000, 1)) * 1.0
    )
    assert len(packed(sparse)[0]) < 1_000 * (2 * 40 + 4) + 2_000 * 8
    pixels = block_of(np.full(1_000, 64), None, draw.binomial(1, 0.1, 64_000).astype(np.float32), width=64)
    assert len(packed(pixels)[0]) < 1_000 * 64 // 4


def test_bytes_in_the_cache_are_told_by_rows_in_memory():
    """The rows of a window are in any order in memory."""
    draw = np.random.default_rng(0)
    indices, labels = draw.integers(0, 500, (300, 20)).astype(np.int32), draw.integers(0, 2, 300) * 1.0
    places = draw.permutation(300)
    starts = 20 * places
    laid_out = np.empty_like(indices)
    laid_out[places] = indices
    rows = Rows(starts, starts + 20, laid_out.ravel().view(np.uint32), np.ones(6_000, np.float32), labels)
    block = block_of(np.full(300, 20), indices.ravel(), np.ones(6_000, np.float32), labels=labels[:, np.newaxis])
    assert packed_row_bytes(rows) == len(packed(block)[0]) / 300


def test_rows_of_different_entries_are_kept_as_they_are():
    values = np.random.default_rng(0).normal(size=40_000).astype(np.float32)
    block = block_of(np.full(1_000, 40), np.arange(40_000, dtype=np.int32), values)
    assert len(packed(block)[0]) < 8 * 40_000 + 1_000


@given(entries=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2)), max_size=40))
def test_numbers_of_pairs_agree_with_the_plain_twin(entries):
    indices, values = (np.array([entry[k] for entry in entries], np.uint32) for k in range(2))
    pairs, codes = np.empty(len(entries), np.uint64), np.empty(len(entries), np.uint16)
    count = number_pairs(indices, values, np.zeros(128, np.uint32), pairs, codes)
    expected = list(dict.fromkeys(entries))
    assert [(int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in pairs[:count]] == expected
    assert codes.tolist() == [expected.index(entry) for entry in entries]
    found = np.zeros(len(entries), np.uint32), np.zeros(len(entries), np.uint32)
    look_up_pairs(codes, (pairs[:count] >> np.uint64(32)).astype(np.uint32), pairs[:count].astype(np.uint32), *found)
    assert [*zip(*(array.tolist() for array in found), strict=True)] == entries
