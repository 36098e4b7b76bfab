"""Producers that fail: they die in the middle of a batch or between two, stall, or continue with another table."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from streampgs.run.folder import RunFolder
from streampgs.run.report import StopRequest
from tests.faults.torture.forks import CRASHED, Ended, in_child
from tests.faults.torture.kills import leftovers
from tests.faults.torture.subjects import StreamSubject, produce
from tests.faults.torture.tally import LOST, REFUSED, SURVIVED, Tally

_STALLED_SECONDS = 30.0
_SESSIONS = 3

Producer = Callable[[int], None]
"""Writes a stream to this descriptor."""


class StreamTrials:
    """Several sessions on one stream. Where a producer ends early, the last window of its session ends early, too: the bits
    must be those of sound producers that end at the same rows."""

    def __init__(self, subject: StreamSubject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally
        self.table = subject.table

    def dying(self, number: int, chance: Random) -> None:
        """In the middle of a batch, or after one without the mark that ends a stream."""
        run, ends, message = self.subject.new_run(), list[int](), ""
        for _ in range(_SESSIONS):
            first = _taken(run)
            cut = chance.randint(first, (first + self.table.num_rows) // 2)
            ended = self._session(run, self._broken(first, cut, chance.random() < 0.5, chance))
            now = _taken(run)
            sound = ended.finished or ended.refused
            if not sound or now not in ({first, cut} if ended.refused else {cut}):
                self._note("producer dies", LOST, f"cut at row {cut}, {now} rows taken: {ended.message}")
                return
            message = ended.message if ended.refused else message
            if now > first:
                ends.append(now)
            if message and not _begun(run):
                run = self.subject.new_run()  # it ended before the first step, and nothing was kept
        self._finish("producer dies", run, ends, message)

    def changing(self, number: int, chance: Random) -> None:
        """After some rows a table of other columns follows, or the stream begins with one."""
        run, message = self.subject.new_run(), ""
        for _ in range(_SESSIONS):
            first = _taken(run)
            cut = chance.randint(first + 1, (first + self.table.num_rows) // 2)
            if _begun(run) and chance.random() < 0.3:
                cut = first
            ended = self._session(run, self._with_another_table(first, cut, chance))
            now = _taken(run)
            if not ended.refused or not first <= now <= cut:
                self._note("another table in the stream", LOST, f"cut {cut}, {now} rows taken: {ended.message}")
                return
            message = ended.message
        self._finish("another table in the stream", run, [], message)

    def stalling(self, number: int, chance: Random) -> None:
        """The producer stops writing without an end, until the trainer is stopped or killed."""
        run = self.subject.new_run()
        for _ in range(_SESSIONS):
            first, by = _taken(run), chance.choice((signal.SIGTERM, signal.SIGKILL))
            stalled = self._stalled(first, chance.randint(first, self.table.num_rows), chance)
            ended = self._session(run, stalled, kill_after=chance.uniform(0.05, 0.6), by=by)
            if ended.hung or ended.code == CRASHED:
                self._note("producer stalls", LOST, f"after {by.name}: {ended.message}")
                return
        self._finish("producer stalls", run, [], "")

    # Sessions.

    def _session(self, run: Path, producer: Producer, **more: Any) -> Ended:
        return in_child(lambda: self._until_stopped(run, producer), **more)

    def _until_stopped(self, run: Path, producer: Producer) -> str:
        """SIGTERM saves and ends, as on the command line."""
        stop = StopRequest()
        signal.signal(signal.SIGTERM, lambda *_: stop.ask("SIGTERM"))
        return str(self.subject.session(run, producer, stop=stop, checkpoint_seconds=0.0).dual_sha256)

    def _finish(self, name: str, run: Path, ends: list[int], message: str) -> None:
        again = in_child(lambda: str(self.subject.start_or_resume(run).dual_sha256))
        expected, left = self._expected(ends), leftovers(run)
        if not again.finished:
            self._note(name, LOST, f"the last session ended with: {again.message}")
        elif again.result != expected or left:
            self._note(name, LOST, f"other bits than with ends at {ends}, or files left behind: {left}")
        else:
            self._note(name, REFUSED if message else SURVIVED, message)
        shutil.rmtree(run, ignore_errors=True)

    def _expected(self, ends: list[int]) -> str:
        """The digest of sessions with sound producers that end at these rows."""
        if not ends:
            return self.subject.expected
        run, result = self.subject.new_run(), ""
        bounds = [0, *ends, self.table.num_rows]
        for first, stop in pairwise(bounds):
            rows = self.table.slice(first, stop - first)
            ended = in_child(
                lambda rows=rows: str(self.subject.session(run, lambda fd: produce(rows, fd, Random(0))).dual_sha256)  # type: ignore[misc]
            )
            assert ended.finished, ended.message
            result = ended.result
        shutil.rmtree(run)
        return result

    def _note(self, name: str, outcome: str, message: str) -> None:
        self.tally.note(name, outcome, f"{self.subject.case.name}: {message}")

    # Producers.

    def _broken(self, first: int, cut: int, torn: bool, chance: Random) -> Producer:
        """Ends before row `cut`; `torn`: with a part of the next batch."""
        rows, share = self.table.slice(first, cut - first), chance.random()

        def producer(fd: int) -> None:
            produce(rows, fd, chance, ends=False)
            if torn:
                batch = self.table.slice(cut, 50).combine_chunks().to_batches()[0].serialize().to_pybytes()
                os.write(fd, batch[: int(share * len(batch))])

        return producer

    def _with_another_table(self, first: int, cut: int, chance: Random) -> Producer:
        other = pa.table({"label": [1, -1] * 50, "else": ["a", "b"] * 50})

        def producer(fd: int) -> None:
            if cut > first:
                produce(self.table.slice(first, cut - first), fd, chance)
            produce(other, fd, chance)

        return producer

    def _stalled(self, first: int, cut: int, chance: Random) -> Producer:
        def producer(fd: int) -> None:
            produce(self.table.slice(first, cut - first), fd, chance, ends=False)
            time.sleep(_STALLED_SECONDS)

        return producer


def _begun(run: Path) -> bool:
    return (run / "run.arrows").exists()


def _taken(run: Path) -> int:
    """Rows of the stream in the newest checkpoint."""
    checkpoint = RunFolder(run).newest_checkpoint() if _begun(run) else None
    return 0 if checkpoint is None else int(checkpoint.sections["worker"].values["taken"])
