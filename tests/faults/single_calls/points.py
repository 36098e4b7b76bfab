"""Which calls are disturbed, and how."""

from __future__ import annotations

import errno
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.single_calls.shim import Strike

_KILLS = ("kill-before", "kill-after")
_ERRORS = {
    "open": "EIO ENOSPC EDQUOT EMFILE ESTALE EACCES ENOMEM EINTR",
    "read": "EIO ESTALE ENOMEM EINTR",
    "write": "EIO ENOSPC EDQUOT EINTR",
    "sync": "EIO ENOSPC EDQUOT EINTR",
    "rename": "EIO ENOSPC EXDEV EACCES ESTALE",
    "link": "EIO EXDEV EACCES EDQUOT",
    "unlink": "EIO EACCES ESTALE",
    "mkdir": "EIO ENOSPC EDQUOT EACCES",
    "lock": "EIO ESTALE ENOLCK EINTR",
    "truncate": "EIO ENOSPC EINTR",
    "close": "EIO ENOSPC EDQUOT EINTR",
    "stat": "EIO ESTALE EACCES ENOMEM",
    "map": "ENOMEM EACCES",
    "list": "EIO ESTALE EACCES ENOMEM EMFILE",
}
_OTHER_ACTIONS = {"read": ("short", "end"), "write": ("short", "kill-amid"), "sync": ("lose",)}


@dataclass(frozen=True)
class Point:
    """A disturbance of a command."""

    command: str
    strike: Strike

    def __str__(self) -> str:
        error = f":{errno.errorcode[self.strike.error]}" if self.strike.error else ""
        return f"{self.command}:{self.strike.operation}:{self.strike.number}:{self.strike.action}{error}"

    @classmethod
    def of(cls, text: str) -> Point:
        command, operation, number, action, *error = text.split(":")
        return cls(command, Strike(operation, int(number), action, getattr(errno, error[0]) if error else 0))


def faults_of(operation: str) -> Iterator[tuple[str, int]]:
    """(action, error) of all disturbances of an operation."""
    for name in _ERRORS[operation].split():
        yield "fail", getattr(errno, name)
        if name != "EINTR":  # Python repeats such a call until it succeeds
            yield "fail-always", getattr(errno, name)
    for action in (*_OTHER_ACTIONS.get(operation, ()), *_KILLS):
        yield action, 0


def chosen_points(command: str, trace: list[tuple[str, str]], most: int, seed: int) -> list[Point]:
    """A sample of all points: each kind of disturbance of each kind of file before any of them twice."""
    chance = random.Random(f"{seed} {command}")
    kinds: dict[tuple[str, str, str, int], list[int]] = defaultdict(list)
    numbers: Counter[str] = Counter()
    for operation, name in trace:
        numbers[operation] += 1
        for action, error in faults_of(operation):
            kinds[operation, kind_of(name), action, error].append(numbers[operation])
    for each in kinds.values():
        chance.shuffle(each)
    points: list[Point] = []
    while kinds and len(points) < most:
        order = list(kinds)
        chance.shuffle(order)
        for kind in order:
            operation, _, action, error = kind
            points.append(Point(command, Strike(operation, kinds[kind].pop(), action, error)))
            if not kinds[kind]:
                del kinds[kind]
    return points[:most]


def kind_of(name: str) -> str:
    """The role of a file: its path without what makes it one of many."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", name)
