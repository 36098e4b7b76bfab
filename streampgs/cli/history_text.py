"""A run's history in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streampgs.run.history import APPENDED, CHANGED, CHOSEN, RESUMED, SIGMA, STARTED, STOPPED

_LISTED = 3


def history_text(events: Sequence[Mapping[str, Any]]) -> str:
    """A line an event: when, at which row and step, what."""
    if not events:
        return "nothing was written down yet"
    rows = [(event["time"], f"{event['rows']:,}", f"{event['t']:,}", _what(event)) for event in events]
    head = ("time", "rows", "t", "")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(3)]
    lines = [
        f"{time:<{widths[0]}}  {done:>{widths[1]}}  {steps:>{widths[2]}}  {what}".rstrip()
        for time, done, steps, what in (head, *rows)
    ]
    return "\n".join(lines)


def _what(event: Mapping[str, Any]) -> str:
    say = _SAID.get(event["event"])
    said = say(event) if say is not None else str(event["event"])
    return f"{said} (undone by the next start: it was not saved)" if event.get("lost") else said


def _started(event: Mapping[str, Any]) -> str:
    limits = ", ".join(f"{name} {value:g}" for name, value in event.get("limits", {}).items())
    size = f"{event['table_rows']:,} rows in " if "table_rows" in event else ""
    return (
        f"{event['event']} on {size}{_shards(event.get('shards', 0))}: loss {_listed(event.get('loss'))}, "
        f"p {_listed(event.get('p'))}, sigma {_listed(event.get('sigma'))}; until {limits or 'stopped'}"
    )


def _stopped(event: Mapping[str, Any]) -> str:
    accuracy = event.get("accuracy")
    return f"stopped by {event.get('by')} after {event.get('epochs', 0.0):.2f} epochs" + (
        f", accuracy {accuracy:.4f}" if accuracy is not None else ""
    )


def _appended(event: Mapping[str, Any]) -> str:
    names = event.get("added", [])
    return (
        f"{_shards(len(names))} with {event.get('added_rows', 0):,} rows joined in ({event.get('on_growth')}): "
        f"{_names(names)}; {event.get('table_rows', 0):,} rows in {_shards(event.get('shards', 0))} in all"
    )


def _changed(event: Mapping[str, Any]) -> str:
    again = "; the epoch began again" if event.get("begins_again") else ""
    names = event.get("lost_shards", [])
    return f"{_shards(len(names))} gone or replaced: {_names(names)}{again}"


def _chosen(event: Mapping[str, Any]) -> str:
    return "chosen: " + ", ".join(
        f"{name} {event[name]:g}" if isinstance(event[name], float | int) else f"{name} {event[name]}"
        for name in ("loss", "p", "sigma")
        if name in event
    )


def _sigma(event: Mapping[str, Any]) -> str:
    before, after = _listed(event.get("before")), event.get("after") or [None]
    if len(after) == 1:
        return f"sigma changes from {before} to {_listed(after)}"
    return (
        f"sigma was {before} and is found anew, among {len(after)} from {_listed(min(after))} to {_listed(max(after))}"
    )


_SAID: dict[str, Callable[[Mapping[str, Any]], str]] = {
    STARTED: _started,
    RESUMED: _started,
    STOPPED: _stopped,
    APPENDED: _appended,
    CHANGED: _changed,
    CHOSEN: _chosen,
    SIGMA: _sigma,
}


def _shards(count: int) -> str:
    return f"{count:,} shard{'s' * (count != 1)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _listed(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return ",".join(f"{one:g}" if isinstance(one, float | int) else str(one) for one in values)
