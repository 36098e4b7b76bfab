"""One peer in one process: its task, its clock and its accuracy over time.

Nothing heavy is imported here, so that a peer's imports and memory are its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from streampgs.run.memory import peak_rss_bytes

# A curve continues for this many times the seconds to the target.
_BEYOND_TARGET = 2.0

Item = TypeVar("Item")


@dataclass(frozen=True)
class Task:
    peer: str
    parquet: str
    arrow: str
    text: str
    """The rows in the text format of Vowpal Wabbit; empty if the peer does not read it."""
    test: str
    """Arrow shards."""
    test_text: str
    rows: int
    features: int
    target: float
    settings: dict[str, Any]
    seconds_limit: float
    """The curve ends at this age of the process."""
    seconds_of_use: float
    """A point that takes longer ends the curve, because later points take even longer."""
    threads: int


@dataclass
class Stopwatch:
    """Adds up wall-clock and CPU seconds spent inside `with` blocks."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __enter__(self) -> Stopwatch:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.seconds += time.perf_counter() - self._began
        self.cpu_seconds += time.process_time() - self._cpu_began

    def __add__(self, other: Stopwatch) -> Stopwatch:
        return Stopwatch(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def each(self, items: Iterator[Item]) -> Iterator[Item]:
        """The same items; measures the time to get each item."""
        while True:
            with self:
                item = next(items, None)
            if item is None:
                return
            yield item


@dataclass(frozen=True)
class Point:
    """The state of a peer after some time; measuring the accuracy is not counted."""

    seconds: float
    seconds_loading: float
    """The part of these seconds spent waiting for rows."""
    cores: float
    """CPU seconds of all threads per second."""
    rows: float | None
    """Rows seen so far; None if the peer does not report them."""
    accuracy: float


@dataclass
class Trial:
    """The results of a peer, filled in by its function."""

    task: Task
    importing: Stopwatch = field(default_factory=Stopwatch)
    preparing: Stopwatch = field(default_factory=Stopwatch)
    """Compiling loops or loading compiled loops."""
    loading: Stopwatch = field(default_factory=Stopwatch)
    """Loading rows into memory, if that is a separate step."""
    curve: list[Point] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    peak_rss_mb: float | None = None
    """None: the peak of the process at its end."""
    began: float = field(default_factory=time.perf_counter)

    def add(self, spent: Stopwatch, seconds_loading: float, rows: float | None, accuracy: float) -> None:
        cores = spent.cpu_seconds / spent.seconds
        self.curve.append(Point(spent.seconds, seconds_loading, cores, rows, accuracy))

    @property
    def is_over(self) -> bool:
        """Whether the curve is long enough or took too long."""
        if time.perf_counter() - self.began > self.task.seconds_limit:
            return True
        if self.curve and self.curve[-1].seconds > self.task.seconds_of_use:
            return True
        reached = next((point.seconds for point in self.curve if point.accuracy >= self.task.target), None)
        return reached is not None and self.curve[-1].seconds >= _BEYOND_TARGET * reached

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": self.task.settings,
            "seconds_importing": self.importing.seconds,
            "seconds_preparing": self.preparing.seconds,
            "seconds_loading": self.loading.seconds,
            "curve": [asdict(point) for point in self.curve],
            "peak_rss_mb": self.peak_rss_mb or peak_rss_bytes() / 1e6,
            "notes": self.notes,
        }
