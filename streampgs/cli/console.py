"""Output: results on standard output; progress and notes on standard error, as one live line in a terminal and as plain
lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click

from streampgs.base.errors import StreampgsError, command_words
from streampgs.base.printable import LONGEST_CELL, printable, printable_page
from streampgs.options.fields import OUTPUT, Flag, option
from streampgs.python.progress import LineObserver

if TYPE_CHECKING:
    from streampgs.run.report import Status, StopRequest


@dataclass(frozen=True)
class AsJson:
    json: bool = option(False, Flag(), OUTPUT, "Print the result, or the error, as JSON on standard output.")


@dataclass(frozen=True)
class Output(AsJson):
    quiet: bool = option(False, Flag(), OUTPUT, "Do not print progress or a summary.")


INCOMPLETE = 3
"""The exit code of a run that trained on all it could, but left out an incomplete file, or waits for another limit."""
FAILED_VALIDATION = 4
"""The exit code of a resume that a condition of --fail-if has undone."""


def say(message: str, head: str = "", colour: str | None = None) -> None:
    """One line on standard error, which begins with `head` in bold or in a colour."""
    styled = click.style(head, fg=colour, bold=colour in (None, "red")) if head else ""
    _write(styled + printable(command_words(message)), sys.stderr)


def say_usage(error: click.ClickException) -> None:
    page = io.StringIO()
    error.show(page)
    _write(page.getvalue().rstrip("\n"), sys.stderr)


def print_result(text: str, record: Any, as_json: bool) -> None:
    """The result of a command, on standard output: as text, or the record as one line of JSON."""
    if as_json:
        print_json(record)
    else:
        _write(text, sys.stdout)


def _write(text: str, stream: TextIO) -> None:
    click.echo(printable_page(text), file=stream)


def say_note(message: str) -> None:
    say(message, "note: ", "yellow")


def say_warning(message: str) -> None:
    say(message, "warning: ", "yellow")


def say_skipped(rows_by_fault: Mapping[str, int]) -> None:
    for fault, rows in rows_by_fault.items():
        say(f"{rows:,} rows: {fault}", "skipped: ", "yellow")


def print_json(record: Any) -> None:
    from streampgs.run.folder import finite_or_null

    _write(json.dumps(finite_or_null(record), allow_nan=False, default=os.fspath), sys.stdout)


def fail(error: StreampgsError, as_json: bool = False) -> int:
    """Say what went wrong, and also as JSON if that was asked for. Returns the exit code."""
    _write(click.style("error: ", fg="red", bold=True) + str(error), sys.stderr)
    if as_json:
        words = {"error": command_words(error.found), "remedy": command_words(error.remedy)}
        facts = {**words, "kind": error.kind, "exit_code": error.exit_code}
        with suppress(StreampgsError):  # standard output itself may be the fault
            print_json(facts)
    return error.exit_code


def pairs_text(pairs: Mapping[str, str]) -> str:
    """A line for each pair, with the names in bold."""
    names = [printable(name, LONGEST_CELL) for name in pairs]
    width = max(map(len, names))
    return "\n".join(
        f"{click.style(name.ljust(width), bold=True)}  {printable(command_words(text))}"
        for name, text in zip(names, pairs.values(), strict=True)
    )


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Columns aligned to the right; those numbered in `left` are aligned to the left."""
    table = [[printable(cell, LONGEST_CELL) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def records_text(columns: Mapping[str, str], records: Sequence[Mapping[str, Any]], left: Sequence[int] = ()) -> str:
    """A table with a line for each record. `columns`: for each head the key of its values, and their format after a colon."""
    pairs = [column.partition(":")[::2] for column in columns.values()]
    rows = [[_cell(record.get(key), form) for key, form in pairs] for record in records]
    return table_text([*columns], rows, left)


def _cell(value: Any, form: str) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "*", False: ""}[value]
    return format(value, form)


class TerminalObserver(LineObserver):
    """Shows the choices and the progress of training."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(say)
        self.quiet = quiet

    def choices(self, choices: dict[str, str]) -> None:
        if not self.quiet:
            _write(pairs_text(choices), sys.stderr)
            super().choices(choices)

    def note(self, message: str) -> None:
        say_note(message)

    def status(self, status: Status) -> None:
        if not self.quiet:
            super().status(status)


def stop_on_signals(stop: StopRequest) -> None:
    """The first SIGINT, SIGTERM or SIGHUP requests a stop, or ends the process while data is opened; a second SIGINT exits
    at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and stop.reason is not None:
            with suppress(OSError):
                os.write(2, b"\nexited at once; the last checkpoint is intact\n")
            os._exit(130)
        name = signal.Signals(number).name
        if stop.opening:
            say_note(f"stopped by {name} while the data was opened: nothing was trained")
            os._exit(EXIT_CODES[name])  # an exception might come up in the middle of compiled code, which changes it
        stop.ask(name)

    for number in _ending():
        signal.signal(number, ask)


def _ending() -> list[signal.Signals]:
    """Without SIGHUP if it is ignored: nohup did that, so that the command outlives its terminal."""
    survives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if survives else [signal.SIGHUP])]


@contextmanager
def exiting_on_signals() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGHUP raise SystemExit, so that temporary files are removed."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(EXIT_CODES[signal.Signals(number).name])

    before = {number: signal.signal(number, leave) for number in _ending() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_of_signals() -> None:
    """Ignore signals from now on: the work is done, and they must not change its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


EXIT_CODES = {"SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}
