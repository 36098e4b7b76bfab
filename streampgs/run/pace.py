"""The present speed of training, for the estimate of the time that is left."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 30.0
_SAMPLE_SECONDS = 0.25
_FEWEST_SECONDS = 3.0


class Pace:
    """Rows per second over the last half minute. It is unknown for the first seconds: the first call of a loop may compile
    it, and the first window waits for a decoder."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        """Seconds and rows, oldest first."""

    def add(self, now: float, rows: int) -> None:
        """`rows` are trained on at the time `now`. The first sample comes after the first call of the engine."""
        if self._samples and now - self._samples[-1][0] < _SAMPLE_SECONDS:
            return
        self._samples.append((now, rows))
        while now - self._samples[0][0] > _WINDOW_SECONDS and len(self._samples) > 2:
            self._samples.popleft()

    def restart(self) -> None:
        """The time until the next sample does not count: training waited for new shards."""
        self._samples.clear()

    def rows_per_second(self) -> float | None:
        if not self._samples:
            return None
        (began, before), (now, rows) = self._samples[0], self._samples[-1]
        return (rows - before) / (now - began) if now - began >= _FEWEST_SECONDS else None
