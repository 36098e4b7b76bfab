"""Kill trainers with SIGKILL at the points where they access the disk, and at random moments."""

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
from tests.faults.torture.failpoints import Failpoints, Strike
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


def points_of(subject: Subject) -> dict[str, int]:
    """Passages of an undisturbed run by point."""
    run = subject.new_run()

    def work() -> dict[str, int]:
        points = Failpoints(subject.folder)
        with points.installed():
            subject.start_or_resume(run, checkpoint_seconds=0.0)
        return dict(points.passages)

    ended = in_child(work)
    shutil.rmtree(run)
    if not ended.finished:
        raise RuntimeError(ended.message)
    return dict(ended.result)


class Killer:
    """Kills the runs of one case. Each run is killed and resumed some times, unless it finishes first."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally
        self.chance = random.Random(0)
        self.progress = Progress()
        self.points = points_of(subject)
        ends = [Strike(point, number) for point, most in self.points.items() for number in sorted({1, most})]
        self.ends = self.chance.sample(ends, len(ends))
        """Each point at its first and last passage."""
        self.seconds = self._undisturbed_seconds()

    def _undisturbed_seconds(self) -> float:
        run = self.subject.new_run()
        began = time.perf_counter()
        in_child(lambda: str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256))
        shutil.rmtree(run)
        return time.perf_counter() - began

    def kill(self, number: int, chance: random.Random) -> None:
        self.chance = chance
        run, struck = self.subject.new_run(), []
        for life in range(_LIVES):
            strike = self._strike(_LIVES * number + life) if life == 0 or chance.random() < 0.7 else None
            where = self._one_life(run, strike)
            if where is None:
                break
            struck.append(where)
        self._finish(run, struck)
        shutil.rmtree(run, ignore_errors=True)

    def _strike(self, number: int) -> Strike:
        if number < len(self.ends):
            return self.ends[number]
        point = self.chance.choice(list(self.points))
        return Strike(point, self.chance.randint(1, self.points[point]))

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

    def _one_life(self, run: Path, strike: Strike | None) -> str | None:
        """Start or resume the run and kill it; returns the moment of the kill, None if the run finished first."""
        before = newest_rows(run)
        ended = self._session(run, strike)
        if not ended.killed:
            if not ended.finished:
                self.tally.note(f"kill, {self.subject.case.name}", LOST, f"before any strike: {ended.message}")
            return None
        where = f"{strike.point}, passage {strike.number}" if strike else "a random moment"
        done = before + self.progress.rows
        self._lost = (f"{self.subject.case.name}, {where}", max(0, done - newest_rows(run)), done)
        return where

    def _session(self, run: Path, strike: Strike | None) -> Ended:
        cadence, memory = self.chance.choice(_CADENCES), self.chance.choice(_MEMORIES)
        kill_after = None if strike else self.chance.uniform(0.0, self.seconds)
        self.progress.reset()

        def work() -> str:
            self.progress.watch()
            points = Failpoints(self.subject.folder, strike)
            with points.installed():
                return str(self.subject.start_or_resume(run, checkpoint_seconds=cadence, memory=memory).dual_sha256)

        return in_child(work, kill_after=kill_after)

    def _finish(self, run: Path, struck: list[str]) -> None:
        """Resume to the end; the bits must be those of the undisturbed run."""
        self.progress.reset()

        def work() -> str:
            self.progress.watch()
            return str(self.subject.start_or_resume(run).dual_sha256)

        began = time.monotonic()
        ended = in_child(work)
        sound = ended.finished and ended.result == self.subject.expected
        left = leftovers(run)
        for where in struck:
            kind = f"kill, {where.partition(',')[0]}"
            if sound and not left:
                self.tally.note(kind, SURVIVED)
            else:
                message = f"left behind: {left}" if sound else ended.message
                self.tally.note(kind, LOST, f"{self.subject.case.name}: {struck}: {message}")
        if struck and sound:
            recovery = self.progress.first_step - began if self.progress.first_step else 0.0
            self.tally.moments.append(Moment(*self._lost, recovery))


def newest_rows(run: Path) -> int:
    names = (re.match(r"checkpoint-(\d+)\.arrows$", path.name) for path in run.glob("checkpoint-*.arrows"))
    return max((int(name.group(1)) for name in names if name), default=0)


def leftovers(run: Path) -> list[str]:
    """Incomplete files that no later start would remove."""
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*") if path.is_file())
