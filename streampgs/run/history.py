"""The history of a run: a line of JSON for every start, stop, change of the shards and choice. It is for people and
platforms; no step depends on it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from streampgs.base.errors import RunError
from streampgs.base.files import OWN, read_at, reading

STARTED, RESUMED, STOPPED, FAILED, UNDONE = "started", "resumed", "stopped", "failed", "undone"
APPENDED, CHANGED, CHOSEN, SIGMA, JUDGED = "appended", "changed", "chosen", "sigma", "judged"
EVALUATED, INCOMPLETE = "evaluated", "incomplete"
_MOST_BYTES = 16 << 20
"""So many bytes at the end of the file are read."""


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def read_events(path: Path, last: int | None = None) -> list[dict[str, Any]]:
    """The events, oldest first, or the last ones. Those that a kill has undone are marked as lost, those that the user has
    undone as undone. Invalid lines, such as the half line of a crash, are skipped. Of a huge file only the end is read."""
    events: list[dict[str, Any]] = []
    back: dict[str, Any] | None = None
    try:
        with reading(path, OWN) as file:
            for event in filter(None, map(_event, _lines_from_the_end(file))):
                if event["event"] != FAILED:
                    if back is not None and _is_beyond(event, back):
                        event["undone" if back["event"] == UNDONE else "lost"] = True
                    else:
                        back = event if event["event"] in (RESUMED, UNDONE) else None
                events.append(event)
                if len(events) == last:
                    break
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(
            f"'{path}' cannot be read: {error.strerror or error}",
            "if it is not a file that streampgs wrote, remove it: only the history is lost",
        ) from error
    return events[::-1]


def is_cut(path: Path) -> bool:
    """Whether older events are not read."""
    try:
        return path.stat(follow_symlinks=False).st_size > _MOST_BYTES
    except OSError:
        return False


def _lines_from_the_end(file: BinaryIO) -> list[bytes]:
    """The last line first."""
    size = os.fstat(file.fileno()).st_size
    lines = read_at(file.fileno(), min(size, _MOST_BYTES), max(0, size - _MOST_BYTES)).split(b"\n")
    return lines[::-1] if size <= _MOST_BYTES else lines[:0:-1]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
        known = isinstance(event["event"], str) and isinstance(event["time"], str)
        counts = event["rows"], event["t"], event.get("shards", 0)
        return event if known and all(isinstance(count, int) for count in counts) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_beyond(event: dict[str, Any], back: dict[str, Any]) -> bool:
    """Whether an event is about rows or shards that the run no longer had when it was continued or set back later."""
    return bool(event["rows"] > back["rows"] or event.get("shards", 0) > back.get("shards", 1 << 62))
