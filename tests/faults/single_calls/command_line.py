"""Run a command of streampgs in a child forked from this process, as `python -m streampgs` would."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from tests.faults.torture.forks import CRASHED, in_child


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it printed."""

    code: int
    """Exit code; negative: the signal that killed it."""
    out: str
    err: str
    hung: bool = False

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL and not self.hung


def run_command(
    words: list[str],
    cwd: Path,
    outputs: Path,
    stdin: Path | None = None,
    prepare: Callable[[], None] = lambda: None,
    seconds: float = 60.0,
) -> Said:
    """`outputs`: a folder for what the command prints. `prepare` is called in the child, before the command."""
    paths = [outputs / "stdout", outputs / "stderr"]

    def work() -> int:
        _enter(words, cwd, paths, stdin)
        try:
            prepare()
            return _run()
        except BaseException:
            traceback.print_exc()
            return CRASHED
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()

    ended = in_child(work, seconds)
    out, err = (path.read_text(errors="backslashreplace") for path in paths)
    return Said(ended.result if ended.finished else ended.code, out, err, ended.hung)


def run_here(words: list[str], cwd: Path, outputs: Path, stdin: Path | None = None) -> Said:
    """Run a command in this process, so that later children find modules and compiled loops loaded."""
    before = _State.now()
    paths = [outputs / "stdout", outputs / "stderr"]
    try:
        _enter(words, cwd, paths, stdin)
        code = _run()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        before.restore()
    out, err = (path.read_text(errors="backslashreplace") for path in paths)
    return Said(code, out, err)


@dataclass(frozen=True)
class _State:
    """What a command changes in its process."""

    streams: tuple[Any, ...]
    descriptors: tuple[int, ...]
    signals: dict[int, Any]
    words: list[str]
    cwd: Path

    @classmethod
    def now(cls) -> _State:
        signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        streams = (sys.stdin, sys.stdout, sys.stderr)
        return cls(streams, tuple(os.dup(number) for number in range(3)), signals, sys.argv, Path.cwd())

    def restore(self) -> None:
        for number, copy in enumerate(self.descriptors):
            os.dup2(copy, number)
            os.close(copy)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        sys.argv = self.words
        os.chdir(self.cwd)
        for number, handler in self.signals.items():
            signal.signal(number, handler)


def _enter(words: list[str], cwd: Path, paths: list[Path], stdin: Path | None) -> None:
    """Give the process the streams, the folder and the words of a command."""
    files = [os.open(stdin or os.devnull, os.O_RDONLY)]
    files += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) for path in paths]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = map(_stream, range(3), "rww")
    os.chdir(cwd)
    sys.argv = ["streampgs", *words]


def _stream(number: int, mode: str) -> TextIO:
    return cast(TextIO, open(number, mode, closefd=False))


def _run() -> int:
    from streampgs.cli.main import run_commands

    try:
        run_commands()
    except SystemExit as end:
        code = 0 if end.code is None else end.code
        _wait_for_threads()
        return code if isinstance(code, int) else 1
    return 0


def _wait_for_threads(seconds: float = 20.0) -> None:
    """As Python does at exit."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
