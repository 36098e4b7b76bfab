"""Kill trainers with SIGKILL at random moments. The simulator and the shim kill at each access to the disk."""

from __future__ import annotations

import mmap
import random
import re
import shutil
import signal
import struct
import time
from pathlib import Path
from typing import Any

from streampgs.engine.engine import Engine
from tests.faults.torture.forks import Ended, in_child
from tests.faults.torture.subjects import Subject
from tests.faults.torture.tally import LOST, SURVIVED, Moment, Tally

_CADENCES = (0.0, 0.0, 0.004, 30.0)
_MEMORIES = ("60MB", "80MB", "512MB")
_LIVES = 4
_PROGRESS = struct.Struct("qd")


class Progress:
    """Rows that a child has trained on, readable after its death."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _PROGRESS.size)

    def reset(self) -> None:
        _PROGRESS.pack_into(self._shared, 0, 0, 0.0)

    def watch(self) -> None:
        """Count the rows of this process. Call it in the child."""
        advance = Engine.advance

        def watched(engine: Engine, rows: Any, first: int, stop: int, end: int | None = None) -> int:
            reached = advance(engine, rows, first, stop, end)
            done, began = _PROGRESS.unpack_from(self._shared)
            _PROGRESS.pack_into(self._shared, 0, done + reached - first, began or time.monotonic())
            return reached

        Engine.advance = watched  # type: ignore[method-assign]

    @property
    def rows(self) -> int:
        return int(_PROGRESS.unpack_from(self._shared)[0])

    @property
    def first_step(self) -> float:
        return float(_PROGRESS.unpack_from(self._shared)[1])


class Killer:
    """Kills the runs of one case. Each run is killed and resumed some times, unless it finishes first."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally
        self.chance = random.Random(0)
        self.progress = Progress()
        self.seconds = self._undisturbed_seconds()

    def _undisturbed_seconds(self) -> float:
        run = self.subject.new_run()
        began = time.perf_counter()
        in_child(lambda: str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256))
        shutil.rmtree(run)
        return time.perf_counter() - began

    def kill(self, number: int, chance: random.Random) -> None:
        self.chance = chance
        run, kills = self.subject.new_run(), 0
        while kills < _LIVES and self._is_killed(run):
            kills += 1
        self._finish(run, kills)
        shutil.rmtree(run, ignore_errors=True)

    def kill_processes(self, number: int, chance: random.Random) -> None:
        """Kill real processes of the command line at random moments, from start to exit."""
        subject, run, lives = self.subject, self.subject.new_run(), 0
        for _ in range(_LIVES - 1):
            process = subject.process(run, "--quiet", "--checkpoint-every", "0s")
            time.sleep(chance.uniform(0.3, 2.0))
            process.kill()
            lives += process.wait() == -signal.SIGKILL
        ended = in_child(lambda: str(subject.start_or_resume(run).dual_sha256))
        sound = ended.finished and ended.result == subject.expected and not leftovers(run)
        for _ in range(lives):
            self.tally.note("kill, a process of the command line", SURVIVED if sound else LOST, ended.message)
        shutil.rmtree(run, ignore_errors=True)

    def _is_killed(self, run: Path) -> bool:
        """Start or resume the run and kill it; False if it finished first."""
        before = newest_rows(run)
        cadence, memory = self.chance.choice(_CADENCES), self.chance.choice(_MEMORIES)
        kill_after = self.chance.uniform(0.0, 0.9 * self.seconds)
        ended = self._session(run, kill_after, checkpoint_seconds=cadence, memory=memory)
        if ended.killed:
            done = before + self.progress.rows
            self._lost = (self.subject.case.name, max(0, done - newest_rows(run)), done)
        elif not ended.finished:
            self.tally.note(f"kill, {self.subject.case.name}", LOST, f"before the kill: {ended.message}")
        return ended.killed

    def _session(self, run: Path, kill_after: float | None = None, **more: Any) -> Ended:
        self.progress.reset()

        def work() -> str:
            self.progress.watch()
            return str(self.subject.start_or_resume(run, **more).dual_sha256)

        return in_child(work, kill_after=kill_after)

    def _finish(self, run: Path, kills: int) -> None:
        """Resume to the end; the bits must be those of the undisturbed run."""
        began = time.monotonic()
        ended = self._session(run)
        sound = ended.finished and ended.result == self.subject.expected
        left = leftovers(run)
        message = f"left behind: {left}" if sound else ended.message
        for _ in range(kills):
            self.tally.note(f"kill, {self.subject.case.name}", LOST if left or not sound else SURVIVED, message)
        if kills and sound:
            recovery = self.progress.first_step - began if self.progress.first_step else 0.0
            self.tally.moments.append(Moment(*self._lost, recovery))


def newest_rows(run: Path) -> int:
    names = (re.match(r"checkpoint-(\d+)\.arrows$", path.name) for path in run.glob("checkpoint-*.arrows"))
    return max((int(name.group(1)) for name in names if name), default=0)


def leftovers(run: Path) -> list[str]:
    """Incomplete files that no later start would remove."""
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.is_file())
