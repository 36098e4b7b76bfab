"""What a trainer reports while it works: facts, which an observer shows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from streampgs.base.printable import printable
from streampgs.data.findings import Findings
from streampgs.options.solvers import SOLVERS

TRAINED, PAUSED, NOTHING_NEW, REJECTED = "trained", "paused", "nothing new", "rejected"
"""What a call of train or resume did."""
WOULD_TRAIN, WOULD_UPDATE = "would train", "would train an update"
"""What it would do."""


@dataclass(frozen=True)
class Status:
    """The state of training."""

    t: int
    rows: int
    epoch: int
    epoch_fraction: float
    rows_per_second: float
    loss: float | None
    """The loss of the leading model: progressive, or from its last judgement where it is judged on other rows."""
    accuracy: float | None
    gap: float | None
    """For solvers of whole passes a bound, for the others an estimate of one."""
    lanes: int
    """Models in training."""
    update: str | None
    """The pass of an update; None in an epoch."""
    fraction: float
    """The share of the epoch, or of the update, that is done."""
    seconds: float
    """The time of training and of waiting for rows, in all sessions of the run."""
    seconds_left: float | None
    rss_bytes: int


@dataclass(repr=False)
class Report:
    """The result of a session; the keys of `train --json`."""

    run: str
    t: int
    rows: int
    epochs: float
    seconds_training: float
    seconds_reading_wait: float
    """Both in all calls of the run."""
    rows_per_second: float
    """In this call, while it trained."""
    progressive_loss: float | None
    progressive_accuracy: float | None
    judged_loss: float | None
    """The loss of the weights that are returned, on validation rows or on rows not trained on yet, when they were last judged."""
    judged_accuracy: float | None
    chosen: dict[str, Any] | None
    """Loss of the model, and the numbers by which the candidates of its solver differ: p, sigma, t0 and ball for pgs."""
    lanes: int
    nonzeros: int
    """How many weights of the model are not exactly zero. Those of all classes or labels count, intercepts do not."""
    zeros: int
    """How many are."""
    gap: float | None
    solver: str
    dual_sha256: str | None
    checkpoint: str | None
    stopped_by: str
    skipped_rows: dict[str, int]
    """In this call, by reason. Each row counts once, in the epoch in which its shard joined."""
    skipped_rows_of_run: dict[str, int]
    """In all calls."""
    clipped_values: dict[str, int]
    """In this call, by column: standardized numbers that were too far from the others. Each counts once."""
    clipped_values_of_run: dict[str, int]
    forecast_rss_mb: float
    peak_rss_mb: float
    outcome: str
    """'trained', 'paused' by a signal, 'nothing new': a limit was reached before, and there were no new rows; or
    'rejected': a condition of --fail-if holds, and the run was left as it was. Of a dry run: 'would train' on the present
    epoch, 'would train an update', or 'nothing new'."""
    rows_this_call: int
    """Trained on since this call started or resumed the run; rows that come again count again."""
    stream_rows: int | None = None
    """Rows of the stream that have reached the disk; the next session begins after them. None: not a stream."""
    seconds_this_call: float = 0.0
    """The time of all that this call did so far: it opened data, searched, trained, waited and saved."""
    update: dict[str, Any] | None = None
    """The mixture that is the model, and under 'judged' how new rows judged its parts and the model before, in this call."""
    validation: dict[str, Any] | None = None
    """The metrics of the model 'before' and 'after' this call, if validation rows were given for it; 'failed' has the
    conditions that hold."""
    found: Findings = field(default_factory=Findings)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        facts = _facts(self)
        width = max(map(len, facts))
        return "\n".join([_title(self), *(f"  {name:<{width}}  {text}" for name, text in facts.items())])

    def _repr_html_(self) -> str:
        """For notebooks."""
        cell = '<td style="text-align:left">'
        rows = (f"<tr><th>{escape(name)}</th>{cell}{escape(text)}</td></tr>" for name, text in _facts(self).items())
        return f"<table><caption>{escape(_title(self))}</caption>{''.join(rows)}</table>"

    def line(self) -> dict[str, Any]:
        """This call in one flat object for monitors: lists and mappings are their sizes, or the sums of their counts."""
        judged = (self.update or {}).get("judged") or {}
        found = {name: len(found) for name, found in asdict(self.found).items() if isinstance(found, list | dict)}
        trial = self.validation or {"after": {}, "failed": []}
        return {
            **{name: getattr(self, name) for name in _OF_LINE},
            "new_rows": self.found.new_rows,
            **found,
            "skipped_rows": sum(self.skipped_rows.values()),
            "clipped_values": sum(self.clipped_values.values()),
            "judged_rows": judged.get("rows", 0),
            "judged_rows_loss": (judged.get("before") or {}).get("loss"),
            "last_judged_rows_loss": judged.get("last"),
            "drift": judged["drift"] is not None if judged else None,
            "failed": " and ".join(trial["failed"]) or None,
            **{f"validation_{name}": value for name, value in trial["after"].items()},
        }

    def record(self) -> dict[str, Any]:
        """The report for JSON, with the findings in the data at the top level."""
        facts = asdict(self)
        found = facts.pop("found")
        return {**facts, **found}


_OF_LINE = ("outcome", "stopped_by", "rows", "rows_this_call", "epochs", "dual_sha256", "peak_rss_mb")


class Observer:
    """A session calls these methods, which do nothing here. Other observers override those that show something."""

    def choices(self, choices: dict[str, str]) -> None:
        """Every choice made for this session, before the first step."""

    def note(self, message: str) -> None:
        """Something that a user should know."""

    def searching(self, share: float) -> None:
        """Before the first step, while values that were left open are searched for; several times a second."""

    def status(self, status: Status) -> None:
        """Several times a second."""

    def saved(self, checkpoint: str) -> None:
        """A checkpoint was written."""


class Session:
    """One call of train or resume: its observer, and what its report will tell."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.found = Findings()
        self.notes: list[str] = []
        self.began = time.perf_counter()

    def note(self, message: str) -> None:
        self.notes.append(message)
        self.observer.note(message)

    def tell(self, messages: Iterable[str]) -> None:
        for message in messages:
            self.note(message)


class StopRequest:
    """Tells the trainer, between two calls of the engine, whether to stop and why."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.opening = False
        """The data is being opened: there is nothing to save, and a stop need not wait."""

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason


_MOST_NOTES = 5
_SMALL_SHARE = 0.005


def weights_text(nonzeros: int, zeros: int) -> str:
    return f"{nonzeros:,} of {nonzeros + zeros:,} weights are not zero"


def mixed_text(shares: dict[str, float], shrink: float) -> str:
    """How the returned model is mixed."""
    parts = " + ".join(f"{share:.2f} {name}" for name, share in shares.items() if share >= _SMALL_SHARE)
    return parts if shrink == 1.0 else f"{parts}, times {shrink:.2f}"


def time_text(report: Report) -> str:
    """The time of this call, and of its training."""
    trained = report.rows_this_call / report.rows_per_second if report.rows_per_second else 0.0
    return f"{report.seconds_this_call:,.1f} s, {trained:,.1f} s of it training"


def _title(report: Report) -> str:
    return f"Report of run '{printable(report.run)}'"


def _facts(report: Report) -> dict[str, str]:
    skipped = sum(report.skipped_rows.values())
    shown, more = report.notes[:_MOST_NOTES], len(report.notes) - _MOST_NOTES
    facts = {
        "outcome": f"{report.outcome}, ended by {report.stopped_by}",
        "rows": _rows(report),
        "time": time_text(report),
        "model": _model(report),
        "loss": _measured(report, report.judged_loss, report.progressive_loss),
        "accuracy": _measured(report, report.judged_accuracy, report.progressive_accuracy),
        "weights": weights_text(report.nonzeros, report.zeros) if report.zeros else "",
        "skipped": f"{skipped:,} rows that cannot be used" if skipped else "",
        "notes": " | ".join([*shown, *([f"and {more} more in .notes"] if more > 0 else [])]),
        "checkpoint": report.checkpoint or "none yet",
    }
    return {name: printable(text) for name, text in facts.items() if text}


def _rows(report: Report) -> str:
    passes = f"{report.epochs:.2f} epochs" if report.stream_rows is None else f"{report.stream_rows:,} of the stream"
    return f"{report.rows:,} ({passes}), {report.rows_this_call:,} in this call"


def _model(report: Report) -> str:
    if report.chosen is None:
        return f"{report.lanes} in training" if report.lanes else ""
    numbers = (f"{name} {value:.4g}" for name, value in report.chosen.items() if isinstance(value, int | float))
    return ", ".join([str(report.chosen.get("loss", "")), *numbers])


def _measured(report: Report, judged: float | None, progressive: float | None) -> str:
    """At the last comparison, and before each step; or, of a solver of columns, on the rows that it trains on."""
    by_columns = SOLVERS[report.solver].needs.columns
    found = {
        "when last compared": judged,
        "on the training rows" if by_columns else "before training on each row": progressive,
    }
    return ", ".join(f"{value:.5f} {when}" for when, value in found.items() if value is not None)
