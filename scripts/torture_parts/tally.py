"""What became of what was tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SURVIVED, REFUSED, LOST = "survived", "refused with a named error", "lost"


@dataclass(frozen=True)
class Moment:
    """A kill: where it struck, and what it cost."""

    where: str
    rows_lost: int
    """Trained on, but in no checkpoint."""
    rows_done: int
    seconds_to_recover: float
    """From the start of the resume until it has trained on a row again (0: nothing was left to train on)."""

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.rows_lost:,} of {self.rows_done:,} rows to be trained on again, "
            f"{1000 * self.seconds_to_recover:.0f} ms until training went on"
        )


@dataclass
class Tally:
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(what was tried, what became of it) → how often."""
    losses: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def note(self, tried: str, outcome: str, told: str = "") -> None:
        self.outcomes[tried, outcome] += 1
        if outcome == LOST:
            self.losses.append(f"{tried}: {told}")

    def tried(self, *kinds: str) -> int:
        return sum(count for (kind, _), count in self.outcomes.items() if not kinds or kind.startswith(kinds))

    def count(self, outcome: str) -> int:
        return sum(count for (_, found), count in self.outcomes.items() if found == outcome)

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.losses += other.losses
        self.moments += other.moments

    def worst(self, most: int = 5) -> list[Moment]:
        """Those that cost the most: first the share of rows, then the time."""
        return sorted(self.moments, key=lambda m: (-m.rows_lost / max(1, m.rows_done), -m.seconds_to_recover))[:most]

    def table(self) -> str:
        """Markdown: a line for each kind of what was tried."""
        kinds = sorted({kind for kind, _ in self.outcomes})
        lines = ["| tried | times | survived | refused with a named error | lost |", "|---|---|---|---|---|"]
        for kind in kinds:
            figures = [self.outcomes[kind, outcome] for outcome in (SURVIVED, REFUSED, LOST)]
            lines.append(f"| {kind} | {sum(figures):,} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
        total = [self.count(outcome) for outcome in (SURVIVED, REFUSED, LOST)]
        lines.append(f"| all | {sum(total):,} | " + " | ".join(f"{figure:,}" for figure in total) + " |")
        return "\n".join(lines)
