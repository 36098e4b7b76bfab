"""Rows in memory: their content decides their order, and each epoch visits every row."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from streampgs.data.distinct import dense_keys, distinct, sparse_keys, visits
from streampgs.data.memory import MemorySource
from streampgs.kernels.rows import Rows
from streampgs.order.cursor import Cursor
from streampgs.run.report import StopRequest

CELL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e300, 5e-324])
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.tuples(st.tuples(*[CELL] * width), st.sampled_from([0.0, 1.0]), st.integers(0, 3)), min_size=1, max_size=30
    )
)


@settings(max_examples=200, deadline=None)
@given(TABLES)
def test_equal_rows_become_one_row_with_all_their_weight(table: list[tuple[tuple[float, ...], float, int]]) -> None:
    sums: dict[tuple[tuple[float, ...], float], float] = defaultdict(float)
    for row, label, weight in table:
        sums[row, label] += weight  # 0.0 and -0.0 are equal keys
    matrix = np.array([row for row, _, _ in table])
    labels = np.array([label for _, label, _ in table])
    found = distinct(dense_keys(matrix), labels, np.array([weight for _, _, weight in table], np.float64))
    kept = {
        (tuple(matrix[pick].tolist()), labels[pick]): weight for pick, weight in zip(*vars(found).values(), strict=True)
    }
    assert kept == {key: weight for key, weight in sums.items() if weight > 0.0}
    assert len(kept) == len(found.picks)


@settings(max_examples=100, deadline=None)
@given(TABLES)
def test_stored_zeros_and_their_absence_have_the_same_key(table: list[tuple[tuple[float, ...], float, int]]) -> None:
    matrix = np.array([row for row, _, _ in table])
    rows = sparse.csr_array(matrix)
    keys = sparse_keys(rows.indptr.astype(np.int64), rows.indices, rows.data)
    assert keys.tolist() == dense_keys(matrix).tolist()


def test_keys_of_many_entries_are_those_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sparse.random(50, 30, 0.3, "csr", rng=np.random.default_rng(2))
    expected = sparse_keys(rows.indptr.astype(np.int64), rows.indices, rows.data)
    monkeypatch.setattr("streampgs.data.distinct._ENTRIES_AT_ONCE", 7)
    assert sparse_keys(rows.indptr.astype(np.int64), rows.indices, rows.data).tolist() == expected.tolist()
    assert dense_keys(rows.toarray()).tolist() == expected.tolist()


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_huge_weights_are_split(weights: list[float]) -> None:
    found = np.array(weights)
    times = visits(found)
    whole = (found == np.rint(found)).all()
    assert whole or (found / times <= 6.0 * found.mean()).all()
    assert len(weights) <= times.sum() <= (1 << 16) + len(weights)


def test_usual_weights_are_not_split() -> None:
    assert visits(np.random.default_rng(0).uniform(0.1, 3.0, 50)).tolist() == [1] * 50


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50))
def test_whole_numbers_are_repetitions(weights: list[int]) -> None:
    assert visits(np.array(weights, np.float64)).tolist() == weights


def test_huge_numbers_of_repetitions_are_split_less() -> None:
    times = visits(np.array([1e9, 5e8, 1.0]))
    assert times.tolist() == [43691, 21845, 1]  # 65,536 in the ratio of the weights


def source(rows: int, rows_at_once: int) -> MemorySource:
    numbers = np.arange(rows)
    return MemorySource(
        Rows(
            numbers,
            numbers + 1,
            np.empty(0, np.uint32),
            numbers.astype(np.float32),
            numbers * 2.0,
            numbers * 3.0,
            features=1,
        ),
        seed=4,
        rows_at_once=rows_at_once,
    )


def visited(rows_at_once: int, epochs: int, rows: int = 10) -> tuple[list[int], list[int]]:
    """The rows in the order of visit, and the sizes of the windows."""
    made, cursor, order, sizes = source(rows, rows_at_once), Cursor(()), [], []
    made.prepare(epochs)
    while (window := made.window(cursor, StopRequest())) is not None:
        assert window.span is not None
        order += window.numbers.tolist()
        sizes.append(len(window))
        np.testing.assert_array_equal(window.values[window.starts], window.numbers)
        np.testing.assert_array_equal(window.labels, window.numbers * 2.0)
        np.testing.assert_array_equal(window.weights, window.numbers * 3.0)
        cursor = window.span.next
    return order, sizes


def test_every_epoch_visits_each_row_in_an_order_of_its_own() -> None:
    order, _ = visited(1, 5)
    epochs = [tuple(order[first : first + 10]) for first in range(0, 50, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(epochs)) == 5


def test_how_many_epochs_a_window_holds_changes_no_order() -> None:
    order, sizes = visited(35, 8)
    assert sizes == [10, 30, 30, 10]
    assert order == visited(1, 8)[0]


def test_a_stop_ends_the_windows() -> None:
    stop = StopRequest()
    stop.ask("SIGINT")
    assert source(3, 1).window(Cursor(()), stop) is None
