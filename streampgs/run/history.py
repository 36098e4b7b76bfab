"""The history of a run: a line of JSON for every start, stop, change of the shards and choice. It is for people and
platforms; no step depends on it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streampgs.files import append_line

STARTED, RESUMED, STOPPED, FAILED = "started", "resumed", "stopped", "failed"
APPENDED, CHANGED, CHOSEN, SIGMA = "appended", "changed", "chosen", "sigma"


def append_event(path: Path, event: str, rows: int, steps: int, **facts: Any) -> None:
    """Add a line that survives a crash of the machine."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    append_line(
        path,
        json.dumps({"time": now, "event": event, "rows": rows, "t": steps, **facts}, allow_nan=False),
        durable=True,
    )


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events, oldest first; those that a later start has undone are marked as lost. Invalid lines, such as the half
    line of a crash, are skipped."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    events: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
            known = isinstance(event["event"], str) and isinstance(event["time"], str)
            sound = known and isinstance(event["rows"], int) and isinstance(event["t"], int)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if not sound:
            continue
        if event["event"] == RESUMED:
            _mark_lost(events, event)
        events.append(event)
    return events


def _mark_lost(events: list[dict[str, Any]], resumed: dict[str, Any]) -> None:
    """A kill undoes rows, and new shards, that were recorded here but not in a checkpoint."""
    for event in reversed(events):
        if event["event"] == FAILED:
            continue
        beyond = event["rows"] > resumed["rows"] or event.get("shards", 0) > resumed.get("shards", 1 << 62)
        if not beyond or event["event"] == RESUMED:
            break
        event["lost"] = True
