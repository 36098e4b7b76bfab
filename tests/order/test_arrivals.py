"""Shards that arrive during training at any time. The simulator of tests/faults compares whole histories with a plain model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.order.arrivals import UpdateSizes
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, Sizes

from .groups import (
    beginning,
    catalogs,
    groups_of,
    rows_among,
    rows_of,
    same_pieces,
    sizes_of_any_kind,
    windows,
)


@given(
    seed=st.integers(0, 1 << 40),
    groups=catalogs(),
    sizes=sizes_of_any_kind,
    moments=st.lists(st.integers(0, 30), min_size=1, max_size=6),
)
def test_after_any_arrivals_a_part_has_every_row_at_most_once(seed, groups, sizes, moments):
    """Several groups arrive in one window, at the end of an epoch, or much later."""
    schedule = Schedule(seed, groups, sizes)
    cursor, known = beginning(1), 1
    seen = {}
    for window in range(max(moments) + 1):
        for _ in range(moments.count(window)):
            if known < len(groups):
                known += 1
                cursor = schedule.arrive(cursor.at_row(window % 2), known, known)
        plan = schedule.window(cursor)
        seen.setdefault((cursor.epoch, cursor.part), []).extend(rows_of(plan.pieces))
        cursor = plan.next
    for plan in windows(schedule, cursor, cursor.epoch + 2):
        seen.setdefault((plan.start.epoch, plan.start.part), []).extend(rows_of(plan.pieces))
    *_, last = seen
    for rows in seen.values():
        assert len(set(rows)) == len(rows)
    assert set(seen[last]) == rows_among(groups, 0, known)


def test_windows_of_hundreds_of_blocks_have_every_row_once():
    """More blocks than are planned together, in layers that begin at any position."""
    groups = groups_of([900, 1, 700, 1200, 333], row_bytes=1.0)
    schedule = Schedule(5, groups, Sizes(window_bytes=600, block_bytes=1))
    cursor, seen = beginning(2), []
    for known in (3, 4, 5):
        plan = schedule.window(cursor)
        cursor = schedule.arrive(cursor.at_row(known), known, known)
        assert same_pieces(schedule.window(cursor), plan)
        seen += rows_of(plan.pieces)
        cursor = schedule.window(cursor).next
    seen += [row for plan in windows(schedule, cursor, 1) for row in rows_of(plan.pieces)]
    assert len(seen) == groups.rows.sum()
    assert set(seen) == rows_among(groups, 0, 5)


def test_a_new_group_is_mixed_with_the_remaining_groups(assert_uniform):
    """Its block is equally likely at every remaining position."""
    places = []
    for seed in range(400):
        schedule = Schedule(seed, groups_of([10] * 12), Sizes(window_bytes=100, block_bytes=100))
        cursor = beginning(11)
        for _ in range(4):
            cursor = schedule.window(cursor).next
        cursor = schedule.arrive(cursor, 12, 12)
        order = [int(plan.pieces.group[0]) for plan in windows(schedule, cursor, 1)]
        assert len(order) == 12 - 4
        places.append(order.index(11))
    assert_uniform(np.bincount(places, minlength=8))


@pytest.mark.parametrize("row", [1, 9])
def test_groups_that_arrive_within_a_window_join_after_it(row):
    schedule = Schedule(0, groups_of([10] * 8), Sizes(window_bytes=200, block_bytes=100))
    first = schedule.window(beginning(6))
    cursor = schedule.arrive(first.start.at_row(row), 7, 7)
    cursor = schedule.arrive(cursor, 8, 8)
    arrivals = {(arrival.epoch, arrival.position) for arrival in cursor.arrivals[1:]}
    assert arrivals == {(first.next.epoch, first.next.position)}
    later = [int(group) for plan in windows(schedule, schedule.window(cursor).next, 1) for group in plan.pieces.group]
    assert sorted([*first.pieces.group.tolist(), *later]) == list(range(8))


@pytest.mark.parametrize("cached", [True, False])
def test_a_group_that_arrives_is_decoded_whole_in_its_first_pass(cached):
    schedule = Schedule(0, groups_of([40] * 3, decoded=True, cached=cached), Sizes(window_bytes=800, block_bytes=100))
    cursor = beginning(2)
    while cursor.epoch < 1:
        cursor = schedule.window(cursor).next
    cursor = schedule.arrive(cursor, 3, 3, UpdateSizes(2, 0.0))
    later = replace(cursor, part=2), Cursor(cursor.arrivals, 1)
    whole = [schedule.whole(place)[:3].tolist() for place in (cursor, *later)]
    assert whole == [[not cached, not cached, True], [not cached] * 3, [not cached] * 3]
    assert schedule.part_length(cursor) == 1
    assert schedule.part_length(later[0]) == (4 if cached else 1)


PINNED_AFTER_AN_ARRIVAL = [[(2, 10), (3, 0), (0, 0)], [(0, 10), (4, 0)], [(3, 10), (4, 10)]]


def test_the_order_after_an_arrival_is_pinned():
    schedule = Schedule(11, groups_of([20] * 5), Sizes(window_bytes=300, block_bytes=100))
    cursor = schedule.window(beginning(3)).next
    cursor = schedule.arrive(cursor, 5, 5)
    order = [
        [(int(group), int(start)) for group, start in zip(plan.pieces.group, plan.pieces.start, strict=True)]
        for plan in windows(schedule, cursor, 1)
    ]
    assert order == PINNED_AFTER_AN_ARRIVAL


@given(seed=st.integers(0, 1 << 40), groups=catalogs(), sizes=sizes_of_any_kind, row=st.integers(0, 1))
def test_groups_that_arrive_one_by_one_in_a_window_give_the_same_plan_as_one_arrival(seed, groups, sizes, row):
    schedule = Schedule(seed, groups, sizes)
    cursor = schedule.window(beginning(1)).next.at_row(row)
    together = schedule.arrive(cursor, len(groups), len(groups))
    one_by_one = cursor
    for known in range(2, len(groups) + 1):
        one_by_one = schedule.arrive(one_by_one, known, known)
    if len(groups) > 1:
        epochs = cursor.epoch + 2
        both = zip(windows(schedule, together, epochs), windows(schedule, one_by_one, epochs), strict=True)
        assert all(same_pieces(one, other) for one, other in both)
