"""Damage the files of a paused run and its shards as a disk or a careless user may damage them.

The resume must end with the bits of the undisturbed run, or refuse with an error that names the file. If it refuses, the
file is restored, and then the resume must end with those bits.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.torture.forks import Ended, in_child
from tests.faults.torture.subjects import Subject
from tests.faults.torture.tally import LOST, REFUSED, SURVIVED, Tally

Change = Callable[[bytes, random.Random], bytes]


def _flip(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _flip_many(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(2, 64)):
        changed[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _zeros(data: bytes, chance: random.Random) -> bytes:
    """Like a block that never reached the disk."""
    first = chance.randrange(len(data))
    size = min(len(data) - first, chance.choice((1, 512, 4096)))
    return data[:first] + bytes(size) + data[first + size :]


def _longer(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.randint(1, 5000))


def _cut_inside(data: bytes, chance: random.Random) -> bytes:
    first = chance.randrange(len(data))
    return data[:first] + data[first + chance.randint(1, 100) :]


CHANGES: dict[str, Change] = {
    "bit flipped": _flip,
    "bytes overwritten": _flip_many,
    "truncated": _cut,
    "block of zeros": _zeros,
    "made longer": _longer,
    "bytes cut out": _cut_inside,
}
KINDS = ("checkpoint", "catalog", "run", "encoding", "metrics", "history", "lock")


class Paused:
    """A run of a case, paused in the middle, to be copied for each attempt."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.run = subject.new_run()
        # In the second epoch decoded groups are in the cache and are read again.
        rows = subject.case.rows * 3 // 2
        ended = in_child(
            lambda: subject.start_or_resume(self.run, epochs=None, rows=rows, checkpoint_seconds=0.0).stopped_by
        )
        if not ended.finished:
            raise RuntimeError(ended.message)
        self.files = sorted(path for path in self.run.rglob("*") if path.is_file())

    def copied(self) -> Path:
        copy = self.subject.folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy, symlinks=True)
        return copy


def kind_of(path: Path) -> str:
    if path.suffix in (".arrow", ".parquet", ".shard"):
        return "copy" if path.suffix == ".shard" else "shard"
    known = next((kind for kind in KINDS if path.name.startswith(kind)), None)
    return known or "cache"


class Damager:
    def __init__(self, subject: Subject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally
        self.chance = random.Random(0)
        self.paused = Paused(subject)

    def damage(self, number: int, chance: random.Random) -> None:
        """Each kind of file equally often, however many files of it there are."""
        self.chance = chance
        by_kind: dict[str, list[Path]] = {}
        for path in [*self.paused.files, *self.subject.files]:
            by_kind.setdefault(kind_of(path), []).append(path)
        kinds = sorted(by_kind)
        kind = kinds[number % len(kinds)]
        change = chance.choice(sorted(CHANGES))
        if kind == "shard":
            self._damage_shard(chance.choice(by_kind[kind]), change)
        elif kind == "checkpoint" and chance.random() < 0.3:
            self._damage(by_kind[kind], change)
        else:
            self._damage([chance.choice(by_kind[kind])], change)

    def _damage(self, originals: list[Path], change: str) -> None:
        run = self.paused.copied()
        files = [run / original.relative_to(self.paused.run) for original in originals]
        for file in files:
            whole = file.read_bytes()
            file.write_bytes(CHANGES[change](whole, self.chance) if whole else b"\0")
        ended = self._resume(run)
        outcome, message = self._judged(ended, files)
        if outcome == REFUSED:
            for file, original in zip(files, originals, strict=True):
                shutil.copy2(original, file)
            outcome, message = self._after_restoring(run, message)
        self.tally.note(f"damage, {kind_of(originals[0])} {change}", outcome, f"{self.subject.case.name}: {message}")

    def _damage_shard(self, shard: Path, change: str) -> None:
        run, whole, status = self.paused.copied(), shard.read_bytes(), shard.stat()
        changed = CHANGES[change](whole, self.chance)
        try:
            shard.write_bytes(changed)
            ended = self._resume(run)
        finally:
            shard.write_bytes(whole)
            os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
        outcome, message = self._judged(ended, [shard])
        if outcome == REFUSED:
            outcome, message = self._after_restoring(run, message)
        elif outcome == SURVIVED:
            outcome, message = LOST, "a changed shard was read without an error"
        self.tally.note(f"damage, shard {change}", outcome, f"{self.subject.case.name}: {message}")

    def _resume(self, run: Path) -> Ended:
        return in_child(lambda: str(self.subject.start_or_resume(run).dual_sha256))

    def _judged(self, ended: Ended, files: list[Path]) -> tuple[str, str]:
        if ended.finished:
            same = ended.result == self.subject.expected
            return (SURVIVED, "") if same else (LOST, "other bits, without an error")
        named = ended.refused and any(file.name in ended.message for file in files)
        return (REFUSED, ended.message) if named else (LOST, ended.message)

    def _after_restoring(self, run: Path, message: str) -> tuple[str, str]:
        again = self._resume(run)
        if again.finished and again.result == self.subject.expected:
            return REFUSED, message
        return LOST, f"after the file was restored: {again.message}"
