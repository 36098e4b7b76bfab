"""The sample of a stream is uniform, and agrees with a plain twin that keeps rows in a list."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kstest

from streampgs.kernels.randomness import key_of, random_fractions, random_words
from streampgs.kernels.reservoir_loop import COUNTS, FILLED, LIVE, NEXT, PASSED, SIZE, compact, copy_rows, offer_rows

Row = tuple[int, int]
"""Number and length."""


class PlainReservoir:
    def __init__(self, key: int, size: int, room: int) -> None:
        self.key, self.size, self.room = key, size, room
        self.rows: list[Row] = []
        self.next = self.passed = self.draws = 0
        self.largest_key = 1.0

    def _counter(self) -> NDArray[np.uint64]:
        self.draws += 1
        return np.array([self.draws - 1], np.uint64)

    def _fraction(self) -> float:
        return float(random_fractions(self.key, self._counter())[0])

    def _below(self, size: int) -> int:
        return (int(random_words(self.key, self._counter())[0]) >> 32) * size >> 32

    def _shrunk(self) -> float:
        return math.exp(math.log(self._fraction()) / self.size)

    def _jump(self) -> int:
        return int(math.log(self._fraction()) / math.log1p(-self.largest_key))

    def offer(self, lengths: Sequence[int]) -> None:
        for length in lengths:
            number = self.passed
            self.passed += 1
            while self.next == number:
                self._keep((number, length))

    def _keep(self, row: Row) -> None:
        filling = len(self.rows) < self.size
        if filling and sum(length for _, length in self.rows) + row[1] > self.room:
            self.size = len(self.rows)
            self.largest_key = self._shrunk()
            self.next += self._jump()
            return
        if filling:
            self.rows.append(row)
        else:
            self.rows[self._below(self.size)] = row
            self.largest_key *= self._shrunk()
        while sum(length for _, length in self.rows) > self.room:
            victim = self._below(self.size)
            self.rows[victim] = self.rows[-1]
            self.rows.pop()
            self.size -= 1
            self.largest_key *= self._shrunk()
        self.next += 1
        if filling and len(self.rows) == self.size:
            self.largest_key = self._shrunk()
        if len(self.rows) == self.size:
            self.next += self._jump()


class Sample:
    """The compiled sample. The label, the weight and all entries of a row are the row's number."""

    def __init__(self, key: int, size: int, room: int, sparse: bool = True) -> None:
        self.key = np.uint64(key)
        self.counts = np.zeros(COUNTS, np.int64)
        self.counts[SIZE] = size
        self.largest_key = np.ones(1)
        self.starts, self.lengths, self.rooms = (np.zeros(size, np.int64) for _ in range(3))
        self.labels, self.weights = np.zeros((size, 1)), np.zeros(size)
        self.indices = np.zeros(room if sparse else 0, np.uint32)
        self.values = np.zeros(room, np.float32)

    def offer(self, lengths: Sequence[int]) -> None:
        numbers = np.arange(len(lengths)) + self.counts[PASSED]
        sizes = np.array(lengths, np.int64)
        entries = np.repeat(numbers, sizes)
        offer_rows(
            self.key, self.counts, self.largest_key, self.starts, self.lengths, self.rooms, self.labels, self.weights,
            self.indices, self.values, np.cumsum(sizes) - sizes, sizes, numbers.astype(float)[:, None],
            numbers.astype(float), entries.astype(np.uint32), entries.astype(np.float32),
        )  # fmt: skip

    def rows(self) -> list[Row]:
        found = []
        for slot in range(int(self.counts[FILLED])):
            number, start, length = int(self.labels[slot, 0]), int(self.starts[slot]), int(self.lengths[slot])
            assert self.weights[slot] == number
            assert (self.values[start : start + length] == number).all()
            if self.indices.size:
                assert (self.indices[start : start + length] == number).all()
            found.append((number, length))
        return found


@given(
    key=st.integers(0, 2**64 - 1),
    size=st.integers(1, 12),
    room=st.integers(10, 60),
    offers=st.lists(st.lists(st.integers(0, 10), max_size=40), max_size=8),
    sparse=st.booleans(),
)
def test_the_sample_agrees_with_the_plain_twin_for_any_split_of_the_rows_into_offers(
    key: int, size: int, room: int, offers: list[list[int]], sparse: bool
) -> None:
    plain, sample = PlainReservoir(key, size, room), Sample(key, size, room, sparse)
    plain.offer([length for offer in offers for length in offer])
    for offer in offers:
        sample.offer(offer)
    assert sample.rows() == plain.rows
    assert (sample.counts[NEXT], sample.counts[SIZE]) == (plain.next, plain.size)
    assert sample.counts[LIVE] == sum(length for _, length in plain.rows) <= room
    compact(sample.counts, sample.starts, sample.lengths, sample.rooms, sample.indices, sample.values)
    assert sample.rows() == plain.rows


def kept(key: int, size: int, room: int, lengths: Sequence[int]) -> list[int]:
    sample = Sample(key, size, room)
    sample.offer(lengths)
    return [number for number, _ in sample.rows()]


def test_every_row_of_a_stream_is_kept_equally_often(assert_uniform: Callable[[ArrayLike], None]) -> None:
    rows, runs = 300, 4000
    counts = np.zeros(rows, np.int64)
    for run in range(runs):
        counts[kept(key_of("uniform", run), 20, 20, [1] * rows)] += 1
    assert counts.sum() == 20 * runs
    assert_uniform(counts)


def test_every_pair_of_rows_is_kept_equally_often(assert_uniform: Callable[[ArrayLike], None]) -> None:
    rows, runs = 12, 6000
    counts = np.zeros((rows, rows), np.int64)
    for run in range(runs):
        chosen = np.array(sorted(kept(key_of("pairs", run), 4, 4, [1] * rows)))
        counts[np.ix_(chosen, chosen)] += 1
    assert_uniform(counts[np.triu_indices(rows, 1)])


@pytest.mark.parametrize("grows_at", [30, 150])
def test_a_sample_that_shrank_is_uniform_over_all_rows_of_the_stream(
    grows_at: int, assert_uniform: Callable[[ArrayLike], None]
) -> None:
    """Short rows, then rows three times as long: fewer of them fit, so the sample must drop rows."""
    rows, runs = 300, 4000
    lengths = [1] * grows_at + [3] * (rows - grows_at)
    counts, sizes = np.zeros(rows), []
    for run in range(runs):
        chosen = kept(key_of("shrunk", run), 40, 40, lengths)
        counts[chosen] += 1.0
        sizes.append(len(chosen))
    assert 10 < np.mean(sizes) < 40
    # The number of rows that fit depends slightly on which rows are in the sample, but all places in the stream are
    # equally likely.
    early, late = counts[:grows_at].mean(), counts[grows_at:].mean()
    assert early == pytest.approx(late, rel=0.06)


def test_the_oldest_rows_of_a_long_stream_are_as_likely_as_the_newest() -> None:
    rows = 200_000
    places: list[Any] = []
    for run in range(20):
        places += kept(key_of("long", run), 100, 100, [1] * rows)
    assert kstest(np.array(places) / rows, "uniform").pvalue > 1e-4


def test_rows_are_copied_to_the_given_positions() -> None:
    values = np.arange(10, dtype=np.float32)
    out_indices, out_values = np.zeros(6, np.uint32), np.zeros(6, np.float32)
    copy_rows(
        np.array([2, 0]), np.array([0, 3, 7]), np.array([3, 7, 10]), values.astype(np.uint32), values,
        np.array([3, 0]), out_indices, out_values,
    )  # fmt: skip
    assert out_values.tolist() == [0, 1, 2, 7, 8, 9]
    assert out_indices.tolist() == [0, 1, 2, 7, 8, 9]
