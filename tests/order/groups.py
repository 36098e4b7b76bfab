"""Small catalogs of groups, and helpers that iterate over their windows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np
from hypothesis import strategies as st

from streampgs.base.checks import decode, encode
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import GroupSizes, Pieces, Schedule, Sizes, WindowPlan

Row = tuple[int, int]
"""(group, row in the group)"""


def groups_of(rows, row_bytes=10.0, decoded=False, cached=True) -> GroupSizes:
    """Sizes and flags are one value for each group, or one value for all groups."""

    def each(values, kind):
        return np.broadcast_to(np.asarray(values, kind), len(rows)).copy()

    return GroupSizes(np.array(rows, np.int64), each(row_bytes, float), each(decoded, bool), each(cached, bool))


def beginning(groups: int) -> Cursor:
    return Cursor((Arrival(0, 0, groups, groups),))


def rows_of(pieces: Pieces) -> list[Row]:
    """Every row of the window, in the order of its pieces. Repeated rows are kept."""
    found = []
    for group, start, stop in zip(pieces.group, pieces.start, pieces.stop, strict=True):
        found += [(int(group), row) for row in range(start, stop)]
    return found


def rows_among(groups: GroupSizes, first: int, stop: int) -> set[Row]:
    return {(group, row) for group in range(first, stop) for row in range(groups.rows[group])}


def same_pieces(one: WindowPlan, other: WindowPlan) -> bool:
    """The same rows, to be visited in the same order."""
    arrays = [(getattr(one.pieces, name), getattr(other.pieces, name)) for name in ("group", "start", "stop")]
    return one.shuffle_key == other.shuffle_key and all(np.array_equal(a, b) for a, b in arrays)


def windows(schedule: Schedule, cursor: Cursor, epochs: int) -> Iterator[WindowPlan]:
    """All windows until the given number of epochs has ended."""
    while cursor.epoch < epochs:
        plan = schedule.window(cursor)
        assert (*plan.next.place, plan.next.slice) > (*cursor.place, cursor.slice)
        yield plan
        cursor = plan.next


def through_json(cursor: Cursor) -> Cursor:
    return decode(Cursor, json.loads(json.dumps(encode(cursor))))


def window_bytes(groups: GroupSizes, plan: WindowPlan) -> float:
    lengths = plan.pieces.stop - plan.pieces.start
    return float((lengths * groups.row_bytes[plan.pieces.group]).sum())


@st.composite
def catalogs(draw: Callable, most_groups: int = 9) -> GroupSizes:
    """A few groups with random sizes and flags. At least the first group has rows."""
    count = draw(st.integers(1, most_groups))
    rows = [draw(st.integers(1, 40)), *draw(st.lists(st.integers(0, 40), min_size=count - 1, max_size=count - 1))]
    row_bytes = draw(st.lists(st.sampled_from([0.5, 4.0, 10.0, 33.3]), min_size=count, max_size=count))
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    return groups_of(rows, row_bytes, draw(flags), draw(flags))


sizes_of_any_kind = st.builds(
    Sizes, window_bytes=st.sampled_from([1, 60, 200, 500, 3000]), block_bytes=st.sampled_from([1, 20, 70, 200])
)
