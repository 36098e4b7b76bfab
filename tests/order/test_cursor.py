"""A cursor survives JSON, and its stored form is pinned."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from streampgs.base.checks import encode
from streampgs.options.commands import MOST_PASSES, MOST_REPLAY
from streampgs.order.cursor import Arrival, Cursor

from .groups import through_json

counts = st.integers(0, (1 << 62) - 1)
passes, replay = st.integers(0, MOST_PASSES), st.floats(0.0, MOST_REPLAY)
spans = st.lists(st.tuples(counts, counts), max_size=2).map(tuple)
cursors = st.builds(
    Cursor,
    arrivals=st.lists(
        st.builds(Arrival, counts, counts, counts, counts, counts, passes, replay, st.booleans(), counts, spans),
        max_size=3,
    ).map(tuple),
    epoch=counts,
    position=counts,
    slice=counts,
    row=counts,
    part=counts,
)


@given(cursor=cursors)
def test_a_cursor_survives_json(cursor):
    assert through_json(cursor) == cursor


def test_the_stored_form_is_pinned():
    """The names are part of the format."""
    late = Arrival(1, 7, 3, 8, part=2, passes=2, replay=1.5, holds_out=True, since=5, retired=((0, 2), (3, 4)), until=6)
    cursor = Cursor((Arrival(0, 0, 2, 5), late), epoch=1, position=9, slice=4, row=11, part=2)
    plain = {"part": 0, "passes": 0, "replay": 0.0, "holds_out": False, "since": 0, "retired": [], "until": 0}
    expected = {
        "arrivals": [
            {"epoch": 0, "position": 0, "shards": 2, "groups": 5, **plain},
            {"epoch": 1, "position": 7, "shards": 3, "groups": 8, "part": 2, "passes": 2, "replay": 1.5,
             "holds_out": True, "since": 5, "retired": [[0, 2], [3, 4]], "until": 6},
        ],
        "epoch": 1,
        "position": 9,
        "slice": 4,
        "row": 11,
        "part": 2,
    }  # fmt: skip
    assert json.loads(json.dumps(encode(cursor))) == expected


@given(cursor=cursors, row=counts)
def test_at_row_changes_only_the_row(cursor, row):
    moved = cursor.at_row(row)
    assert moved.row == row
    assert moved.at_row(cursor.row) == cursor
