"""Ctrl-C in Python: training stops at the next row, a checkpoint is written, and then comes the KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from streampgs.run.report import Observer, Status, StopRequest

_SIGINT = "SIGINT"


class Interrupts:
    """While it is open, the first Ctrl-C asks for a stop if training has begun; a second one interrupts at once.

    Only in the main thread, and only if the program has no handler of its own.
    """

    def __init__(self, stop: StopRequest | None) -> None:
        """`stop`: of a caller that takes care of interrupts; None: they are handled here."""
        self.stop = stop or StopRequest()
        self._handles = stop is None
        self.training = False
        """Before the first row there is nothing to save."""
        self._installed = False

    def __enter__(self) -> Interrupts:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self._handles and in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._ask)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.training or self.stop.reason is not None:
            raise KeyboardInterrupt
        self.stop.ask(_SIGINT)

    @property
    def interrupted(self) -> bool:
        return self._installed and self.stop.reason == _SIGINT


class Watched:
    """An observer that tells when training has begun."""

    def __init__(self, observer: Observer, interrupts: Interrupts) -> None:
        self._observer, self._interrupts = observer, interrupts

    def choices(self, choices: dict[str, str]) -> None:
        self._interrupts.training = True
        self._observer.choices(choices)

    def note(self, message: str) -> None:
        self._observer.note(message)

    def status(self, status: Status) -> None:
        self._observer.status(status)

    def saved(self, checkpoint: str) -> None:
        self._observer.saved(checkpoint)
