"""The cursor is all that a reader needs, and JSON holds all of it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streampgs.order.cursor import Arrival, Cursor

from .groups import through_json

counts = st.integers(0, 1 << 62)
cursors = st.builds(
    Cursor,
    arrivals=st.lists(st.builds(Arrival, counts, counts, counts, counts), max_size=3).map(tuple),
    epoch=counts,
    position=counts,
    slice=counts,
    row=counts,
)


@given(cursor=cursors)
def test_json_gives_the_same_cursor(cursor):
    assert through_json(cursor) == cursor


def test_the_form_in_json_is_pinned():
    """Checkpoints of older versions are read by newer ones."""
    cursor = Cursor((Arrival(0, 0, 2, 5), Arrival(1, 7, 3, 8)), epoch=1, position=9, slice=4, row=11)
    expected = {
        "arrivals": [
            {"epoch": 0, "position": 0, "shards": 2, "groups": 5},
            {"epoch": 1, "position": 7, "shards": 3, "groups": 8},
        ],
        "epoch": 1,
        "position": 9,
        "slice": 4,
        "row": 11,
    }
    assert json.loads(json.dumps(cursor.to_json())) == expected


@given(cursor=cursors, row=counts)
def test_at_row_changes_the_row_alone(cursor, row):
    moved = cursor.at_row(row)
    assert moved.row == row
    assert moved.at_row(cursor.row) == cursor
