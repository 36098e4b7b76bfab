"""Shards that arrive during training at any time, compared with a model that knows only sets of rows."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

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
    through_json,
    windows,
)

HISTORIES = int(os.environ.get("STREAMPGS_HISTORIES", "1"))
"""The number of random histories, in hundreds. Use 100 or more before a release."""


class Training(RuleBasedStateMachine):
    """Train on windows or parts of them, restart from JSON, and add and remove groups. The model has the rows that are due
    in the present part, and in an update the old rows that were drawn."""

    @initialize(seed=st.integers(0, 1 << 40), groups=catalogs(12), sizes=sizes_of_any_kind, known=st.integers(1, 4))
    def begin(self, seed, groups, sizes, known):
        self.seed, self.groups, self.sizes = seed, groups, sizes
        self.known = self.joined = min(known, len(groups))
        self.cursor = beginning(self.known)
        self.gone, self.going = set(), set()
        self.due, self.drawn = self.rows(0, self.known), None
        self.updates = 0
        self.present, self.passes_left, self.begins = (0, 0), 0, False

    def rows(self, first, stop):
        return {row for row in rows_among(self.groups, first, stop) if row[0] not in self.gone}

    @property
    def schedule(self):
        # The catalog has only the groups that have arrived: later ones must not affect the plan.
        known = self.groups
        arrived = groups_of(
            *(values[: self.known] for values in (known.rows, known.row_bytes, known.decoded, known.cached))
        )
        return Schedule(self.seed, arrived, self.sizes)

    @rule()
    def use_up_the_window(self):
        self.use_a_row()
        plan = self.schedule.window(self.cursor)
        rows = rows_of(plan.pieces)
        assert len(set(rows)) == len(rows)
        if self.drawn is None:
            assert self.due.issuperset(rows), "rows that are not due, or not any more"
        else:
            old = set(rows) - self.due
            assert not old & self.drawn, "an old row comes twice in a pass"
            assert all(group < self.since and group not in self.gone for group, _ in old)
            self.drawn |= old
        self.due -= set(rows)
        self.cursor = plan.next
        if self.cursor.is_between_blocks:
            self.reach()
        else:
            assert int(plan.pieces.group[0]) not in self.going, "slices of a group that has left"

    def reach(self):
        """A place between two blocks: groups leave, parts end and begin, and groups join."""
        self.gone |= self.going
        self.going = set()
        self.due = {row for row in self.due if row[0] not in self.gone}
        present = (self.cursor.epoch, self.cursor.part)
        if present != self.present:
            assert not self.due, "rows that were not visited"
            if self.drawn is not None and not self.begins:
                self.passes_left -= 1
                self.check_drawn()
            self.present, self.drawn = present, None
            if self.cursor.part == 0:
                assert not self.rows(self.joined, self.known), "new rows are left waiting"
                self.joined = self.known
                self.due = self.rows(0, self.joined)
            else:
                self.due, self.drawn = set(), set()
                self.begins = True
        elif self.cursor.part == 0:
            self.due |= self.rows(self.joined, self.known)
            self.joined = self.known

    def use_a_row(self):
        """Until a row of an update is used, further groups may join it, or its groups leave."""
        if self.begins and self.cursor.part:
            self.begin_pass()
        self.begins = False

    def begin_pass(self):
        update = self.schedule.update_pass(self.cursor)
        if update.number == 0:
            assert self.passes_left <= 0 or not self.rows(self.since, self.joined)
            self.since, self.joined = self.joined, self.known
            self.passes_left = update.passes + update.holds_out
            assert update.holds_out == (self.updates == 0), "only the first update holds rows out"
            self.updates += 1
        self.due, self.drawn = self.rows(self.since, self.joined), set()
        starts = np.concatenate([[0], np.cumsum(self.groups.rows)])
        assert (update.first_new_row, update.stop_row) == (starts[self.since], starts[self.joined])
        assert update.rows == len(self.due) > 0
        self.update = update

    def check_drawn(self):
        """All old rows come if they are not more than wanted, and at most a block more otherwise."""
        if not self.all_stay:
            return
        wanted = (
            self.update.rows * REPLAY / self.update.passes * (0.25 if self.update.number == self.update.passes else 1)
        )
        old = self.rows(0, self.since)
        assert self.drawn == old or 0.0 < self.update.old_share <= 1.0
        if len(old) <= wanted:
            assert self.drawn == old

    @property
    def all_stay(self):
        return not self.gone

    @rule(share=st.floats(0.1, 0.9))
    def stop_within_the_window(self, share):
        self.use_a_row()
        rows = self.schedule.window(self.cursor).pieces.rows()
        self.cursor = self.cursor.at_row(max(self.cursor.row, int(share * rows)))

    @rule()
    def restart(self):
        self.cursor = through_json(self.cursor)

    @rule(count=st.integers(0, 3), leaves=st.booleans(), data=st.data())
    def arrive(self, count, leaves, data):
        old, before = self.cursor, self.schedule.window(self.cursor)
        going = self.some_that_go(data) if leaves else set()
        self.going |= going
        self.known = min(self.known + count, len(self.groups))
        self.cursor = self.schedule.arrive(old, self.known, self.known, UpdateSizes(PASSES, REPLAY), spans_of(going))
        assert (self.cursor.arrivals[-1].shards, self.cursor.arrivals[-1].groups) == (self.known, self.known)
        places = [arrival.place for arrival in self.cursor.arrivals]
        assert places == sorted(places)
        # The cursor keeps the arrivals of the current part, those that wait, and at most two for all earlier ones.
        own = [place for place in places if place[:2] >= (self.cursor.epoch, self.cursor.part)]
        assert len(places) <= len(own) + 3
        if old.row > 0:
            assert replace(self.cursor, arrivals=()) == replace(old, arrivals=())
            assert same_pieces(self.schedule.window(self.cursor), before), "the current window has changed"
        elif self.cursor.is_between_blocks:
            if self.cursor.epoch < old.epoch:
                assert old.begins_epoch
                self.due = set()  # of the epoch that will begin after the update
            self.reach()

    def some_that_go(self, data):
        """Groups to remove. At least one group with rows is kept."""
        live = [group for group in range(self.joined) if group not in self.gone | self.going]
        kept = data.draw(st.sampled_from([group for group in live if self.groups.rows[group]]))
        return data.draw(st.sets(st.sampled_from(live), max_size=2)) - {kept}

    @invariant()
    def the_cursor_points_at_a_row(self):
        if hasattr(self, "cursor"):
            assert self.cursor.row == 0 or self.cursor.row < self.schedule.window(self.cursor).pieces.rows()


PASSES, REPLAY = 2, 1.5


def spans_of(groups):
    return tuple((group, group + 1) for group in sorted(groups))


TestTraining = Training.TestCase
TestTraining.settings = settings(max_examples=100 * HISTORIES, stateful_step_count=40)


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


def test_a_group_that_arrives_in_the_last_window_is_visited_in_an_update():
    schedule = Schedule(0, groups_of([10] * 5), Sizes(window_bytes=200, block_bytes=100))
    *_, last = windows(schedule, beginning(4), 1)
    cursor = schedule.arrive(last.start.at_row(3), 5, 5, UpdateSizes(1, 0.0))
    assert cursor.arrivals[-1].place == (0, 1, 0)
    following = list(windows(schedule, schedule.window(cursor).next, 2))
    groups = [(plan.start.epoch, plan.start.part, int(group)) for plan in following for group in plan.pieces.group]
    assert groups[:2] == [(0, 1, 4), (0, 2, 4)]  # the pass, and the one for rows held out
    assert sorted(groups[2:]) == [(1, 0, group) for group in range(5)]


@pytest.mark.parametrize("cached", [True, False])
def test_a_group_that_arrives_is_decoded_whole_in_its_first_pass(cached):
    schedule = Schedule(0, groups_of([40] * 3, decoded=True, cached=cached), Sizes(window_bytes=800, block_bytes=100))
    cursor = beginning(2)
    while cursor.epoch < 1:
        cursor = schedule.window(cursor).next
    cursor = schedule.arrive(cursor, 3, 3, UpdateSizes(2, 0.0))
    later = replace(cursor, part=2), Cursor(cursor.arrivals, 1)
    whole = [[schedule.is_whole(place, group) for group in range(3)] for place in (cursor, *later)]
    assert whole == [[not cached, not cached, True], [not cached] * 3, [not cached] * 3]
    assert schedule.part_length(cursor) == 1
    assert schedule.part_length(later[0]) == (4 if cached else 1)


def test_independent_draws_are_from_all_groups_after_an_arrival(assert_uniform):
    groups = groups_of([6, 6, 8])
    counts = np.zeros(20)
    for seed in range(300):
        schedule = Schedule(seed, groups, Sizes(window_bytes=40, block_bytes=40), sampling="independent")
        first = schedule.window(beginning(2))
        cursor = schedule.arrive(first.start.at_row(1), 3, 3)
        assert same_pieces(schedule.window(cursor), first)
        drawn = [row for plan in windows(schedule, first.next, 1) for row in rows_of(plan.pieces)]
        assert {group for group, _ in drawn} <= {0, 1}
        drawn = [row for plan in windows(schedule, schedule.window(cursor).next, 1) for row in rows_of(plan.pieces)]
        assert len(drawn) == 20 - 4
        for group, row in drawn:
            counts[[0, 6, 12][group] + row] += 1
    assert_uniform(counts)


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
