"""The report of a session as Python shows it: a few lines, or a table in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from streampgs.base.printable import printable
from streampgs.options.solvers import SOLVERS

if TYPE_CHECKING:
    from streampgs.run.report import Report

_MOST_NOTES = 5
_SMALL_SHARE = 0.005


def as_text(report: Report) -> str:
    facts = _facts(report)
    width = max(map(len, facts))
    return "\n".join([_title(report), *(f"  {name:<{width}}  {text}" for name, text in facts.items())])


def as_html(report: Report) -> str:
    cell = '<td style="text-align:left">'
    rows = (f"<tr><th>{escape(name)}</th>{cell}{escape(text)}</td></tr>" for name, text in _facts(report).items())
    return f"<table><caption>{escape(_title(report))}</caption>{''.join(rows)}</table>"


def weights_text(nonzeros: int, zeros: int) -> str:
    return f"{nonzeros:,} of {nonzeros + zeros:,} weights are not zero"


def mixed_text(shares: dict[str, float], shrink: float) -> str:
    """How the returned model is mixed."""
    parts = " + ".join(f"{share:.2f} {name}" for name, share in shares.items() if share >= _SMALL_SHARE)
    return parts if shrink == 1.0 else f"{parts}, times {shrink:.2f}"


def time_text(report: Report) -> str:
    """Of this call, and of its training."""
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
