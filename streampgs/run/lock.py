"""One trainer per run."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from streampgs.base.errors import RunError
from streampgs.base.faults import repeated
from streampgs.base.files import lock_if_possible, open_regular, remove_leftovers

UNFINISHED = ".*.arrows.writing"
"""Files that a killed process has not finished."""


class RunLock:
    """Held by the process that trains. The system releases it when the process ends, however it ends.

    The folder itself is locked too, where its file system can: deleting the file must not let a second trainer in.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._held: list[int] = []

    def __enter__(self) -> RunLock:
        try:
            self._held.append(repeated(lambda: open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)))
            folder = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._held.append(repeated(lambda: os.open(self.path.parent, folder)))
            fcntl.flock(self._held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock_if_possible(self._held[1])  # if not, the file alone must do
        except BlockingIOError as error:
            holder = re.match(r"\d*", os.pread(self._held[0], 32, 0).decode(errors="replace"))
            self._release()
            raise RunError(
                f"run '{self.path.parent}' is being trained by process {holder[0] if holder and holder[0] else 'unknown'}",
                "wait for it, or stop it with Ctrl-C or kill",
            ) from error
        except OSError as error:
            self._release()
            raise RunError(
                f"run '{self.path.parent}' cannot be locked: {error.strerror}",
                "make the folder writable, on a file system that supports locks",
            ) from error
        with suppress(OSError):  # the number is for people; on a full disk the lock holds without it
            os.ftruncate(self._held[0], 0)
            os.pwrite(self._held[0], str(os.getpid()).encode(), 0)
        remove_leftovers(self.path.parent, UNFINISHED)
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        while self._held:
            with suppress(OSError):  # the system releases the lock all the same
                os.close(self._held.pop())
