"""Who is told that a loop is being compiled. It imports no compiler, so that the command line can use it early."""

from __future__ import annotations

from collections.abc import Callable

NOTE = "compiling the loops for this kind of model, once on this machine: some 15 seconds"
listeners: list[Callable[[], None]] = []
"""Called, in the thread that compiles, for each loop that is not on disk."""


def tell() -> None:
    for listener in listeners:
        listener()
