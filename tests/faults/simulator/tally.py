"""What happened in simulated histories."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    histories: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int, str]] = field(default_factory=list)
    """The kind and the seed of a history, and which law it broke."""

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.counts += other.counts
        self.refusals += other.refusals
        self.failures += other.failures
