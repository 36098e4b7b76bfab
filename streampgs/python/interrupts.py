"""Ctrl-C in Python: training stops at the next row, a checkpoint is written, and then comes the KeyboardInterrupt."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from streampgs.run.report import StopRequest

_SIGINT = "SIGINT"


class Interrupts:
    """While it is open, the first Ctrl-C asks for a stop if training has begun; a second one interrupts at once.

    Only in the main thread, and only if the program has no handler of its own.
    """

    def __init__(self, stop: StopRequest | None) -> None:
        """`stop`: of a caller that takes care of interrupts; None: they are handled here."""
        self.stop = stop or StopRequest()
        self.stop.opening = self._handles = stop is None
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
        if self.stop.opening or self.stop.reason is not None:
            raise KeyboardInterrupt
        self.stop.ask(_SIGINT)

    @property
    def interrupted(self) -> bool:
        return self._installed and self.stop.reason == _SIGINT
