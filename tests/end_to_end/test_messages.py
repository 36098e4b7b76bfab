"""What the command line prints, in forms that people read at a glance."""

from __future__ import annotations

from streampgs.base.errors import counted
from streampgs.cli.history_text import history_text
from streampgs.python.progress import status_text
from streampgs.run.report import Status
from streampgs.run.words import clipped_notes


def test_counted_things_agree_with_their_number() -> None:
    assert counted(1, "shard") == "1 shard"
    assert counted(0, "shard") == "0 shards"
    assert counted(2000, "new class", "new classes") == "2,000 new classes"


def test_the_time_left_is_visible_in_80_columns() -> None:
    status = Status(
        t=10**8, rows=10**8, epoch=999, epoch_fraction=0.5, rows_per_second=1.6e6, loss=0.3, accuracy=0.9, gap=1.2e-5,
        lanes=64, update=None, fraction=0.5, seconds=9000.0, seconds_left=36000.0, rss_bytes=10**9,
    )  # fmt: skip
    bar = 17
    assert "10:00:00 left" in status_text(status)[: 80 - bar]
    assert "64 models" in status_text(status)


def test_clipped_values_are_one_note_with_advice() -> None:
    counts = {f"c{number}": 10 - number for number in range(8)}
    (note,) = clipped_notes(counts, {"c0": ("row 3", 1e6)})
    assert "10 of 'c0' (such as 1e+06: row 3), 9 of 'c1'" in note
    assert "and some of 3 more columns" in note
    assert "train on logarithms of these columns" in note
    assert clipped_notes({}, {}) == []


def test_long_events_of_the_history_continue_on_the_next_line() -> None:
    names = [f"name-of-a-shard-{number}" for number in range(3)]
    event = {"event": "evaluated", "time": "2026-11-20T02:45:51Z", "rows": 10**9, "t": 10**9, "evaluated_rows": 3,
        "data": names * 5, "metrics": {"accuracy": 0.5}}  # fmt: skip
    lines = history_text([event, {"event": "x", "time": "", "rows": 0, "t": 0}]).splitlines()
    assert max(map(len, lines)) <= 132
    assert "".join("".join(line[46:] for line in lines[1:-1]).split()).endswith("accuracy0.5000")
    assert all(line.startswith(" " * 40) for line in lines[2:-1])
