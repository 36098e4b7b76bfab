"""Shards that arrive during training at any time, compared with a model that knows only sets of rows."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
    """Train on windows or parts of them, restart from JSON, and add and remove groups. The model counts how often each
    row must still be visited in the current part of the epoch."""

    @initialize(seed=st.integers(0, 1 << 40), groups=catalogs(12), sizes=sizes_of_any_kind, known=st.integers(1, 4))
    def begin(self, seed, groups, sizes, known):
        self.seed, self.groups, self.sizes = seed, groups, sizes
        self.known = min(known, len(groups))
        self.cursor = beginning(self.known)
        self.gone = set()
        self.due = self.rows(0, self.known)
        self.before = 0
        self.waiting = []
        self.visits = Counter()
        self.even = True

    def rows(self, first, stop, copies=1):
        found = rows_among(self.groups, first, stop)
        return Counter({row: copies for row in found if row[0] not in self.gone})

    def plan(self):
        # The catalog has only the groups that have arrived: later ones must not affect the plan.
        known = self.groups
        arrived = groups_of(
            *(values[: self.known] for values in (known.rows, known.row_bytes, known.decoded, known.cached))
        )
        return Schedule(self.seed, arrived, self.sizes).window(self.cursor)

    @rule()
    def use_up_the_window(self):
        epoch, part = self.cursor.epoch, self.cursor.part
        plan = self.plan()
        rows = Counter(rows_of(plan.pieces))
        assert rows <= self.due, "rows that are not due, or are no longer due"
        self.due -= rows
        self.visits += rows
        self.cursor = plan.next
        if (plan.next.epoch, plan.next.part) != (epoch, part):
            assert not self.due, "rows that were not visited"
        if plan.next.epoch > epoch:
            assert (plan.next.epoch, plan.next.part) == (epoch + 1, 0)
            if self.even:
                # The rows of late groups have caught up.
                assert self.visits == Counter(dict.fromkeys(self.rows(0, self.joined), epoch + 1))
            self.before = self.joined
            self.due = self.rows(0, self.joined)
            self.join()
        elif plan.next.part > part:
            assert plan.next.part == part + 1
            assert self.waiting, "a part has no rows"
            self.join()
        elif plan.next.slice == 0:
            self.join()

    @property
    def joined(self):
        """The number of groups that have joined the training."""
        return self.waiting[0][0] if self.waiting else self.known

    def join(self):
        for first, stop, catching_up in self.waiting:
            self.due += self.rows(first, stop, self.cursor.epoch + 1 if catching_up else 1)
        self.waiting = []

    @rule(share=st.floats(0.1, 0.9))
    def stop_within_the_window(self, share):
        rows = self.plan().pieces.rows()
        self.cursor = self.cursor.at_row(max(self.cursor.row, int(share * rows)))

    @rule()
    def restart(self):
        self.cursor = through_json(self.cursor)

    @rule(count=st.integers(0, 3), catching_up=st.booleans(), is_last=st.booleans(), data=st.data())
    def arrive(self, count, catching_up, is_last, data):
        """`is_last`: no epoch follows those that have begun. Groups may be removed only between epochs."""
        old, before = self.cursor, self.plan()
        in_window = old.row > 0 or old.slice > 0
        begun = old.epoch + (not old.begins_epoch)
        going = self.some_that_go(data, self.known) if old.begins_epoch and old.epoch > 0 else set()
        self.gone |= going
        self.due = Counter({row: copies for row, copies in self.due.items() if row[0] not in going})
        self.visits = Counter({row: times for row, times in self.visits.items() if row[0] not in going})
        self.waiting.append((self.known, min(self.known + count, len(self.groups)), catching_up))
        self.known = self.waiting[-1][1]
        self.even = self.even and catching_up
        schedule = Schedule(self.seed, self.groups, self.sizes)
        self.cursor = schedule.arrive(
            old, self.known, self.known, begun if is_last else None, catching_up, spans_of(going)
        )
        assert (self.cursor.arrivals[-1].shards, self.cursor.arrivals[-1].groups) == (self.known, self.known)
        # The cursor keeps the arrivals of the current part, and at most three entries for all earlier arrivals.
        own = [a for a in self.cursor.arrivals if (a.epoch, a.part) >= (self.cursor.epoch, self.cursor.part)]
        assert len(self.cursor.arrivals) <= len(own) + 3
        if in_window:
            assert replace(self.cursor, arrivals=()) == replace(old, arrivals=())
            after = self.plan()
            assert same_pieces(after, before), "the current window has changed"
            if self.cursor.arrivals[-1].since:  # it begins a part, which all waiting groups join
                self.waiting = [(self.joined, self.known, any(late for _, _, late in self.waiting))]
        elif self.cursor.epoch < old.epoch:
            assert is_last
            assert any(self.groups.rows[group] for group in range(self.before, self.known) if group not in self.gone)
            assert old.begins_epoch
            caught_up = any(late for _, _, late in self.waiting) or any(
                a.copies > 1 for a in old.arrivals if a.place == old.place
            )
            self.due, self.waiting = Counter(), [(self.before, self.known, caught_up)]
            self.join()
        else:
            if going and self.known > self.waiting[-1][0]:
                self.before = self.known
            self.join()

    def some_that_go(self, data, known):
        """Groups to remove. At least one group with rows is kept."""
        live = [group for group in range(known) if group not in self.gone]
        kept = data.draw(st.sampled_from([group for group in live if self.groups.rows[group]]))
        return data.draw(st.sets(st.sampled_from(live), max_size=2)) - {kept}

    @precondition(lambda self: self.known > 1)
    @rule(count=st.integers(0, 2), data=st.data())
    def begin_again(self, count, data):
        going = self.some_that_go(data, self.known)
        known = min(self.known + count, len(self.groups))
        self.gone |= going
        if self.cursor.begins_epoch:  # no row of it was used: it continues with the remaining and the new groups
            self.due = Counter({row: copies for row, copies in self.due.items() if row[0] not in going})
            self.due += self.rows(self.known, known)
            if going and known > self.known:  # the new groups may hold the rows of removed ones
                self.before = known
        else:
            self.due = self.rows(0, known)
            self.before = 0
        schedule = Schedule(self.seed, self.groups, self.sizes)
        self.cursor = schedule.begin_again(self.cursor, known, known, spans_of(going))
        self.known, self.waiting, self.even = known, [], False

    @invariant()
    def the_cursor_points_at_a_row(self):
        if hasattr(self, "cursor"):
            plan = self.plan()
            assert self.cursor.row == 0 or self.cursor.row < plan.pieces.rows()


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
def test_after_any_arrivals_an_epoch_has_every_row_once(seed, groups, sizes, moments):
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
        seen.setdefault(cursor.epoch, []).extend(rows_of(plan.pieces))
        cursor = plan.next
    for plan in windows(schedule, cursor, cursor.epoch + 2):
        seen.setdefault(plan.start.epoch, []).extend(rows_of(plan.pieces))
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


def test_a_group_that_arrives_in_the_last_window_waits_for_the_next_epoch():
    schedule = Schedule(0, groups_of([10] * 5), Sizes(window_bytes=200, block_bytes=100))
    *_, last = windows(schedule, beginning(4), 1)
    cursor = schedule.arrive(last.start.at_row(3), 5, 5)
    assert (cursor.arrivals[-1].epoch, cursor.arrivals[-1].position) == (1, 0)
    assert schedule.window(cursor).next.epoch == 1
    following = [
        int(group) for plan in windows(schedule, schedule.window(cursor).next, 2) for group in plan.pieces.group
    ]
    assert sorted(following) == list(range(5))


@pytest.mark.parametrize("cached", [True, False])
def test_a_group_that_arrives_is_decoded_whole_in_its_first_epoch(cached):
    schedule = Schedule(0, groups_of([40] * 3, decoded=True, cached=cached), Sizes(window_bytes=800, block_bytes=100))
    cursor = beginning(2)
    while cursor.epoch < 1:
        cursor = schedule.window(cursor).next
    cursor = schedule.arrive(cursor, 3, 3)
    whole = {epoch: [schedule.is_whole(epoch, group, cursor.arrivals) for group in range(3)] for epoch in (1, 2)}
    assert whole[1] == [not cached, not cached, True]
    assert whole[2] == [not cached] * 3
    assert schedule.part_length(cursor) == (4 + 4 + 1 if cached else 3)


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


def test_the_time_of_an_arrival_has_no_effect_two_epochs_later():
    schedule = Schedule(0, groups_of([30] * 6, decoded=True), Sizes(window_bytes=300, block_bytes=100))
    first = schedule.window(beginning(4))
    late = schedule.arrive(schedule.arrive(first.start.at_row(1), 5, 5), 6, 6)
    orders = [
        [plan.pieces.start.tolist() for plan in windows(schedule, cursor, 4) if plan.start.epoch >= 2]
        for cursor in (beginning(6), late)
    ]
    assert orders[0] == orders[1]
