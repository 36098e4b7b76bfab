"""What a run in training writes: its state, when it may be saved, and the lines of its history and its metrics, which are for
people and platforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.run.checkpoint import Kept
from streampgs.run.folder import RunFolder
from streampgs.run.history import STOPPED, utc_now
from streampgs.run.report import Observer, Report, Session


class Saver:
    def __init__(self, folder: RunFolder, observer: Observer) -> None:
        self.checkpoint: Path | None = None
        """The newest one."""
        self._folder = folder
        self._observer = observer
        self._saved: tuple[Any, ...] | None = None
        self._in_step = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """An exception in here, from Ctrl-C in a program or for lack of memory, leaves a state that no undisturbed run
        has: it is not saved, the last checkpoint stands."""
        self._in_step = True
        yield
        self._in_step = False

    def restored(self, checkpoint: Path, key: tuple[Any, ...]) -> None:
        self.checkpoint, self._saved = checkpoint, key

    def save(
        self,
        key: tuple[Any, ...],
        rows: int,
        sections: Callable[[], Mapping[str, Bundle]],
        kept: Kept,
    ) -> None:
        """Write a checkpoint, unless `key` is that of the last one."""
        if self._in_step or self._saved == key:
            return
        self.checkpoint = self._folder.write_checkpoint(sections(), rows, kept)
        self._saved = key
        self._observer.saved(str(self.checkpoint))


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
