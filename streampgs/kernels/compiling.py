"""Who is told that a loop is being compiled. It imports no compiler, so that the command line can use it early."""

from __future__ import annotations

from collections.abc import Callable

NOTE = "compiling the loops for this kind of model, once on this machine: some ten seconds"
listeners: list[Callable[[str], None]] = []
"""Each is called once with the note, in the thread that compiles a loop that is not on disk: compiling looks like a program
that hangs."""


def tell() -> None:
    while listeners:
        listeners.pop()(NOTE)
