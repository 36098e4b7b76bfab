"""Updates: passes over the rows of new shards, mixed with rows that are drawn from the old ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.order.arrivals import UpdateSizes
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Schedule, Sizes

from .groups import beginning, catalogs, groups_of, rows_among, rows_of, sizes_of_any_kind, windows


def after_an_epoch(schedule: Schedule, known: int) -> Cursor:
    *_, last = windows(schedule, beginning(known), 1)
    return last.next


def passes_of(schedule, cursor):
    """The rows of each pass of the update that the cursor is at the beginning of."""
    found = {}
    for plan in windows(schedule, cursor, cursor.epoch + 1):
        found.setdefault(schedule.update_pass(plan.start).number, []).extend(rows_of(plan.pieces))
    return found


@given(
    seed=st.integers(0, 1 << 40),
    groups=catalogs(),
    sizes=sizes_of_any_kind,
    updates=st.builds(UpdateSizes, st.integers(1, 4), st.sampled_from([0.0, 0.5, 3.0, 100.0])),
)
def test_each_pass_has_every_new_row_and_no_old_row_twice(seed, groups, sizes, updates):
    groups.rows[-1] = 7
    schedule = Schedule(seed, groups, sizes)
    old = max(1, len(groups) - 2)
    if old == len(groups):
        return
    cursor = schedule.arrive(after_an_epoch(schedule, old), len(groups), len(groups), updates)
    new = rows_among(groups, old, len(groups))
    found = passes_of(schedule, cursor)
    assert sorted(found) == list(range(updates.passes + 1))
    for rows in found.values():
        assert len(set(rows)) == len(rows)
        assert new <= set(rows)
        assert set(rows) - new <= rows_among(groups, 0, old)


@pytest.mark.parametrize(("decoded", "cached"), [(False, True), (True, True), (True, False)])
def test_the_wanted_share_of_old_rows_is_drawn(decoded, cached):
    """With 900 new rows, 2 passes and a replay of 2, each pass has 900 old rows, and a quarter of them in the last one."""
    groups = groups_of([300] * 43, decoded=decoded, cached=cached)
    schedule = Schedule(3, groups, Sizes(window_bytes=9000, block_bytes=500))
    cursor = schedule.arrive(after_an_epoch(schedule, 40), 43, 43, UpdateSizes(2, 2.0))
    shares = {}
    for plan in windows(schedule, cursor, 1):
        shares[plan.start.part] = schedule.update_pass(plan.start).old_share
    found = passes_of(schedule, cursor)
    drawn = [sum(group < 40 for group, _ in found[number]) for number in range(3)]
    assert drawn == ([900, 900, 300] if decoded and not cached else [900, 900, 250])
    assert list(shares.values()) == [1.0, 1.0, 0.75 if decoded and not cached else 0.9]
    assert [shares[part] * count for part, count in zip(shares, drawn, strict=True)] == [900, 900, 225]


def test_the_passes_draw_different_old_rows():
    groups = groups_of([1000, 100])
    schedule = Schedule(3, groups, Sizes(window_bytes=2000, block_bytes=100))
    cursor = schedule.arrive(after_an_epoch(schedule, 1), 2, 2, UpdateSizes(3, 3.0))
    drawn = [{row for row in rows if row[0] == 0} for rows in passes_of(schedule, cursor).values()]
    assert [len(rows) for rows in drawn] == [100, 100, 100, 30]
    assert len(set.union(*drawn)) == 330


def test_old_blocks_are_drawn_uniformly_and_mixed_with_new_ones(assert_uniform):
    drawn, places = Counter(), []
    for seed in range(400):
        schedule = Schedule(seed, groups_of([10] * 24), Sizes(window_bytes=100, block_bytes=100))
        cursor = schedule.arrive(after_an_epoch(schedule, 20), 24, 24, UpdateSizes(1, 1.0))
        order = [group for group, row in passes_of(schedule, cursor)[0] if row == 0]
        assert len(order) == 8
        assert order[0] >= 20, "models are judged by the new rows that come first"
        drawn.update(group for group in order if group < 20)
        places += [place for place, group in enumerate(order) if place and group < 20]
    assert_uniform([drawn[group] for group in range(20)])
    assert_uniform(np.bincount(places, minlength=8)[1:])


def test_only_the_first_update_holds_rows_out():
    schedule = Schedule(0, groups_of([30] * 5), Sizes(window_bytes=300, block_bytes=100))
    cursor = after_an_epoch(schedule, 2)
    for known, held_out in ((3, True), (4, False), (5, False)):
        cursor = schedule.arrive(cursor, known, known)
        update = schedule.update_pass(cursor)
        assert (update.holds_out, update.first_new_row) == (held_out, 30 * known - 30)
        while cursor.epoch < (2 if known == 3 else 3):  # an epoch between the first two
            cursor = schedule.window(cursor).next
    assert schedule.update_pass(cursor) is None


def test_the_arrivals_in_a_cursor_stay_few():
    """With a sliding window: each night the oldest group goes and a new one comes; now and then there is an epoch."""
    schedule = Schedule(0, groups_of([3] * 302), Sizes(window_bytes=300, block_bytes=100))
    cursor = after_an_epoch(schedule, 2)
    for night in range(300):
        cursor = schedule.arrive(cursor, night + 3, night + 3, UpdateSizes(2, 1.0), ((night, night + 1),))
        assert len(cursor.arrivals) <= 3
        assert schedule.update_pass(cursor).first_new_row == 3 * (night + 2)
        epoch = cursor.epoch + 1 + (night % 50 == 7)
        while cursor.epoch < epoch:
            assert set(schedule.window(cursor).pieces.group) <= {night + 1, night + 2}
            cursor = schedule.window(cursor).next
    assert len(str(cursor)) < 1000
