"""Rows assembled from codes, numbers and bags, compared with plain twins that keep a row in a dict.

The order of the entries is not specified, but it may depend only on the row itself.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streampgs.kernels.encoder_loop import (
    BINARY,
    COUNTED,
    LOG_COUNTED,
    assembled_rows,
    bags,
    between_knots,
    codes_of_places,
    counted_rows,
    merged_bags,
    rows_from_columns,
    side_by_side,
    standardize,
)
from streampgs.kernels.hashing import NO_CODE

SIGN = 1 << 31
NO_RARITY = np.empty(0, np.float32)
BASE = 1000

# Few different indices, so that they repeat; some that collide in a small table; and the largest ones.
indices = st.one_of(st.integers(BASE, BASE + 5), st.sampled_from([BASE + 16 * k for k in range(6)]))
far_indices = st.one_of(indices, st.sampled_from([2**31 - 2, 2**31 - 3, 2**30]))
codes = st.builds(lambda index, negative: index + SIGN * negative, far_indices, st.booleans())
near_codes = st.builds(lambda index, negative: index + SIGN * negative, indices, st.booleans())
# Sums of eighths are exact, so the order of the additions has no effect.
values = st.one_of(st.integers(-16, 16).map(lambda number: number / 8), st.just(-0.0))
entry_rows = st.lists(st.lists(st.tuples(far_indices, values), max_size=8), max_size=5)
Row = dict[int, float]


@pytest.fixture(autouse=True)
def _words_may_wrap():
    """Without the compiler, numpy warns about the overflow that hashing relies on."""
    with np.errstate(over="ignore"):
        yield


def flat(rows, kind):
    """The items of all rows, with items of other rows before and after them, and the offsets of the rows."""
    padding = [kind(3)] * 3
    offsets = 3 + np.cumsum([0, *(len(row) for row in rows)])
    return np.array([*padding, *(part for row in rows for part in row), *padding], kind), offsets.astype(np.int64)


def columns_of(rows):
    own_indices, offsets = flat([[index for index, _ in row] for row in rows], np.uint32)
    own_values, _ = flat([[value for _, value in row] for row in rows], np.float32)
    return offsets, own_indices, own_values


def split(found) -> list[list[tuple[int, float]]]:
    """The entries of each row, in order."""
    offsets, its_indices, its_values = found
    assert (offsets.dtype, its_indices.dtype, its_values.dtype) == (np.int64, np.uint32, np.float32)
    assert offsets[0] == 0
    assert offsets[-1] == len(its_indices) == len(its_values)
    entries = list(zip(its_indices.tolist(), its_values.tolist(), strict=True))
    return [entries[first:stop] for first, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def as_dicts(found) -> list[Row]:
    rows = split(found)
    for row in rows:
        assert len({index for index, _ in row}) == len(row), f"an index occurs twice: {row}"
    return [dict(row) for row in rows]


def without_zeros(row: Row) -> Row:
    return {index: value for index, value in row.items() if value != 0.0}


def summed(entries) -> Row:
    row: Row = {}
    for index, value in entries:
        row[index] = row.get(index, 0.0) + value
    return row


def signed(code: int) -> tuple[int, float]:
    return code % SIGN, -1.0 if code >= SIGN else 1.0


# Bags.

WEIGHTINGS = {
    BINARY: lambda count: 1.0,
    COUNTED: lambda count: count,
    LOG_COUNTED: lambda count: 1.0 + math.log(count),
}


def plain_bag(tokens, weighting, rarity, normalised) -> Row:
    counts = without_zeros(summed(signed(code) for code in tokens))
    row = {
        index: math.copysign(WEIGHTINGS[weighting](abs(count)), count) * (rarity[index - BASE] if rarity else 1.0)
        for index, count in counts.items()
    }
    row = without_zeros(row)
    length = math.sqrt(math.fsum(value * value for value in row.values()))
    return {index: value / length for index, value in row.items()} if normalised and row else row


@given(
    rows=st.lists(st.lists(near_codes, max_size=12), max_size=5),
    weighting=st.sampled_from(list(WEIGHTINGS)),
    rarity=st.one_of(st.just([]), st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.25]), min_size=100, max_size=100)),
    normalised=st.booleans(),
)
@example(
    rows=[[], [BASE] * 5 + [BASE + SIGN] * 5, [BASE + SIGN] * 4, []], weighting=LOG_COUNTED, rarity=[], normalised=True
)
@example(rows=[], weighting=BINARY, rarity=[], normalised=True)
def test_bags_agree_with_the_plain_twin(rows, weighting, rarity, normalised):
    tokens, offsets = flat(rows, np.uint32)
    found = as_dicts(bags(tokens, offsets, weighting, np.array(rarity, np.float32), BASE, normalised))
    assert found == [pytest.approx(plain_bag(row, weighting, rarity, normalised), rel=1e-6) for row in rows]


@given(named=st.lists(st.integers(0, 9), max_size=30))
def test_each_index_is_counted(named):
    counts = np.full(10, 5, np.int64)
    counted_rows(np.array(named, np.int64), counts)
    assert counts.tolist() == [5 + named.count(index) for index in range(10)]


# Rows assembled from several parts.


def assembled(rows, numbers, knots, shares, lines, bag):
    """The rows, in arrays that are one entry longer than the longest result."""
    room = rows * (len(numbers) + 2 * len(knots) + len(lines)) + int(bag[0][-1] - bag[0][0]) + 1
    own_indices, own_values = np.full(room, 2**32 - 1, np.uint32), np.full(room, 77.0, np.float32)
    offsets = assembled_rows(rows, numbers, knots, shares, lines, *bag, own_indices, own_values)
    return offsets, own_indices[: offsets[-1]], own_values[: offsets[-1]]


@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.one_of(values, st.just(0.0)), min_size=3, max_size=3),
            st.lists(st.one_of(st.none(), st.integers(0, 8)), min_size=2, max_size=2),
            st.lists(st.one_of(codes, st.just(NO_CODE)), min_size=4, max_size=4),
            st.lists(st.tuples(far_indices, values), max_size=6, unique_by=lambda entry: entry[0]),
        ),
        max_size=5,
    ),
    features=st.integers(0, 3),
    curves=st.integers(0, 2),
    coded=st.integers(0, 4),
    bagged=st.booleans(),
)
@example(
    rows=[([0.0] * 3, [None, 3], [BASE, BASE + SIGN, BASE, NO_CODE], [(BASE, -1.0)])] * 2,
    features=3,
    curves=2,
    coded=4,
    bagged=True,
)
@example(
    rows=[
        ([1.0] * 3, [0, 8], [BASE + SIGN] * 4, [(BASE + 16, 0.5), (BASE, 2.0)]),
        ([0.0] * 3, [8, 0], [BASE] * 4, [(BASE, -1.0)]),
    ],
    features=1,
    curves=2,
    coded=1,
    bagged=True,
)
def test_assembled_rows_are_the_sums_of_their_parts(rows, features, curves, coded, bagged):
    """Zeros and values that cancel out have no entry. A zero inside a bag may keep its entry. Curve k has the features from
    100 + 10·k on; its numbers are eighths between the first two knots."""
    room = 2  # lines may be longer than the number of rows
    numbers = np.full((features, len(rows) + room), 77.0, np.float32)
    lines = np.full((coded, len(rows) + room), BASE, np.uint32)
    knots = np.full((curves, len(rows) + room), NO_CODE, np.uint32)
    shares = np.full((curves, len(rows) + room), 77.0, np.float32)
    for r, (its_numbers, eighths, its_codes, _) in enumerate(rows):
        for curve, eighth in enumerate(eighths[:curves]):
            if eighth is not None:
                knots[curve, r], shares[curve, r] = 100 + 10 * curve, eighth / 8
        numbers[:, r] = its_numbers[:features]
        lines[:, r] = its_codes[:coded]
    bag = columns_of([row[3] for row in rows])
    if not bagged:
        bag = (np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32))
    found = as_dicts(assembled(len(rows), numbers, knots, shares, lines, bag))
    for row, (its_numbers, eighths, its_codes, its_bag) in zip(found, rows, strict=True):
        parts = list(enumerate(its_numbers[:features]))
        for curve, eighth in enumerate(eighths[:curves]):
            if eighth is not None:
                parts += [(100 + 10 * curve, 1.0 - eighth / 8), (101 + 10 * curve, eighth / 8)]
        parts += [signed(code) for code in its_codes[:coded] if code != NO_CODE]
        parts += its_bag if bagged else []
        assert without_zeros(row) == without_zeros(summed(parts))
        zeros = set(row) - set(without_zeros(row))
        assert zeros <= {index for index, value in its_bag if value == 0.0}


@given(rows=entry_rows)
@example(rows=[[(BASE, 1.0), (BASE, -1.0)], [(BASE, 2.0), (BASE + 16, 0.0), (BASE, 1.0)], []])
def test_merged_bags_have_each_index_once_and_no_zeros(rows):
    found = as_dicts(merged_bags(*columns_of(rows)))
    assert found == [without_zeros(summed(row)) for row in rows]


@given(
    rows=st.lists(
        st.tuples(st.lists(st.tuples(indices, values), max_size=4), st.lists(st.tuples(indices, values), max_size=4)),
        max_size=5,
    )
)
@example(rows=[])
def test_side_by_side_keeps_all_entries_in_order(rows):
    found = split(side_by_side(*columns_of([one for one, _ in rows]), *columns_of([other for _, other in rows])))
    assert found == [one + other for one, other in rows]


@given(rows=st.integers(0, 4), features=st.integers(0, 4))
def test_rows_from_columns_are_the_transposed_columns(rows, features):
    numbers = np.arange(rows * features, dtype=np.float32).reshape(features, rows)
    out = np.full((rows, features), -1.0, np.float32)
    rows_from_columns(numbers, out)
    assert out.tolist() == [[numbers[f, r] for f in range(features)] for r in range(rows)]


# The entries of a row depend only on that row.


@given(rows=st.lists(st.lists(near_codes, max_size=10), min_size=1, max_size=6), data=st.data())
def test_the_entries_of_a_bag_and_their_order_depend_only_on_the_row(rows, data):
    rows = data.draw(st.permutations([*rows, [BASE + k for k in range(data.draw(st.integers(0, 40)))]]))
    together = split(bags(*flat(rows, np.uint32), LOG_COUNTED, NO_RARITY, BASE, True))
    alone = [split(bags(*flat([row], np.uint32), LOG_COUNTED, NO_RARITY, BASE, True))[0] for row in rows]
    assert together == alone


@given(
    rows=st.lists(
        st.tuples(
            st.lists(values, min_size=2, max_size=2),
            st.lists(st.one_of(near_codes, st.just(NO_CODE)), min_size=3, max_size=3),
            st.lists(st.tuples(indices, values), max_size=6, unique_by=lambda entry: entry[0]),
        ),
        min_size=1,
        max_size=5,
    ),
    long=st.integers(0, 40),
)
def test_assembled_and_merged_rows_do_not_depend_on_their_neighbours(rows, long):
    rows = [*rows, ([1.0, 0.0], [NO_CODE] * 3, [(BASE + k, 1.0) for k in range(long)])]

    def put_together(some):
        numbers = np.array([row[0] for row in some], np.float32).T.copy()
        lines = np.array([row[1] for row in some], np.uint32).T.copy()
        none = np.empty((0, len(some)))
        knots, shares = none.astype(np.uint32), none.astype(np.float32)
        return split(assembled(len(some), numbers, knots, shares, lines, columns_of([row[2] for row in some])))

    assert put_together(rows) == [put_together([row])[0] for row in rows]
    doubled = [[*row[2], *row[2][::-1]] for row in rows]
    alone = [split(merged_bags(*columns_of([row])))[0] for row in doubled]
    assert split(merged_bags(*columns_of(doubled))) == alone


# Single columns.


@given(
    numbers=st.lists(st.tuples(st.floats(width=32) | st.sampled_from([1e300, -1e300]), st.booleans()), max_size=8),
    nullable=st.booleans(),
)
@example(numbers=[(1.0, False), (-50.0, False), (70.0, True), (60.0, False)], nullable=True)
def test_standardized_numbers_are_clipped_and_null_is_zero(numbers, nullable):
    nulls = [null and nullable for _, null in numbers]
    out, clipped = np.full(len(numbers), 77.0, np.float32), np.zeros(len(numbers), np.uint8)
    given_nulls = np.array(nulls if nullable else [], np.bool_)
    with np.errstate(all="ignore"):
        first = standardize(np.array([number for number, _ in numbers]), given_nulls, 1.5, 2.0, 8.0, out, clipped)
        standardized = [0.0 if null else (number - 1.5) * 2.0 for (number, _), null in zip(numbers, nulls, strict=True)]
        wild = [
            abs(number) > 8.0 and math.isfinite(given) for number, (given, _) in zip(standardized, numbers, strict=True)
        ]
        expected = [math.copysign(8.0, x) if cut else x for x, cut in zip(standardized, wild, strict=True)]
        np.testing.assert_array_equal(out, np.array(expected, np.float32))
    assert clipped.tolist() == [*map(int, wild)]
    assert first == (wild.index(True) if any(wild) else len(numbers))


@given(places=st.lists(st.none() | st.integers(0, 3), max_size=6), wide=st.booleans())
def test_the_codes_of_places_have_one_for_null(places, wide):
    codes, out = np.array([5, 6, 7, 8], np.uint32), np.zeros(len(places), np.uint32)
    filled = np.array([99 if place is None else place for place in places], np.int64 if wide else np.int32)
    nulls = np.array([place is None for place in places] if None in places else [], np.bool_)
    assert codes_of_places(codes, filled, nulls, np.uint32(42), out)
    assert out.tolist() == [42 if place is None else codes[place] for place in places]


@pytest.mark.parametrize("place", [-1, 4])
def test_places_beyond_a_dictionary_are_found(place):
    places, out = np.array([0, place], np.int32), np.zeros(2, np.uint32)
    assert not codes_of_places(np.arange(4, dtype=np.uint32), places, np.array([], np.bool_), np.uint32(42), out)


def plain_shares(number, knots):
    """The knots next to a number, with shares that add up to 1."""
    number = min(max(number, knots[0]), knots[-1])
    low = max(k for k in range(len(knots) - 1) if k == 0 or knots[k] <= number)
    share = (number - knots[low]) / (knots[low + 1] - knots[low])
    return {low: 1.0 - share, low + 1: share}


@given(
    numbers=st.lists(st.tuples(st.one_of(st.floats(-20, 20), st.just(math.inf)), st.booleans()), max_size=8),
    knots=st.lists(st.integers(-10, 10), min_size=2, max_size=6, unique=True).map(sorted),
    nullable=st.booleans(),
)
@example(numbers=[(-10.0, False), (0.0, True), (3.0, False)], knots=[-10, 3], nullable=True)
def test_numbers_have_the_knots_next_to_them(numbers, knots, nullable):
    nulls = [null and nullable for _, null in numbers]
    features, shares = np.empty(len(numbers), np.uint32), np.empty(len(numbers), np.float32)
    given_nulls = np.array(nulls if nullable else [], np.bool_)
    between_knots(
        np.array([number for number, _ in numbers]),
        given_nulls,
        np.array(knots, float),
        np.uint32(50),
        features,
        shares,
    )
    for (number, _), null, feature, share in zip(numbers, nulls, features.tolist(), shares.tolist(), strict=True):
        if null:
            assert feature == NO_CODE
        else:
            found = {feature - 50: 1.0 - share, feature - 49: share}
            assert without_zeros(found) == pytest.approx(without_zeros(plain_shares(number, knots)), abs=1e-6)


@pytest.mark.parametrize("knots", [[-1.7e308, 1.7e308], [0.0, 5e-324]], ids=["far apart", "next to each other"])
def test_shares_between_any_knots_are_numbers(knots):
    shares = np.full(3, math.nan, np.float32)
    numbers = np.array([knots[0], 0.0, knots[1]])
    between_knots(numbers, np.empty(0, np.bool_), np.array(knots), np.uint32(0), np.empty(3, np.uint32), shares)
    assert all(0.0 <= share <= 1.0 for share in shares.tolist())


def test_a_number_that_is_nan_has_a_share_that_is_nan():
    shares = np.zeros(1, np.float32)
    between_knots(
        np.array([math.nan]), np.empty(0, np.bool_), np.array([0.0, 1.0]), np.uint32(0), np.empty(1, np.uint32), shares
    )
    assert math.isnan(shares[0])
