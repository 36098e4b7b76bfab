"""What the command line prints, in forms that people read at a glance."""

from __future__ import annotations

from streampgs.errors import counted
from streampgs.progress import status_text
from streampgs.run.report import Status


def test_counted_things_agree_with_their_number() -> None:
    assert counted(1, "shard") == "1 shard"
    assert counted(0, "shard") == "0 shards"
    assert counted(2000, "new class", "new classes") == "2,000 new classes"


def test_the_time_left_is_visible_in_80_columns() -> None:
    status = Status(
        t=10**8, rows=10**8, epoch=999, epoch_fraction=0.5, rows_per_second=1.6e6, loss=0.3, accuracy=0.9, gap=1.2e-5,
        lanes=64, stream_rows=None, update=None, fraction=0.5, seconds=9000.0, seconds_left=36000.0, rss_bytes=10**9,
    )  # fmt: skip
    bar = 17
    assert "10:00:00 left" in status_text(status)[: 80 - bar]
    assert "64 models" in status_text(status)
