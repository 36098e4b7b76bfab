"""The lines that a run in training writes for people and platforms: its history and its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streampgs.base.errors import RunError
from streampgs.run.folder import RunFolder
from streampgs.run.history import STOPPED, utc_now
from streampgs.run.report import Report, Session


class Log:
    """A line that cannot be written does not end training: it is noted, once for each reason."""

    def __init__(self, folder: RunFolder, session: Session) -> None:
        self._folder = folder
        self._session = session

    def event(self, kind: str, rows: int, steps: int, **facts: Any) -> None:
        with self._noting_faults():
            self._folder.append_event(kind, rows, steps, **facts)

    def metrics(self, record: dict[str, Any]) -> None:
        with self._noting_faults():
            self._folder.append_metrics(record)

    def ended(self, report: Report) -> Report:
        """A line of the metrics says what the call did."""
        self.metrics({"event": STOPPED, "time": utc_now(), **report.line()})
        return report

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            note = f"{error.found}; training continues, but this file is not complete"
            if note not in self._session.notes:
                self._session.note(note)
