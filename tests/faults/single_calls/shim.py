"""Build the shim, and arm it in the processes that it was loaded into."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("shim.c")

# In the order of the enums in shim.c.
OPERATIONS = (
    "open", "read", "write", "sync", "rename", "link", "unlink", "mkdir", "lock", "truncate", "close", "stat", "map", "list",
)  # fmt: skip
ACTIONS = ("fail", "fail-always", "short", "end", "lose", "kill-before", "kill-amid", "kill-after")
_TRACED, _NAME = 32768, 124


class _Call(ctypes.Structure):
    _fields_ = (("operation", ctypes.c_uint32), ("name", ctypes.c_char * _NAME))


class _Seen(ctypes.Structure):
    _fields_ = (
        ("counts", ctypes.c_uint64 * len(OPERATIONS)),
        ("struck", ctypes.c_uint32),
        ("where", ctypes.c_char * _NAME),
        ("traced", ctypes.c_uint32),
        ("trace", _Call * _TRACED),
    )


def missing() -> str | None:
    """Why the shim cannot be built here."""
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD needs Linux"
    return None if shutil.which("cc") else "cc, the C compiler, is not installed"


def build(folder: Path) -> Path:
    library = folder / "shim.so"
    words = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE"]
    subprocess.run([*words, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Strike:
    """The disturbance of one call: the `number`-th call of an operation."""

    operation: str
    number: int
    action: str
    error: int = 0

    @property
    def kills(self) -> bool:
        return self.action.startswith("kill")


class Shim:
    """The shim of this process, which was started with it in LD_PRELOAD."""

    def __init__(self, library: Path) -> None:
        if str(library) not in os.environ.get("LD_PRELOAD", ""):
            raise RuntimeError(f"start the process with LD_PRELOAD={library}")
        self._library = ctypes.CDLL(str(library))
        self._library.shim_seen.restype = ctypes.POINTER(_Seen)
        self._library.shim_arm.argtypes = (
            ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int,
        )  # fmt: skip
        self._seen: Any = self._library.shim_seen().contents

    def arm(self, folder: Path, strike: Strike | None) -> None:
        """Count the calls for files below the folder, and disturb one. Call it in a child."""
        chosen = strike or Strike(OPERATIONS[0], 0, ACTIONS[0])
        operation, action = OPERATIONS.index(chosen.operation), ACTIONS.index(chosen.action)
        self._library.shim_arm(os.fsencode(folder), operation, chosen.number, action, chosen.error)

    def disarm(self) -> None:
        self._library.shim_disarm()

    def forget(self) -> None:
        ctypes.memset(ctypes.addressof(self._seen), 0, ctypes.sizeof(_Seen))

    @property
    def where(self) -> str | None:
        """The file that was struck, relative to the folder; None if no call was struck."""
        return os.fsdecode(self._seen.where) or "." if self._seen.struck else None

    def trace(self) -> list[tuple[str, str]]:
        """Operation and file of each call of a child that only counted."""
        if self._seen.traced > _TRACED:
            raise RuntimeError(f"{self._seen.traced:,} calls are too many to be remembered")
        calls = self._seen.trace[: self._seen.traced]
        return [(OPERATIONS[call.operation], os.fsdecode(call.name)) for call in calls]
