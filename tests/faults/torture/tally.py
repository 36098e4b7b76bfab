"""Counts of attempts by result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SURVIVED, REFUSED, LOST = "survived", "refused", "lost"


@dataclass(frozen=True)
class Moment:
    """A kill: its moment and its cost."""

    where: str
    rows_lost: int
    """Trained on, but not in a checkpoint."""
    rows_done: int
    seconds_to_recover: float
    """From the start of the resume to its first trained row (0: no row was left)."""

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.rows_lost:,} of {self.rows_done:,} rows are trained on again, "
            f"{1000 * self.seconds_to_recover:.0f} ms until the first row after the resume"
        )


@dataclass
class Tally:
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(attempt, result) → count."""
    losses: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    replay: str = ""
    """The command that repeats the present attempt."""

    def note(self, tried: str, outcome: str, message: str = "") -> None:
        self.outcomes[tried, outcome] += 1
        if outcome == LOST:
            self.losses.append(f"{tried}: {message}" + (f"\n    {self.replay}" if self.replay else ""))

    def tried(self, *kinds: str) -> int:
        return sum(count for (kind, _), count in self.outcomes.items() if not kinds or kind.startswith(kinds))

    def count(self, outcome: str) -> int:
        return sum(count for (_, found), count in self.outcomes.items() if found == outcome)

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.losses += other.losses
        self.moments += other.moments

    def worst(self, most: int = 5) -> list[Moment]:
        """The most expensive kills: by share of rows, then by time."""
        return sorted(self.moments, key=lambda m: (-m.rows_lost / max(1, m.rows_done), -m.seconds_to_recover))[:most]

    def table(self) -> str:
        """Markdown with a line for each kind of attempt."""
        kinds = sorted({kind for kind, _ in self.outcomes})
        lines = [
            "| attempt | times | survived | refused with an error that names the file | lost |",
            "|---|---|---|---|---|",
        ]
        for kind in kinds:
            figures = [self.outcomes[kind, outcome] for outcome in (SURVIVED, REFUSED, LOST)]
            lines.append(f"| {kind} | {sum(figures):,} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
        total = [self.count(outcome) for outcome in (SURVIVED, REFUSED, LOST)]
        lines.append(f"| all | {sum(total):,} | " + " | ".join(f"{figure:,}" for figure in total) + " |")
        return "\n".join(lines)
