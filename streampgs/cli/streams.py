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
    sys.stdout = _text(_Stream(_OUT), sys.stdout, sys.__stdout__)
    sys.stderr = _text(_Stream(_ERR), sys.stderr, sys.__stderr__)


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
    """An unbuffered stream. Results after their first failure are dropped, as the streams are flushed once more at the end of
    the process."""

    def __init__(self, fd: int) -> None:
        self.fd, self._failed = fd, False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.fd

    def isatty(self) -> bool:
        return os.isatty(self.fd)

    def write(self, data: Any) -> int:
        while not self._failed:
            try:
                return os.write(self.fd, data)
            except OSError as error:
                if self.fd == _OUT:
                    self._fail(error)
                else:
                    break  # the next message may succeed
        return len(data)

    def _fail(self, error: OSError) -> None:
        if isinstance(error, BlockingIOError):  # the output was made non-blocking by the program behind it
            select.select([], [self.fd], [])
            return
        self._failed = True
        if error.errno == errno.EPIPE:  # the reader has gone: streampgs history RUN | head -3
            raise SystemExit(_CLOSED_PIPE) from None
        raise StreampgsError(
            f"the result cannot be written to standard output: {error.strerror}",
            "the work is saved; only printing failed: redirect the output to a writable place",
        ) from error
