"""The speed that the estimate of the time left is made from."""

from __future__ import annotations

import pytest

from streampgs.run.meter import Pace


def paced(calls: list[tuple[float, int]]) -> Pace:
    pace = Pace()
    for now, rows in calls:
        pace.add(now, rows)
    return pace


def test_the_call_that_compiles_does_not_count() -> None:
    calls = [(12.0, 8_000), *((12.0 + k / 10, 8_000 + 1_000 * k) for k in range(1, 100))]
    assert paced(calls).rows_per_second() == pytest.approx(10_000.0)


def test_only_the_last_half_minute_counts() -> None:
    slow = [(float(second), second) for second in range(100)]
    fast = [(100.0 + second, 100 + 1_000 * second) for second in range(40)]
    assert paced(slow + fast).rows_per_second() == pytest.approx(1_000.0)


def test_waiting_for_new_shards_does_not_count() -> None:
    pace = paced([(0.0, 0), (4.0, 4_000)])
    pace.restart()
    assert pace.rows_per_second() is None
    for second in range(4):
        pace.add(10_000.0 + second, 4_000 + 500 * second)
    assert pace.rows_per_second() == pytest.approx(500.0)
