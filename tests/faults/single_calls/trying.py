"""Tries points of commands, each a call that is disturbed, in processes that have the shim."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import streampgs.base.faults
from tests.faults.single_calls import shim
from tests.faults.single_calls.commands import COMMANDS, STORED, in_bucket
from tests.faults.single_calls.law import BAD, CRASH, GOOD, Court, Verdict
from tests.faults.single_calls.points import Point, chosen_points, kind_of
from tests.faults.single_calls.shim import Strike
from tests.stores import moto

_LISTED = 3
"""Points listed for each kind of failure."""


@dataclass(frozen=True)
class Tried:
    """The verdicts on the points of one command."""

    command: str
    calls: int
    """Calls of an undisturbed run."""
    verdicts: list[Verdict]
    seconds: float

    def count(self, outcome: str) -> int:
        return sum(verdict.outcome == outcome for verdict in self.verdicts)


def try_command(name: str, library: Path, folder: Path, points: int | list[Point], seed: int) -> Tried:
    """In a worker process: the points, or a sample of so many."""
    began = time.perf_counter()
    streampgs.base.faults.PAUSES = (0.0,) * len(streampgs.base.faults.PAUSES)
    try:
        court = Court(name, COMMANDS[name], shim.Shim(library), folder / name)
    except RuntimeError as error:  # it does not even work without a fault
        return Tried(name, 0, [Verdict(Point(name, Strike("open", 0, "fail")), None, CRASH, str(error))], 0.0)
    chosen = chosen_points(name, court.trace, points, seed) if isinstance(points, int) else points
    verdicts = [court.judge(point) for point in chosen]
    shutil.rmtree(folder / name)
    return Tried(name, len(court.trace), verdicts, time.perf_counter() - began)


def try_commands(points: dict[str, int | list[Point]], folder: Path, seed: int, workers: int) -> Iterator[Tried]:
    """For each command so many points, or these."""
    library = shim.build(folder)
    preloading = {"LD_PRELOAD": str(library), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    before = {name: os.environ.get(name) for name in preloading}
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        os.environ |= preloading  # of the workers, which start at the first task
        results = [pool.submit(try_command, name, library, folder, each, seed) for name, each in points.items()]
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        for result in results:
            yield result.result()


@contextmanager
def scratch(base: Path | None = None) -> Iterator[Path]:
    """A temporary folder, in memory if possible: there, syncing takes no time."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=base or (memory if os.access(memory, os.W_OK) else None)) as folder:
        yield Path(folder).resolve()


@contextmanager
def store(names: Iterable[str], folder: Path) -> Iterator[None]:
    """For commands that need one: an object store on this machine, in the environment of the workers."""
    if not any(COMMANDS[name].on_store for name in names):
        yield
        return
    server = moto.Moto()
    try:
        server.upload(in_bucket(folder), STORED)
        os.environ |= {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield
    finally:
        server.kill()


def table(tried: list[Tried]) -> str:
    """Markdown with a line for each command."""
    head = ["command", "calls", "points", *GOOD, *BAD]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    counts = [[each.calls, len(each.verdicts), *map(each.count, (*GOOD, *BAD))] for each in tried]
    names = [each.command for each in tried]
    if len(tried) > 1:
        counts.append([sum(column) for column in zip(*counts, strict=True)])
        names.append("all")
    for name, figures in zip(names, counts, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
    return "\n".join(lines)


def failures(tried: list[Tried]) -> Iterator[str]:
    """Each kind of failure once, with a line that repeats it."""
    kinds: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for each in tried:
        for verdict in each.verdicts:
            if verdict.outcome in BAD:
                kinds[verdict.outcome, _without_details(verdict.why)].append(verdict)
    for (outcome, _), verdicts in sorted(kinds.items(), key=lambda kind: BAD.index(kind[0][0])):
        first = verdicts[0]
        why = first.why.replace("\n", "\n    ")
        points = "".join(
            f"\n    python -m scripts.checks.faults --point {verdict.point}" for verdict in verdicts[:_LISTED]
        )
        yield f"{outcome.upper()} ({len(verdicts)} times), '{first.where}': {why}{points}"


def _without_details(why: str) -> str:
    """What failures have in common that differ in the error of the system or in the file's number."""
    lines = [line for line in why.splitlines() if not line.startswith("note: ") or "damaged" in line]
    texts = sorted(map(os.strerror, errno.errorcode), key=len, reverse=True)
    return kind_of(re.sub("|".join(map(re.escape, texts)), "#", re.sub(r"\S*/", "", "\n".join(lines)))).lower()
