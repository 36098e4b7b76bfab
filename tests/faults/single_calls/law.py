"""The law: after any fault the same result; or an error with a remedy, and then, without the fault, the same result."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.single_calls.command_line import CRASHED, Said, run_command, run_here
from tests.faults.single_calls.commands import Command, digest, restore
from tests.faults.single_calls.points import Point, kind_of
from tests.faults.single_calls.shim import Shim, Strike

SAME, REFUSED, KILLED, MISSED = "same", "error, then same", "killed, then same", "not reached"
LOST, WRONG, CRASH, UNCLEAR = "lost", "wrong result", "crash", "bad message"
GOOD, BAD = (SAME, REFUSED, KILLED, MISSED), (LOST, WRONG, CRASH, UNCLEAR)


@dataclass(frozen=True)
class Verdict:
    point: Point
    where: str | None
    """The file that was struck."""
    outcome: str
    why: str = ""
    """For a bad outcome: the reason, and the last lines of standard error."""


class Fault(Exception):
    """The law was broken."""

    def __init__(self, outcome: str, why: str) -> None:
        super().__init__(why)
        self.outcome = outcome


class Court:
    """Disturbs one command in a folder of its own."""

    def __init__(self, name: str, command: Command, shim: Shim, base: Path) -> None:
        self.name, self.command, self.shim = name, command, shim
        self.folder, self.kept, self.printed = (base / part for part in ("here", "kept", "printed"))
        for folder in (self.folder, self.kept, self.printed):
            folder.mkdir(parents=True)
        command.make(self.folder, self._run_to_the_end)
        for part in command.changes:
            if (self.folder / part).exists():
                shutil.move(self.folder / part, self.kept / part)
        self._inputs = self._state_of_inputs()
        self.trace = self._count()

    def _run_to_the_end(self, words: str) -> None:
        """In this process, so that later children find modules and compiled loops loaded."""
        run = run_command if self.command.on_store else run_here  # connections do not survive a fork
        said = run(words.split(), self.folder, self.printed, self.stdin)
        if said.code:
            raise RuntimeError(f"streampgs {words}: code {said.code}: {said.err}")

    def _run(self, words: str, prepare: Callable[[], None] = lambda: None) -> Said:
        return run_command(words.split(), self.folder, self.printed, self.stdin, prepare)

    @property
    def stdin(self) -> Path | None:
        return self.folder.parent / self.command.stdin if self.command.stdin else None

    def _count(self) -> list[tuple[str, str]]:
        """Run the command undisturbed: first in this process, then in a child, for its result and its calls."""
        restore(self.kept, self.folder, self.command.changes)
        self._run_to_the_end(self.command.words)
        said = self._disturbed(None)
        if said.code:
            raise RuntimeError(f"{self.name}: code {said.code}: {said.err}")
        trace = self.shim.trace()
        self.expected = self.command.result(self.folder, said.out)
        self.outputs = self.command.outputs(self.folder)
        self.kinds = self._kinds_of_files()
        return trace

    def _disturbed(self, strike: Strike | None) -> Said:
        restore(self.kept, self.folder, self.command.changes)
        self.shim.forget()
        return self._run(self.command.words, partial(self.shim.arm, self.folder, strike))

    def _state_of_inputs(self) -> dict[str, str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        names = ((path.relative_to(self.folder), path) for path in files)
        return {str(name): digest(path) for name, path in names if name.parts[0] not in self.command.changes}

    def _kinds_of_files(self) -> set[str]:
        return {kind_of(str(path.relative_to(self.folder))) for path in self.folder.rglob("*")}

    def judge(self, point: Point) -> Verdict:
        said = self._disturbed(point.strike)
        where = self.shim.where
        try:
            outcome = self._outcome(point.strike, said, where)
            self._check_outputs()
            if self.command.changes:
                self._check_recovery()
            self._check_files()
        except Fault as fault:
            return Verdict(point, where, fault.outcome, f"{fault}\n{_end_of(said)}")
        return Verdict(point, where, outcome)

    def _outcome(self, strike: Strike, said: Said, where: str | None) -> str:
        if said.hung:
            raise Fault(CRASH, "the command hung")
        if said.killed and strike.kills and where:
            return KILLED
        if said.code < 0 or said.code == CRASHED or "Traceback" in said.err:
            raise Fault(CRASH, f"ended with code {said.code}")
        if strike.error and re.search(r"damaged|shortened|restore it", said.err):
            raise Fault(UNCLEAR, "a passing fault is called damage")
        if said.code:
            _check_message(said)
            if strike.action == "short":
                raise Fault(UNCLEAR, "an error after a short read or write")
            return REFUSED
        self._check_result(said, WRONG)
        return SAME if where else MISSED

    def _check_result(self, said: Said, outcome: str) -> None:
        found: Any = self.command.result(self.folder, said.out)
        if found != self.expected:
            raise Fault(outcome, f"another result: {_difference(found, self.expected)}")

    def _check_outputs(self) -> None:
        """A file under its own name is complete."""
        for name, found in self.command.outputs(self.folder).items():
            if self.outputs.get(name) != found:
                raise Fault(WRONG, f"'{name}' is there, but it is not the file of an undisturbed run")

    def _check_recovery(self) -> None:
        again = self.command.again(self.folder) if self.command.again else self.command.words
        said = self._run(again)
        if said.code:
            raise Fault(LOST, f"after the fault, 'streampgs {again}' ended with code {said.code}: {_end_of(said)}")
        self._check_result(said, LOST)
        self._check_outputs()

    def _check_files(self) -> None:
        if left := self._kinds_of_files() - self.kinds:
            raise Fault(LOST, f"left behind: {sorted(left)}")
        if self._state_of_inputs() != self._inputs:
            raise Fault(LOST, "the inputs were changed")


def _check_message(said: Said) -> None:
    if not re.search(r"^error: .", said.err, re.MULTILINE) and "Usage:" not in said.err:
        raise Fault(UNCLEAR, f"code {said.code} without an error")
    if "→" not in said.err:
        raise Fault(UNCLEAR, "an error without a remedy")
    if "'" not in said.err:
        raise Fault(UNCLEAR, "an error that names no file")


def _end_of(said: Said) -> str:
    """The last lines of standard error, without hints."""
    lines = [line for line in said.err.strip().splitlines() if "note: the first window mixes" not in line]
    return "\n".join(lines)[-800:]


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [name for name in {**found, **expected} if found.get(name) != expected.get(name)]
        return "; ".join(f"{name} {found.get(name)} instead of {expected.get(name)}" for name in names)[:300]
    return f"{found!r:.150} instead of {expected!r:.150}"
