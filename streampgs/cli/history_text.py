"""The history of a run as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from streampgs.base.checks import decode
from streampgs.base.errors import counted
from streampgs.cli.console import table_text
from streampgs.run import history
from streampgs.run.report import mixed_text

_LISTED, _WIDTH = 3, 80
_CHOSEN = ("loss", "p", "sigma", "l1", "step")
_GIVEN = ("solver", *_CHOSEN)
_METRICS = ("accuracy", "log_loss", "auc", "macro_f1", "r2", "rmse", "mae", "pinball", "deviance", "loss")
"""The first of these that an evaluation has are shown."""


def history_text(events: Sequence[Mapping[str, Any]]) -> str:
    """A line per event: time, rows and steps so far, what happened."""
    if not events:
        return "no events yet"
    rows = []
    for event in events:
        what, *more = wrap(_what(event), _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
        first = (event["time"], f"{event['rows']:,}", f"{event['t']:,}", what)
        rows += [first, *(("", "", "", f"  {line}") for line in more)]
    return table_text(["time", "rows", "steps", ""], rows, left=[0, 3])


def _what(event: Mapping[str, Any]) -> str:
    try:
        text = _TEXTS.get(event["event"], _name)(event)
    except (TypeError, ValueError, AttributeError, KeyError):  # a line that another program wrote
        text = _name(event)
    if event.get("undone"):
        return f"{text} (undone)"
    return f"{text} (lost: not saved before the next start)" if event.get("lost") else text


def _name(event: Mapping[str, Any]) -> str:
    return str(event["event"])


def _started(event: Mapping[str, Any]) -> str:
    if "stream_rows" in event:
        return f"{event['event']} on a stream, after {event['stream_rows']:,} of its rows"
    limits = ", ".join(f"{name} {value:g}" for name, value in event.get("limits", {}).items())
    size = f"{event['table_rows']:,} rows in " if "table_rows" in event else ""
    return (
        f"{event['event']} on {size}{counted(event.get('shards', 0), 'shard')}: {_numbers(event, _GIVEN)}; "
        f"limits: {limits or 'none'}"
    )


def _numbers(event: Mapping[str, Any], names: Sequence[str]) -> str:
    """The numbers that the event has, with their names."""
    return ", ".join(f"{name} {_listed(event[name])}" for name in names if event.get(name) is not None)


def _stopped(event: Mapping[str, Any]) -> str:
    taken, accuracy, by = event.get("stream_rows"), event.get("accuracy"), event.get("by")
    done = f"{event.get('epochs', 0.0):.2f} epochs" if taken is None else f"{taken:,} rows of the stream"
    why = by if by == "converged" else f"stopped by {by}"
    return f"{why} after {done}" + ("" if accuracy is None else f", accuracy {accuracy:.4f}")


def _undone(event: Mapping[str, Any]) -> str:
    why = f", because {' and '.join(event['failed'])}" if event.get("failed") else ""
    return f"returned to this checkpoint: {counted(event['undone_rows'], 'row')} undone{why}"


def _evaluated(event: Mapping[str, Any]) -> str:
    known = {name: event["metrics"].get(name) for name in _METRICS}
    shown = [f"{name} {value:.4f}" for name, value in known.items() if value is not None][:_LISTED]
    return f"evaluated on {counted(event['evaluated_rows'], 'row')} of {', '.join(event['data'])}: {', '.join(shown)}"


def _appended(event: Mapping[str, Any]) -> str:
    joined = f"{_shards(event, 'added')} with {counted(event.get('added_rows', 0), 'row')} joined"
    now = f"{counted(event.get('table_rows', 0), 'row')} in {counted(event.get('shards', 0), 'shard')}"
    return f"{joined}: {_names(event, 'added')}; now {now}"


def _incomplete(event: Mapping[str, Any]) -> str:
    count, names = event["incomplete_files"], ", ".join(event["incomplete_names"][:_LISTED])
    why = "it is" if count == 1 else "they are"
    more = ", …" if count > _LISTED else ""
    return f"{counted(count, 'file')} left out, because {why} not complete: {names}{more}"


def _judged(event: Mapping[str, Any]) -> str:
    from streampgs.run.lineages import LINEAGES
    from streampgs.run.words import judged_texts, result_text
    from streampgs.selection.mixture import Judgement

    judged = decode(Judgement, event["judged"])
    lineages = [f"{name} {result_text(one)}" for name, one in zip(LINEAGES, judged.lineages, strict=False)]
    mixed = mixed_text(dict(zip(LINEAGES, judged.shares, strict=True)), judged.shrink)
    return "; ".join([*judged_texts(judged), *lineages, f"after this update the model is {mixed}"])


def _sigma(event: Mapping[str, Any]) -> str:
    before, after = _listed(event.get("before")), event.get("after") or [None]
    if len(after) == 1:
        return f"sigma changed from {before} to {_listed(after)}"
    return f"search for a new sigma from {_listed(min(after))} to {_listed(max(after))}; it was {before}"


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    history.STARTED: _started,
    history.RESUMED: _started,
    history.STOPPED: _stopped,
    history.FAILED: lambda event: f"failed: {' '.join(str(event['error']).split())}",
    history.UNDONE: _undone,
    history.EVALUATED: _evaluated,
    history.APPENDED: _appended,
    history.CHANGED: lambda event: f"{_shards(event, 'lost')} deleted, replaced or left out: {_names(event, 'lost')}",
    history.CHOSEN: lambda event: f"chosen: {_numbers(event, _CHOSEN)}",
    history.JUDGED: _judged,
    history.SIGMA: _sigma,
    history.INCOMPLETE: _incomplete,
}


def _shards(event: Mapping[str, Any], what: str) -> str:
    return counted(event.get(f"{what}_shards", 0), "shard")


def _names(event: Mapping[str, Any], what: str) -> str:
    names = event.get(f"{what}_names", [])[:_LISTED]
    more = event.get(f"{what}_shards", 0) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _listed(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return ",".join(f"{one:g}" if isinstance(one, float | int) else str(one) for one in values)
