"""Placing rows in a window, compared with slow twins: copied values, reasons for a refusal, and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels.placing_loop import (
    INDEX_TOO_LARGE,
    NEGATIVE_INDEX,
    REPEATED_INDEX,
    VALUE_NOT_FINITE,
    VALUE_TOO_LARGE,
    place_dense,
    place_sparse,
    repeat_table,
    score_rows,
    squared_norms,
)

LIMIT = 12
UNTOUCHED = 77
BAD_LABEL = 99

# The largest float32, and the smallest float64 that becomes infinity in float32.
LAST_IN_RANGE = float(np.finfo(np.float32).max)
FIRST_OUT_OF_RANGE = LAST_IN_RANGE + 2.0**103
values_of_any_kind = st.one_of(
    st.floats(-100.0, 100.0),
    st.sampled_from([0.0, -0.0, 1e-320, LAST_IN_RANGE, -LAST_IN_RANGE]),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e39, -1e300, FIRST_OUT_OF_RANGE]),
)
plain_values = st.one_of(st.floats(-100.0, 100.0), st.just(0.0))

good_rows = st.lists(
    st.tuples(st.integers(0, LIMIT - 1), plain_values), max_size=LIMIT, unique_by=lambda entry: entry[0]
)
rows_of_any_kind = st.lists(st.tuples(st.integers(-2, LIMIT + 1), values_of_any_kind), max_size=8)


@dataclass
class Block:
    """Sparse rows in the columns of a block."""

    offsets: np.ndarray
    indices: np.ndarray
    values: np.ndarray


def block_of(rows: list[list[tuple[int, float]]], ones: bool = False) -> Block:
    """The rows as a slice of a larger column. The entries before and after them are invalid."""
    elsewhere = [(-7, math.nan), (-7, math.inf)]
    entries = [*elsewhere, *(entry for row in rows for entry in row), *elsewhere]
    return Block(
        len(elsewhere) + np.cumsum([0, *(len(row) for row in rows)]),
        np.array([index for index, _ in entries], dtype=np.int64),
        np.array([] if ones else [value for _, value in entries], dtype=np.float64),
    )


def faults_of(indices: list[int], values: list[float]) -> set[int]:
    """All reasons to refuse a row. The loop may report any one of them."""
    faults = set()
    if min(indices, default=0) < 0:
        faults.add(NEGATIVE_INDEX)
    if max(indices, default=0) >= LIMIT:
        faults.add(INDEX_TOO_LARGE)
    if len(set(indices)) < len(indices):
        faults.add(REPEATED_INDEX)
    return faults | faults_of_values(values)


def faults_of_values(values: list[float]) -> set[int]:
    faults = set()
    if not all(math.isfinite(value) for value in values):
        faults.add(VALUE_NOT_FINITE)
    if any(math.isfinite(value) and abs(value) >= FIRST_OUT_OF_RANGE for value in values):
        faults.add(VALUE_TOO_LARGE)
    return faults


@dataclass
class Placed:
    largest: int
    reasons: np.ndarray
    starts: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    table: np.ndarray


def place(block: Block, picks: list[int], slots: list[int], refused: set[int], limit: int = LIMIT) -> Placed:
    """Copy each picked row to its slot. One spare entry after each slot shows whether the loop writes too far.

    The rows in `refused` already have a reason, as a row with a bad label has.
    """
    lengths = np.zeros(len(slots), np.int64)
    lengths[slots] = np.diff(block.offsets)[picks] if picks else []
    starts = np.concatenate([[0], np.cumsum(lengths + 1)]).astype(np.int64)
    out_indices = np.full(starts[-1], UNTOUCHED, np.uint32)
    out_values = np.full(starts[-1], UNTOUCHED, np.float32)
    reasons = np.array([BAD_LABEL if k in refused else 0 for k in range(len(picks))], np.uint8)
    table = repeat_table(int(np.diff(block.offsets).max(initial=0)))
    unsigned = block.indices.view(f"uint{8 * block.indices.itemsize}")
    # Infinite values and hashes that wrap around are expected. Without the compiler, numpy would warn about both.
    with np.errstate(all="ignore"):
        largest = place_sparse(
            np.array(picks, np.int64), np.array(slots, np.int64), block.offsets, unsigned, block.values,
            starts, out_indices, out_values, np.uint64(limit), reasons, table, False,
        )  # fmt: skip
    return Placed(int(largest), reasons, starts, out_indices, out_values, table)


@given(
    rows=st.lists(st.one_of(good_rows, rows_of_any_kind), min_size=1, max_size=6),
    ones=st.booleans(),
    data=st.data(),
)
@example(rows=[[(3, 1.0), (1, 2.0), (3, 3.0)], [], []], ones=False, data=None)
@example(rows=[[(1, 1.0), (3, 2.0)], [(5, 1.0)], [(2, 1.0), (7, 1.0)]], ones=False, data=None)
@example(rows=[[(1, 1.0), (3, math.nan)], [(5, 1.0)], [(2, 1.0), (7, 1.0)]], ones=False, data=None)
@example(rows=[[], [(LIMIT - 1, 1.0)], []], ones=True, data=None)
def test_placed_sparse_rows_agree_with_the_plain_twin(rows, ones, data):
    if data is None:
        # As many picks as rows, but not every row.
        picks, slots = [0, 1, 0], [2, 0, 1]
    else:
        picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
        slots = data.draw(st.permutations(range(len(picks))))
    refused = set() if data is None else data.draw(st.sets(st.integers(0, 7), max_size=2))
    placed = place(block_of(rows, ones), picks, slots, refused)

    largest = -1
    for k, (pick, slot) in enumerate(zip(picks, slots, strict=True)):
        indices = [index for index, _ in rows[pick]]
        values = [1.0 if ones else value for _, value in rows[pick]]
        assert placed.reasons[k] in ({BAD_LABEL} if k in refused else faults_of(indices, values) or {0})
        end = placed.starts[slot + 1] - 1
        assert placed.indices[end] == placed.values[end] == UNTOUCHED
        if placed.reasons[k] == 0:
            assert placed.indices[placed.starts[slot] : end].tolist() == indices
            expected = np.array(values, np.float64).astype(np.float32)
            assert placed.values[placed.starts[slot] : end].tobytes() == expected.tobytes()
            largest = max([largest, *indices])
    assert placed.largest == largest
    assert (placed.table == -1).all()


@given(
    rows=st.lists(st.lists(values_of_any_kind, min_size=3, max_size=3), min_size=1, max_size=5),
    data=st.data(),
)
def test_placed_dense_rows_agree_with_the_plain_twin(rows, data):
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=7))
    slots = data.draw(st.permutations(range(len(picks))))
    out = np.full(3 * len(picks), UNTOUCHED, np.float32)
    refused = data.draw(st.sets(st.integers(0, 6), max_size=2))
    reasons = np.array([BAD_LABEL if k in refused else 0 for k in range(len(picks))], np.uint8)
    with np.errstate(all="ignore"):
        place_dense(
            np.array(picks, np.int64), np.array(slots, np.int64), 3, np.array(rows, np.float64).ravel(),
            3 * np.arange(len(out) // 3), out, reasons,
        )  # fmt: skip
    for k, (pick, slot) in enumerate(zip(picks, slots, strict=True)):
        assert reasons[k] in ({BAD_LABEL} if k in refused else faults_of_values(rows[pick]) or {0})
        if reasons[k] == 0:
            expected = np.array(rows[pick], np.float64).astype(np.float32)
            assert out[3 * slot : 3 * slot + 3].tobytes() == expected.tobytes()


def window_of(rows: list[list[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(starts, stops, indices, values). The rows are stored in reverse order, because `starts` need not increase."""
    block = block_of(rows[::-1])
    starts, stops = block.offsets[:-1][::-1].copy(), block.offsets[1:][::-1].copy()
    return starts, stops, block.indices.astype(np.uint32), block.values.astype(np.float32)


@given(
    rows=st.lists(good_rows, max_size=6),
    weights=st.lists(st.floats(-10.0, 10.0), max_size=LIMIT),
    intercept=st.floats(-5.0, 5.0),
)
def test_sparse_scores_ignore_features_without_a_weight(rows, weights, intercept):
    starts, stops, indices, values = window_of(rows)
    scores = np.empty(len(rows))
    score_rows(np.array(weights), intercept, starts, stops, indices, values, True, scores)
    for row, score in zip(rows, scores, strict=True):
        terms = [weights[index] * float(np.float32(value)) for index, value in row if index < len(weights)]
        assert score == pytest.approx(math.fsum([intercept, *terms]), abs=1e-11)


@given(
    rows=st.lists(st.lists(plain_values, min_size=4, max_size=4), max_size=5),
    weights=st.lists(st.floats(-10.0, 10.0), max_size=6),
    intercept=st.floats(-5.0, 5.0),
)
def test_dense_scores_ignore_features_without_a_weight(rows, weights, intercept):
    starts = 4 * np.arange(len(rows), dtype=np.int64)
    values = np.array(rows, np.float32).ravel()
    scores = np.empty(len(rows))
    score_rows(np.array(weights), intercept, starts, starts + 4, np.empty(0, np.uint32), values, False, scores)
    for row, score in zip(rows, scores, strict=True):
        terms = [w * float(np.float32(x)) for w, x in zip(weights, row, strict=False)]
        assert score == pytest.approx(math.fsum([intercept, *terms]), abs=1e-11)


def plain_squared_norm(row: list[float], exponent: float) -> float:
    largest = max((abs(value) for value in row), default=0.0)
    if largest == 0.0:
        return 0.0
    return largest**2 * math.fsum((abs(value) / largest) ** exponent for value in row) ** (2.0 / exponent)


def squared_norms_of(rows: list[list[float]], exponent: float) -> np.ndarray:
    starts, stops, _, values = window_of([list(enumerate(row)) for row in rows])
    norms = np.full(len(rows), math.nan)
    squared_norms(starts, stops, values, exponent, norms)
    return norms


EXPONENTS = [2.0, 2.25, 3.0, 11.0]


@pytest.mark.parametrize("exponent", EXPONENTS)
@given(rows=st.lists(st.lists(plain_values, max_size=6), max_size=4))
def test_squared_norms_agree_with_the_plain_twin(exponent, rows):
    # Another test covers small values, which float32 and the exponent may round to zero.
    rows = [[float(np.float32(value)) if abs(value) > 0.01 else 0.0 for value in row] for row in rows]
    expected = [plain_squared_norm(row, exponent) for row in rows]
    assert squared_norms_of(rows, exponent) == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("exponent", [*EXPONENTS, 101.0, 1001.0])
@pytest.mark.parametrize("size", [1e-30, 0.1, 3.0, 1e30])
def test_squared_norms_stay_in_range_for_every_p(exponent, size):
    """The initial t0 is computed from them. The smallest allowed p has q = 1001."""
    row = [float(np.float32(size)), 0.0, -float(np.float32(0.5 * size))]
    assert squared_norms_of([row], exponent)[0] == pytest.approx(plain_squared_norm(row, exponent), rel=1e-10, abs=0.0)
