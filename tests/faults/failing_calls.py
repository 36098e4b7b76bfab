"""Let calls of the system fail that open, list or read files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streampgs.base import faults


class FailingCalls:
    """`os.open`, `os.listdir`, `os.stat` and `os.preadv` fail on paths for which `number` gives an error number."""

    def __init__(self, patch: pytest.MonkeyPatch, number: Callable[[str, str], int | None]) -> None:
        """`number`: of the name of the call and the path."""
        self.failed = 0
        self._number = number
        patch.setattr(faults, "PAUSES", (0.0,) * len(faults.PAUSES))
        for name in ("open", "listdir", "stat"):
            patch.setattr(os, name, self._by_path(name, getattr(os, name)))
        patch.setattr(os, "preadv", self._by_descriptor("preadv", os.preadv))

    def _check(self, call: str, path: str) -> None:
        number = self._number(call, path)
        if number is not None:
            self.failed += 1
            raise OSError(number, os.strerror(number), path)

    def _by_path(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def failing(path: Any = ".", *words: Any, **options: Any) -> Any:
            if isinstance(path, str | Path):
                self._check(call, str(path))
            return real(path, *words, **options)

        return failing

    def _by_descriptor(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def failing(fd: int, *words: Any) -> Any:
            self._check(call, os.readlink(f"/proc/self/fd/{fd}"))
            return real(fd, *words)

        return failing


def always(number: int, name: str, *calls: str) -> Callable[[str, str], int | None]:
    """The calls fail on every file of that name, or in a folder of that name."""
    return lambda call, path: number if call in calls and name in Path(path).parts else None


class Sometimes:
    """Each seventh call on a file fails: another try opens the file and reads its ends, which is less than seven calls."""

    def __init__(self, number: int, below: Path, *calls: str) -> None:
        self.number, self.below, self.calls = number, below, calls
        self.count: Counter[str] = Counter()

    def __call__(self, call: str, path: str) -> int | None:
        if call not in self.calls or self.below not in Path(path).parents:
            return None
        self.count[path] += 1
        return self.number if self.count[path] % 7 == 0 else None
