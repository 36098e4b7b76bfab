"""One history of a run: sessions with kills, power failures, faults and pauses, between which the table changes. At the end
the run must be the one that an undisturbed history with the same arrivals at the same rows gives."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from scripts.simulator_parts import undisturbed
from scripts.simulator_parts.disk import File, Killed, Node
from scripts.simulator_parts.laws import LawBroken
from scripts.simulator_parts.learner import MOST_EPOCHS, Visits
from scripts.simulator_parts.machine import ROOT, Machine
from scripts.simulator_parts.source import SimulatedSource
from scripts.simulator_parts.table import TableFolder
from scripts.simulator_parts.tally import Tally
from streampgs.data.refresh import Refreshed, Refresher, Table
from streampgs.engine.worker import cursor_in
from streampgs.errors import RunError, StreampgsError
from streampgs.options import Growth, Limits, ModelOptions, Resources
from streampgs.run import start
from streampgs.run.checkpoint import Checkpoint, newest_checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.report import StopRequest
from streampgs.run.saved import saved_run
from streampgs.run.shard_input import ShardInput
from streampgs.run.trainer import Trainer
from streampgs.stage import Bundle

RUN, DATA = Path(ROOT, "runs", "first", "run"), f"{ROOT}/data"
_FAULTS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES)
_FAULTS_OF_LOOKS = {
    "open": (errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES),
    "read": (errno.EIO, errno.ESTALE),
    "stat": (errno.EIO, errno.ESTALE, errno.EACCES),
    "list": (errno.EIO, errno.EACCES, errno.EMFILE),
}


@dataclass(frozen=True)
class Placed:
    """Shards were given a place in the order of rows."""

    rows: int
    """Trained on before."""
    arguments: tuple[Any, ...]
    """Of Refresher: the look, the lost shards, and whether the epoch begins again."""
    growth: Growth
    epochs: int | None
    sources: tuple[str, ...]
    files: Mapping[str, Node]


@dataclass(frozen=True)
class Lineage:
    """How the state of a checkpoint came about."""

    base: ShardInput
    placed: tuple[Placed, ...] = ()


@dataclass
class Plan:
    """The events of a session. Numbers count from its start; 0: it does not happen."""

    kill_at: int = 0
    """Before this operation of the disk."""
    loses_power: bool = False
    fault_at: int = 0
    fault: int = 0
    fault_lasts: bool = False
    """All later operations fail, too."""
    look_fault_at: int = 0
    """At this call that only looks at the disk."""
    stop_at: int = 0
    """After this stretch of rows SIGTERM arrives."""
    change_at: int = 0
    """After this stretch the table changes."""
    limits: Limits = field(default_factory=Limits)
    growth: Growth = field(default_factory=Growth)
    resources: Resources = field(default_factory=Resources)
    sleeps: int = 3
    """After so many looks for shards SIGTERM arrives."""


class WholeHistory:
    def __init__(self, machine: Machine, seed: int, say: Callable[[str], None] | None = None) -> None:
        self.machine, self.random, self.say = machine, Random(seed), say or (lambda line: None)
        self.tally = Tally(1)
        machine.renew(seed)
        self.disk = machine.disk
        classes = self.random.choice((0, 0, 3))
        columns = self.random.choice((0, 0, 0, 2))
        self.table = TableFolder(self.disk, DATA, self.random, classes, columns)
        for _ in range(self.random.randint(1, 4)):
            self.say(self.table.add())
        self.options = ModelOptions(
            solver="visits",
            loss="logistic" if classes else "squared",
            intercept=0.0,
            seed=self.random.randrange(1 << 40),
            sampling=self.random.choice(("epoch",) * 9 + ("independent",)),
        )
        self.window = self.random.choice((1000, 3000) if columns else (400_000, 600_000, 2_000_000))
        self.cached = None if self.options.sampling == "independent" else self.random.choice((None, None, 0, 200_000))
        self.lineage: Lineage | None = None
        self.trainer: Trainer | None = None
        self.stop = StopRequest()
        self.plan = Plan()
        self.stretches = 0
        self.is_reading = False
        self.faulted = False
        """Whether a fault was injected in this session."""
        self.rows = 0
        self.epoch = 0
        self._known: dict[str, tuple[int, Lineage]] = {}
        """By what they hold: the number and the lineage of the checkpoints that were begun."""
        self._begun = 0
        self._reported = 0
        """The number of the newest checkpoint that was said to be written."""
        self._spoiled: set[str] = set()
        """Names of checkpoints that were damaged by us."""

    def run(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 2, 3, 5))):
            self._session(self._plan())
            for _ in range(self.random.choice((0, 0, 1, 1, 2))):
                self._change_table()
            if self.random.random() < 0.03:
                self._spoil()
        reason = self._finish()
        if reason is None:
            undisturbed.compare(self)
            self.count("same bits")
            for name in self.disk.folder(str(RUN)).names:
                if name.startswith("encoding"):
                    self.count("encodings that grew" if "-" in name else "encodings")
        else:
            self.tally.refusals[f"for good: {reason}"] += 1
        self.tally.counts["operations of the disk"] += self.disk.operations

    def count(self, what: str) -> None:
        self.tally.counts[what] += 1

    # Sessions.

    def _plan(self) -> Plan:
        random, plan = self.random, Plan(limits=self._limits())
        fate = random.random()
        most = random.choice((8, 15, 40, 90))
        if fate < 0.55:
            plan.kill_at, plan.loses_power = random.randint(1, most), fate < 0.35
        elif fate < 0.65:
            plan.fault_at, plan.fault = random.randint(1, most), random.choice(_FAULTS)
            plan.fault_lasts = random.random() < 0.3
        elif fate < 0.75:
            plan.look_fault_at = random.randint(1, random.choice((20, 100, 300)))
        if random.random() < 0.2:
            plan.stop_at = random.randint(1, 12)
        if random.random() < 0.2:
            plan.change_at = random.randint(1, 12)
        plan.growth = Growth(
            on_growth=random.choice((None, None, "union", "catch-up")),
            follow=random.random() < 0.15,
            accept_rewrite=random.random() < 0.2,
            accept_touched=random.random() < 0.2,
        )
        plan.resources = self._resources()
        plan.sleeps = random.randint(1, 8)
        return plan

    def _limits(self) -> Limits:
        if self.random.random() < 0.5:
            return Limits(rows=self.rows + self.random.randint(1, 60), epochs=MOST_EPOCHS - 2)
        return Limits(epochs=min(MOST_EPOCHS - 2, self.epoch + self.random.randint(1, 2)))

    def _resources(self) -> Resources:
        return Resources(
            memory=self.random.choice((100, 200, 800)) * 10**6,
            checkpoint_seconds=self.random.choice((0.0, 0.05, 30.0)),
        )

    def _session(self, plan: Plan) -> str | None:
        """Train or resume; the reason of a refusal, or None."""
        self.plan, self.stop, self.trainer, self.stretches, self.faulted = plan, StopRequest(), None, 0, False
        self.count("sessions")
        self.say(f"session: {plan}")
        first = self.disk.operations
        self.disk.before = lambda number, what: self._before(number - first, what)
        if plan.look_fault_at:
            looks = self.disk.looks
            self.disk.before_look = lambda number, what, path: self._before_look(number - looks, what, path)
        self.disk.torn_write = lambda size: self.random.randrange(size + 1)
        try:
            self._command(plan)
        except Killed:
            self.say("power failure" if plan.loses_power else "killed")
            self.count("power failures" if plan.loses_power else "kills")
            if plan.loses_power:
                self.disk.fail_power(self.random)
            return "killed"
        except StreampgsError as error:
            self.say(f"refused: {error.found} → {error.remedy}")
            if not error.remedy:
                raise LawBroken(f"an error without a remedy: {error.found}") from error
            if isinstance(error, RunError) and not (self.faulted or self._spoiled):
                raise LawBroken(f"an undamaged run is refused: {error.found}") from error
            return _reason(error)
        finally:
            self.trainer = None
            self.disk.kill()
            self._read()
        return None

    def _read(self) -> None:
        """As commands do that only read a run."""
        self.is_reading = True
        try:
            found = saved_run(RUN)
            found.catalog()
            found.folder.encoding(found.record.encoding)
        except RunError as error:
            if self._reported and not self._spoiled:
                raise LawBroken(f"a run with a checkpoint cannot be read: {error.found}") from error
        finally:
            self.is_reading = False

    def _before(self, number: int, what: str) -> None:
        if number == self.plan.kill_at:
            raise Killed
        at = self.plan.fault_at
        if number == at or (at and self.plan.fault_lasts and number > at):
            self.tally.counts["faults"] += number == at
            self.faulted = True
            fault = errno.EIO if what.startswith("fsync") else self.plan.fault
            raise OSError(fault, os.strerror(fault))

    def _before_look(self, number: int, what: str, path: str) -> None:
        if number == self.plan.look_fault_at:
            fault = self.random.choice(_FAULTS_OF_LOOKS[what])
            self.say(f"{os.strerror(fault)}: {what} {path}")
            self.count("faults of reading")
            self.faulted = True
            raise OSError(fault, os.strerror(fault), path)

    def _command(self, plan: Plan) -> None:
        growth = plan.growth
        if self.disk.has(RUN / "run.arrows"):
            start.resume(RUN, plan.limits, plan.resources, stop=self.stop, growth=growth)
            return
        if self._reported:
            raise LawBroken("a run with a checkpoint has disappeared")
        resources = replace(
            plan.resources, window=self.window, cache_limit=self.cached or None, no_cache=self.cached == 0
        )
        growth = replace(growth, accept_rewrite=False, accept_touched=False)
        start.train([DATA], RUN, self.options, plan.limits, resources, stop=self.stop, growth=growth)

    def _finish(self) -> str | None:
        """Without disturbances; the reason of a refusal for good, or None."""
        reason = None
        limits = Limits(epochs=min(MOST_EPOCHS - 1, self.epoch + self.random.randint(1, 2)))
        for more in ({}, {"accept_touched": True}, {"accept_rewrite": True}):
            plan = Plan(limits=limits, growth=Growth(**more), resources=self._resources())  # type: ignore[arg-type]
            reason = self._session(plan)
            if reason is None:
                return None
            self.tally.refusals[reason] += 1
        return reason

    # What happens to the table and to the run.

    def _change_table(self) -> None:
        what = self.table.change()
        self.say(f"table: {what}")
        self.count(f"table: {what.split(maxsplit=1)[0]}")

    def _spoil(self) -> None:
        names = sorted(
            name for name in (self.disk._find(RUN) or self.disk.root).names if name.startswith("checkpoint-")
        )
        if names:
            name = self.random.choice(names)
            node = self.disk.folder(str(RUN)).names[name]
            assert isinstance(node, File)
            if node.data:
                node.data[self.random.randrange(len(node.data))] ^= 1 << self.random.randrange(8)
                node.sync()
                self.say(f"spoil {name}")
                self.count("damaged checkpoints")
                self._spoiled.add(name)

    # Called from within a session.

    def stretch(self, plan: Any, numbers: Any) -> None:
        self.stretches += 1
        if self.stretches == self.plan.stop_at:
            self.stop.ask("SIGTERM")
        if self.stretches == self.plan.change_at:
            self._change_table()

    def asleep(self) -> None:
        self.plan.sleeps -= 1
        if self.plan.sleeps <= 0:
            self.stop.ask("SIGTERM")
        elif self.random.random() < 0.3:
            self._change_table()

    def begins(self, base: ShardInput) -> None:
        self.lineage, self.rows, self.epoch = Lineage(base), 0, 0

    def placed(self, table: Table, arguments: tuple[Any, ...], growth: Growth, refreshed: Refreshed) -> None:
        assert self.lineage is not None
        if self.trainer is not None:
            self.rows = self.trainer.meter.rows
        event = Placed(self.rows, arguments, growth, table.epochs, table.sources, dict(self.table.names))
        self.lineage = replace(self.lineage, placed=(*self.lineage.placed, event))
        if refreshed.table.cursor != table.cursor:
            self.count("arrivals")
            self.say(f"placed after {self.rows} rows: {refreshed.table.cursor.arrivals[-1]}")

    def writes(self, sections: Mapping[str, Bundle], rows: int) -> int:
        assert self.lineage is not None
        self._begun += 1
        self._known[identity(sections, rows)] = self._begun, self.lineage
        self.say(f"checkpoint {self._begun} after {rows} rows")
        return self._begun

    def wrote(self, number: int, name: str) -> None:
        self._reported = number
        self._spoiled.discard(name)
        self.count("checkpoints")

    def loaded(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            if self._reported:
                raise LawBroken(f"checkpoint {self._reported} was written, and there is none")
            return
        rows = checkpoint.sections["meter"].values["rows"]
        number, lineage = self._known.get(identity(checkpoint.sections, rows), (0, None))
        self.say(f"loaded checkpoint {number} after {rows} rows")
        if lineage is None:
            raise LawBroken(f"'{checkpoint.path.name}' was never written")
        spoiled = any(path.name in self._spoiled for path, _ in checkpoint.damaged)
        if checkpoint.damaged and not spoiled:
            raise LawBroken(f"a crash has damaged {[path.name for path, _ in checkpoint.damaged]}")
        if number < self._reported and not spoiled:
            raise LawBroken(f"checkpoint {self._reported} was written, and {number} is used")
        if self.is_reading:
            return
        self._reported = number
        self.lineage, self.rows = lineage, rows
        self.epoch = cursor_in(checkpoint.sections["worker"]).epoch

    def refused_all(self, error: RunError) -> None:
        """All checkpoints are damaged."""
        if not self._spoiled:
            raise LawBroken(f"a crash has damaged all checkpoints: {error.found}") from error

    def last(self) -> Checkpoint:
        found = newest_checkpoint(RUN)
        assert found is not None
        return found


def identity(sections: Mapping[str, Bundle], rows: int) -> str:
    """What a checkpoint holds besides arrays and times."""
    values = {name: bundle.values for name, bundle in sections.items() if name != "meter"}
    return json.dumps([rows, values], sort_keys=True)


def _reason(error: StreampgsError) -> str:
    """An error without its names and numbers."""
    words = (word for word in error.found.split("\n")[0].split() if not any(c.isdigit() or c in "'/" for c in word))
    return " ".join(list(words)[:8])


@contextmanager
def observed(machine: Machine) -> Iterator[Callable[[WholeHistory], None]]:
    """Within, runs tell the present history what they do. Yields a function that sets it."""
    now: list[WholeHistory] = []

    class Recorded(Refresher):
        def _placed(self, table: Table, look: Any, lost: set[int], restart: bool) -> Refreshed:
            refreshed = super()._placed(table, look, lost, restart)
            now[0].placed(table, (look, set(lost), restart), self.growth, refreshed)
            return refreshed

    class Watched(Trainer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            now[0].trainer = self

    def starting(*arguments: Any) -> ShardInput:
        base = start_on_shards(*arguments)
        now[0].begins(base)
        return base

    def resuming(folder: RunFolder, record: Any, checkpoint: Checkpoint | None, *others: Any) -> ShardInput:
        base = resume_on_shards(folder, record, checkpoint, *others)
        if checkpoint is None:
            now[0].begins(base)
        return base

    def write(self: RunFolder, sections: Mapping[str, Bundle], rows: int) -> Path:
        number = now[0].writes(sections, rows)
        path = write_checkpoint(self, sections, rows)
        now[0].wrote(number, path.name)
        return path

    def newest(self: RunFolder) -> Checkpoint | None:
        try:
            found = newest_of_folder(self)
        except RunError as error:
            now[0].refused_all(error)
            raise
        now[0].loaded(found)
        return found

    start_on_shards, resume_on_shards = start.start_on_shards, start.resume_on_shards
    write_checkpoint, newest_of_folder = RunFolder.write_checkpoint, RunFolder.newest_checkpoint
    start.Refresher, start.Trainer = Recorded, Watched  # type: ignore[misc]
    start.start_on_shards, start.resume_on_shards = starting, resuming
    RunFolder.write_checkpoint, RunFolder.newest_checkpoint = write, newest  # type: ignore[method-assign]

    def watch(history: WholeHistory) -> None:
        now[:] = [history]
        Visits.watcher = staticmethod(history.stretch)  # type: ignore[assignment]
        SimulatedSource.reads_files = True
        SimulatedSource.known.clear()
        machine.clock.asleep = history.asleep

    try:
        yield watch
    finally:
        start.Refresher, start.Trainer = Refresher, Trainer  # type: ignore[misc]
        start.start_on_shards, start.resume_on_shards = start_on_shards, resume_on_shards
        RunFolder.write_checkpoint, RunFolder.newest_checkpoint = write_checkpoint, newest_of_folder  # type: ignore[method-assign]
