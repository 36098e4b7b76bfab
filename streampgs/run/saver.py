"""When the state of a run is written, and when it must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streampgs.base.stage import Bundle
from streampgs.run.checkpoint import Kept
from streampgs.run.folder import RunFolder
from streampgs.run.report import Observer


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
