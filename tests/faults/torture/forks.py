"""Run work in a child forked from this process: imports and compiled loops are loaded already, so that a killed trainer
costs a tenth of a second instead of two."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streampgs.base.errors import StreampgsError

REFUSED, CRASHED = 1, 70
_PARENT_DIED = 1  # PR_SET_PDEATHSIG
_MOST_DESCRIPTORS = 4096


@dataclass(frozen=True)
class Ended:
    """The end of a child."""

    code: int
    """Exit code; negative: the signal that killed it."""
    result: Any
    """Result of the work; for a StreampgsError its texts; for any other exception the traceback."""
    hung: bool = False

    @property
    def finished(self) -> bool:
        return self.code == 0

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL and not self.hung

    @property
    def refused(self) -> bool:
        """Ended with a StreampgsError that has a remedy."""
        return self.code == REFUSED and bool(self.result["remedy"])

    @property
    def message(self) -> str:
        if self.hung:
            return "the child hung"
        if isinstance(self.result, dict) and "found" in self.result:
            return str(self.result["found"])
        return f"code {self.code}: {self.result}"


def address_space() -> int:
    """Bytes of address space that this process has reserved."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def in_child(
    work: Callable[[], Any], seconds: float = 60.0, kill_after: float | None = None, by: int = signal.SIGKILL
) -> Ended:
    """Run `work` in a child. After `kill_after` seconds it gets the signal `by`; after `seconds` it is killed as hung."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_child(work, writing)
    os.close(writing)
    try:
        return _outcome(child, reading, seconds, kill_after, by)
    finally:
        os.close(reading)


def _be_child(work: Callable[[], Any], writing: int) -> None:
    code, result = CRASHED, None
    try:
        result = work()
        code = 0
    except StreampgsError as error:
        code, result = REFUSED, {"kind": type(error).__name__, "found": error.found, "remedy": error.remedy}
    except BaseException:
        result = traceback.format_exc()
    finally:
        try:
            with open(writing, "w") as pipe:
                json.dump(result, pipe)
        finally:
            os._exit(code)


def _outcome(child: int, reading: int, seconds: float, kill_after: float | None, by: int) -> Ended:
    began = time.perf_counter()
    parts: list[bytes] = []
    hung = killed = False
    while True:
        passed = time.perf_counter() - began
        if kill_after is not None and passed >= kill_after and not killed:
            os.kill(child, by)
            killed = True
        if passed >= seconds and not hung:
            os.kill(child, signal.SIGKILL)
            hung = True
        wait = seconds if kill_after is None or killed else kill_after
        ready, _, _ = select.select([reading], [], [], max(0.0, wait - passed) if not hung else 1.0)
        if ready:
            part = os.read(reading, 1 << 16)
            if not part:
                break
            parts.append(part)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    text = b"".join(parts)
    try:
        result = json.loads(text) if text else None
    except ValueError:  # it was killed while it wrote its result
        result = None
    return Ended(code, result, hung)


def in_background(work: Callable[[], None]) -> int:
    """Run `work` in a child that dies with this process. It has the standard descriptors."""
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
            os.closerange(3, _MOST_DESCRIPTORS)
            work()
        finally:
            os._exit(0)
    return child
