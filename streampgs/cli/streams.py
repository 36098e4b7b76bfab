"""Standard output and standard error, which may be closed, full, or a terminal that disappears.

A message that cannot be written is lost, and the work continues: a run of days must not end because the disk of its log is
full. A result that cannot be written is an error.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any, TextIO

from streampgs.base.errors import StreampgsError

_OUT, _ERR = 1, 2
_CLOSED_PIPE = 141  # 128 + SIGPIPE, as of other programs whose reader has gone


def make_robust() -> None:
    """Replace the standard streams. File names may hold bytes that are not text: these are written as escapes."""
    _occupy_closed_numbers()
    sys.stdout = _text(_Results(_OUT), sys.stdout, sys.__stdout__)
    sys.stderr = _text(_Messages(_ERR), sys.stderr, sys.__stderr__)


def _occupy_closed_numbers() -> None:
    """A standard stream that is closed leaves its number to the next file that is opened: messages of libraries would be
    written into a checkpoint."""
    for fd, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):  # writing results must fail
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is this one


def _text(raw: _Stream, present: TextIO | None, original: TextIO | None) -> TextIO:
    if present is not original:  # a test or a program that embeds this one catches the output
        if isinstance(present, io.TextIOWrapper):
            present.reconfigure(errors="backslashreplace")
        return present  # type: ignore[return-value]
    encoding = "utf-8" if present is None else present.encoding
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.fd == _ERR or raw.isatty()
    )


class _Stream(io.RawIOBase):
    """An unbuffered stream. After the first failure it takes all bytes and drops them, as the streams are flushed once more
    at the end of the process."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.fd

    def isatty(self) -> bool:
        return os.isatty(self.fd)


class _Messages(_Stream):
    def write(self, data: Any) -> int:
        try:
            return os.write(self.fd, data)
        except OSError:
            return len(data)  # the next message may succeed


class _Results(_Stream):
    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._failed = False

    def write(self, data: Any) -> int:
        if self._failed:
            return len(data)
        try:
            while True:
                try:
                    return os.write(self.fd, data)
                except BlockingIOError:  # the output was made non-blocking by the program behind it
                    select.select([], [self.fd], [])
        except OSError as error:
            self._failed = True
            if error.errno == errno.EPIPE:  # the reader has gone: streampgs history RUN | head -3
                raise SystemExit(_CLOSED_PIPE) from None
            raise StreampgsError(
                f"the result cannot be written to standard output: {error.strerror}",
                "all else is done and saved; give the command an output that can be written to",
            ) from error
