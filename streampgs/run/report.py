"""What a trainer tells about itself while it works: facts, for whoever shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Status:
    """Where training stands."""

    t: int
    rows: int
    epoch: int
    epoch_fraction: float
    rows_per_second: float
    loss: float | None
    """Of the leading model: progressive, or as judged last where it is judged apart."""
    accuracy: float | None
    gap: float | None
    lanes: int
    """Models that are trained at present."""
    stream_rows: int | None
    """Rows of the stream that are in windows trained on, up to the present one; None: no stream."""
    seconds: float
    """Of training and waiting for rows, in all sessions of the run."""
    seconds_left: float | None
    rss_bytes: int


@dataclass
class Report:
    """What a session has come to; the keys of `train --json`."""

    run: str
    t: int
    rows: int
    epochs: float
    seconds_training: float
    seconds_reading_wait: float
    rows_per_second: float
    progressive_loss: float | None
    progressive_accuracy: float | None
    judged_loss: float | None
    """Of the weights that are returned, on validation rows or on rows not trained on yet, when they were last judged."""
    judged_accuracy: float | None
    chosen: dict[str, Any] | None
    """Loss, p, sigma, t0 and radius of the model."""
    lanes: int
    gap: float | None
    sampling: str
    """Of 'independent' the gap is a bound in expectation, of 'epoch' an estimate of one."""
    dual_sha256: str | None
    checkpoint: str | None
    stopped_by: str
    stream_rows: int | None
    """Rows of the stream that were taken; the next session begins behind them. None: no stream."""
    skipped_rows: dict[str, int]
    forecast_rss_mb: float
    peak_rss_mb: float


class Observer(Protocol):
    def choices(self, choices: dict[str, str]) -> None:
        """Every choice made for this session, before the first step."""

    def note(self, message: str) -> None:
        """Something that a user should know."""

    def status(self, status: Status) -> None:
        """Several times a second."""

    def saved(self, checkpoint: str) -> None:
        """A checkpoint was written."""


class Silent:
    """An observer that shows nothing."""

    def choices(self, choices: dict[str, str]) -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def status(self, status: Status) -> None:
        pass

    def saved(self, checkpoint: str) -> None:
        pass


class StopRequest:
    """Asked between pieces of work whether to stop, and why."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason
