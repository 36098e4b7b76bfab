"""One peer in one process: what it is asked, what its clock says, how accurate it was when.

Nothing heavy is imported here, so that a peer's imports and memory are its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from streampgs.run.memory import peak_rss_bytes

# A curve goes on for this many times the seconds that the target took, to show where it leads.
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
    """When the process is this old, its curve ends."""
    seconds_of_use: float
    """A point that takes longer than this is of no use, and those after it take longer still."""
    threads: int


@dataclass
class Stopwatch:
    """Adds up the seconds spent inside `with` blocks, of the clock and of all the process's threads."""

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
        """The same items; what is timed is how long each takes to come."""
        while True:
            with self:
                item = next(items, None)
            if item is None:
                return
            yield item


@dataclass(frozen=True)
class Point:
    """How far a peer was after some time; what it takes to measure the accuracy is not counted."""

    seconds: float
    seconds_loading: float
    """The part of them that passed in waiting for rows."""
    cores: float
    """Seconds of all threads per second of the clock."""
    rows: float | None
    """Seen so far; None where a peer does not tell."""
    accuracy: float


@dataclass
class Trial:
    """What a peer has to show; filled in by its function."""

    task: Task
    importing: Stopwatch = field(default_factory=Stopwatch)
    preparing: Stopwatch = field(default_factory=Stopwatch)
    """Compiling, or loading what was compiled before."""
    loading: Stopwatch = field(default_factory=Stopwatch)
    """Getting rows into memory, where that is a thing of its own."""
    curve: list[Point] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    peak_rss_mb: float | None = None
    """None: that of the process when all is done."""
    began: float = field(default_factory=time.perf_counter)

    def add(self, spent: Stopwatch, seconds_loading: float, rows: float | None, accuracy: float) -> None:
        cores = spent.cpu_seconds / spent.seconds
        self.curve.append(Point(spent.seconds, seconds_loading, cores, rows, accuracy))

    @property
    def is_over(self) -> bool:
        """Whether the curve is long enough, or has taken too long."""
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
