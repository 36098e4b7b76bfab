"""How far a session of training is: in words, as a line that changes in a terminal, and as a display in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import escape
from importlib import import_module
from typing import Any, Literal

from streampgs.base.errors import OptionError
from streampgs.base.printable import printable
from streampgs.kernels import compiling
from streampgs.options.messages import python_words
from streampgs.run.report import Observer, Status

_PLAIN_SECONDS = 5.0
_NOTEBOOK_SECONDS = 0.5


def count(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10 * size or (number >= size and unit != "k"):
            return f"{number / size:.1f}{unit}"
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _searching_text(share: float) -> str:
    return f"comparing candidates · {share:.0%}"


def status_text(status: Status) -> str:
    parts = [
        f"epoch {status.epoch + status.epoch_fraction:.2f}" if status.update is None else f"update, {status.update}"
    ]
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")  # early, so that it is visible in 80 columns
    parts += [f"{count(status.rows)} rows", f"{count(status.rows_per_second)} rows/s"]
    figures = {"loss": (status.loss, ".4f"), "accuracy": (status.accuracy, ".4f"), "gap": (status.gap, ".2g")}
    parts += [f"{name} {value:{form}}" for name, (value, form) in figures.items() if value is not None]
    return " · ".join(parts + [f"{status.lanes} models"] * (status.lanes > 1))


# Observers of Python.


def show_line(text: str) -> None:
    """A line that cannot be written is lost; training continues."""
    if sys.stderr is not None:  # as print() would write to standard output
        with suppress(OSError, ValueError):
            print(printable(text), file=sys.stderr, flush=True)


def _in_terminal() -> bool:
    """Whether standard error is a terminal. It may also be closed, or missing."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (OSError, ValueError):
        return False


class PythonObserver(Observer):
    """Shows nothing but notes. Its `close` ends the display."""

    def note(self, message: str) -> None:
        show_line(f"note: {python_words(message)}")

    def close(self) -> None:
        pass


class SilentObserver(PythonObserver):
    """Shows nothing. The notes are in the report."""

    def note(self, message: str) -> None:
        pass


class LineObserver(PythonObserver):
    """Shows one line that changes in a terminal; elsewhere a plain line every few seconds."""

    def __init__(self, say: Callable[[str], None] = show_line) -> None:
        """`say` prints a line."""
        self._say = say
        self._bar: Any = None
        self._last = time.perf_counter()

    def choices(self, choices: dict[str, str]) -> None:
        self.show(0.0, "starting")

    def searching(self, share: float) -> None:
        self.show(0.0, _searching_text(share))

    def status(self, status: Status) -> None:
        self.show(status.fraction, status_text(status))

    def show(self, fraction: float, text: str) -> None:
        now = time.perf_counter()
        if _in_terminal():
            with suppress(OSError, ValueError):  # the terminal may have gone
                self._bar = _started_bar() if self._bar is None else self._bar
                self._bar.update(self._bar.task_ids[0], completed=fraction, description=text)
        elif now - self._last >= _PLAIN_SECONDS:
            self._last = now
            self._say(text)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.stop()
        self._bar = None


def _started_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(bar_width=16), TextColumn("{task.description}", markup=False)
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=1.0)
    bar.start()
    return bar


class NotebookObserver(PythonObserver):
    """Shows a bar under the cell of a notebook, and the notes, which stay when training has ended."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._text, self._fraction, self._next = "", 0.0, 0.0
        self._handle: Any = None

    def choices(self, choices: dict[str, str]) -> None:
        self._show("starting", 0.0)

    def note(self, message: str) -> None:
        self.notes.append(f"note: {printable(python_words(message))}")
        self._show(self._text, self._fraction)

    def searching(self, share: float) -> None:
        self._show(_searching_text(share), 0.0)

    def status(self, status: Status) -> None:
        if time.perf_counter() >= self._next:
            self._next = time.perf_counter() + _NOTEBOOK_SECONDS
            self._show(status_text(status), status.fraction)

    def close(self) -> None:
        if self._handle is not None:
            self._show("", 0.0)

    def _show(self, text: str, fraction: float) -> None:
        self._text, self._fraction = text, fraction
        if self._handle is None:
            self._handle = import_module("IPython.display").display(self, display_id=True)
        else:
            self._handle.update(self)

    def __repr__(self) -> str:
        return "\n".join(filter(None, [*self.notes, self._text]))

    def _repr_html_(self) -> str:
        lines = list(map(escape, self.notes))
        if self._text:
            lines.append(f'<progress max="1" value="{self._fraction:.3f}"></progress> {escape(self._text)}')
        return "".join(f"<div>{line}</div>" for line in lines)


def observer_for(progress: bool | Literal["auto"]) -> PythonObserver:
    """'auto' shows progress where somebody looks: in a notebook, or in a terminal. Notes are shown unless it is False."""
    if progress is False:
        return SilentObserver()
    if progress is not True and progress != "auto":
        raise OptionError(f"progress={progress!r} is unknown", "give 'auto', True or False")
    if _in_notebook():
        return NotebookObserver()
    return LineObserver() if progress is True or _in_terminal() else PythonObserver()


@contextmanager
def shown(progress: bool | Literal["auto"]) -> Iterator[PythonObserver]:
    """The observer of a call. It also tells that loops are being compiled."""
    observer = observer_for(progress)
    compiling.listeners.append(observer.note)
    try:
        yield observer
    finally:
        with suppress(ValueError):  # it was told, and removed
            compiling.listeners.remove(observer.note)
        observer.close()


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    with suppress(Exception):
        return getattr(sys.modules["IPython"].get_ipython(), "kernel", None) is not None
    return False
