"""Other faults: limits of the operating system, too little memory, clocks that jump, shards that shrink while they are read, and
two trainers of one run."""

from __future__ import annotations

import os
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.base.errors import RunError
from streampgs.formats.parquet import ParquetShard
from tests.faults.torture.forks import Ended, address_space, in_child
from tests.faults.torture.kills import leftovers
from tests.faults.torture.subjects import Subject
from tests.faults.torture.tally import LOST, REFUSED, SURVIVED, Tally

_MEGABYTE = 1 << 20


def judge(subject: Subject, tally: Tally, name: str, run: Path, ended: Ended) -> None:
    """The disturbed run may have ended with the right bits or an error that names a place; a plain resume must give the right
    bits and leave nothing behind."""
    again = in_child(lambda: str(subject.start_or_resume(run).dual_sha256))
    left = leftovers(run)
    named = ended.refused and "'" in ended.message
    right = ended.finished and ended.result in (None, subject.expected)
    message = ended.message
    if not (named or right):
        outcome = LOST
        message = "other bits, without an error" if ended.finished else message
    elif not again.finished:
        outcome, message = LOST, f"after {message}: the resume ended with: {again.message}"
    elif again.result != subject.expected or left:
        outcome, message = LOST, f"after {message}: the resume gave other bits, or left files behind: {left}"
    else:
        outcome = REFUSED if named else SURVIVED
    tally.note(name, outcome, f"{subject.case.name}: {message}")
    shutil.rmtree(run, ignore_errors=True)


class Trials:
    """Disturbs runs of one case, a new run for each attempt, then resumes them undisturbed and compares the result."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally

    def _try(self, name: str, work: Callable[[Path], Any], seconds: float = 60.0) -> None:
        """The disturbed run may end with any result or a clear error; the resume after it must be right."""
        run = self.subject.new_run()
        ended = in_child(lambda: work(run), seconds)
        judge(self.subject, self.tally, name, run, ended)

    def sizes(self, number: int, chance: random.Random) -> None:
        """The operating system limits the size of files (RLIMIT_FSIZE)."""
        self._try("files may not grow", self._limited(resource.RLIMIT_FSIZE, chance.randint(0, 12_000)))

    def descriptors(self, number: int, chance: random.Random) -> None:
        """The operating system limits the number of open files (RLIMIT_NOFILE)."""
        # With fewer the library of the store ends the process (docs/guarantees.md).
        left = chance.randint(6 if self.subject.case.needs_store else 0, 24)
        self._try("few descriptors", self._limited(resource.RLIMIT_NOFILE, _descriptors_with(left)))

    def _limited(self, what: int, most: int) -> Callable[[Path], str]:
        def work(run: Path) -> str:
            resource.setrlimit(what, (most, most))
            return str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256)

        return work

    # Memory and time.

    def memory(self, number: int, chance: random.Random) -> None:
        """The operating system limits the address space."""
        more = chance.randint(-8, 320) * _MEGABYTE

        def work(run: Path) -> str:
            pa.set_cpu_count(1)
            resource.setrlimit(resource.RLIMIT_AS, (address_space() + more, resource.RLIM_INFINITY))
            try:
                return str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256)
            except RunError as error:  # of the machine and not of a file
                raise RunError(f"'memory': {error.found}", error.remedy) from error
            except (MemoryError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and "thread" not in str(error):
                    raise
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
                # As the command line reports it (test_out_of_memory_is_an_error checks that it does).
                raise RunError(f"'memory': {error}", "raise the limit") from error

        run = self.subject.new_run()
        ended = in_child(lambda: work(run), seconds=15.0)
        kind = "out of memory"
        if ended.hung:  # Python waits forever for a thread that got no memory to start; only kill -9 helps
            kind, ended = "out of memory, killed as Python hung", Ended(0, None)
        judge(self.subject, self.tally, kind, run, ended)

    def clocks(self, number: int, chance: random.Random) -> None:
        """Clocks that jump forward and back at each call, and files from the future."""

        def work(run: Path) -> str:
            for name in ("time", "monotonic", "perf_counter"):
                setattr(time, name, _jumping(getattr(time, name), chance))
            time.time_ns = lambda: int(time.time() * 1e9)
            result = str(self.subject.start_or_resume(run, checkpoint_seconds=0.5).dual_sha256)
            for path in run.rglob("*"):
                os.utime(path, (4e9, 4e9))
            return result

        self._try("clocks jump", work)

    # Others.

    def shrinking(self, number: int, chance: random.Random) -> None:
        """A shard becomes shorter while it is read: no signal may kill the process, and the error must name the shard."""
        shard, share, passage = chance.choice(self.subject.files), chance.random(), chance.randint(1, 40)
        run = self.subject.new_run()

        def work() -> str:
            _shorten_at(passage, shard, int(share * shard.stat().st_size))
            return str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256)

        ended = in_child(work)
        shutil.copy2(self.subject.full / shard.name, shard)
        if ended.refused and shard.name not in ended.message:
            ended = Ended(70, {"found": f"an error that does not name {shard.name}: {ended.message}", "remedy": ""})
        judge(self.subject, self.tally, "shard shortened while read", run, ended)

    def two_trainers(self, number: int, chance: random.Random) -> None:
        """Two trainers of one run at the same time: one trains, the other ends with an error."""
        run = self.subject.new_run()

        def train() -> str:
            return str(self.subject.start_or_resume(run, checkpoint_seconds=0.0).dual_sha256)

        def both() -> str:
            other = os.fork()
            if other == 0:
                os._exit(in_child(train).code & 127)
            try:
                return train()
            finally:
                code = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
                if code not in (0, 1):
                    raise RuntimeError(f"the other ended with {code}")

        judge(self.subject, self.tally, "two trainers", run, in_child(both))


def _descriptors_with(left: int) -> int:
    """The limit that leaves so many descriptors to a child, which has one more than this process."""
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = (number for number in count() if number not in used)
    return next(islice(free, left, None)) + 1


def _jumping(clock: Callable[[], float], chance: random.Random) -> Callable[[], float]:
    def jumped() -> float:
        return clock() + chance.choice((0.0, 0.0, 1e-3, -1e-3, 3600.0, -3600.0, 1e9, -1e9))

    return jumped


def _shorten_at(passage: int, shard: Path, size: int) -> None:
    """In the child: shorten the shard at the n-th read of any block, raw or decoded."""
    passed = [0]

    def count() -> None:
        passed[0] += 1
        if passed[0] == passage:
            os.truncate(shard, size)

    read_block, slices = os.preadv, ParquetShard.decode

    def reading(*words: Any) -> int:
        count()
        return read_block(*words)

    def decoding(self: ParquetShard, group: int, slice_rows: int, *more: Any) -> Iterator[pa.RecordBatch]:
        count()
        for batch in slices(self, group, max(1, slice_rows // 4), *more):
            yield batch
            count()

    os.preadv = reading  # type: ignore[assignment]
    ParquetShard.decode = decoding  # type: ignore[method-assign]
