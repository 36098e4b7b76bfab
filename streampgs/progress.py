"""How far a session of training is: in words, and as a line that changes in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streampgs.run.report import Status

_PLAIN_SECONDS = 5.0


def count(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10 * size or (number >= size and unit != "k"):
            return f"{number / size:.1f}{unit}"
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def status_text(status: Status) -> str:
    epoch = f"epoch {status.epoch + status.epoch_fraction:.2f}"
    parts = [
        epoch if status.stream_rows is None else f"{count(status.stream_rows)} of the stream",
        *([] if status.seconds_left is None else [f"{duration(status.seconds_left)} left"]),  # visible in 80 columns
        f"{count(status.rows)} rows",
        f"{count(status.rows_per_second)} rows/s",
    ]
    if status.loss is not None:
        parts.append(f"loss {status.loss:.4f}")
    if status.accuracy is not None:
        parts.append(f"accuracy {status.accuracy:.4f}")
    if status.gap is not None:
        parts.append(f"gap {status.gap:.2g}")
    if status.lanes > 1:
        parts.append(f"{status.lanes} models")
    return " · ".join(parts)


class LiveLine:
    """One line that changes in a terminal; elsewhere a plain line every few seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a line."""
        self._say = say
        self._progress: Any = None
        self._bar: Any = None
        self._last = time.perf_counter()

    def show(self, fraction: float, text: str) -> None:
        now = time.perf_counter()
        if sys.stderr.isatty():
            if self._progress is None:
                self._start()
            self._progress.update(self._bar, completed=fraction, description=text)
        elif now - self._last >= _PLAIN_SECONDS:
            self._last = now
            self._say(text)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = BarColumn(bar_width=16), TextColumn("{task.description}")
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar = self._progress.add_task("", total=1.0)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
