"""One history of a run: sessions with kills, power failures, faults and pauses, between which the table changes. At the end
the run must be the one that an undisturbed history with the same arrivals at the same rows gives."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from streampgs.base.errors import RunError, StreampgsError
from streampgs.base.stage import Bundle
from streampgs.data.refresh import Look, Refreshed, Table
from streampgs.engine.worker import cursor_in
from streampgs.options.commands import Growth, ModelOptions, ResumeOptions
from streampgs.run import start
from streampgs.run.checkpoint import Checkpoint, checkpoints_in, newest_checkpoint, rows_in_name
from streampgs.run.commands import ResumeCall, TrainCall
from streampgs.run.report import StopRequest
from streampgs.run.saved import saved_run
from streampgs.run.shard_input import ShardInput
from streampgs.run.trainer import Trainer
from streampgs.run.undo import BEFORE_LAST_UPDATE, Undone
from tests.faults.simulator import undisturbed
from tests.faults.simulator.disk import Killed
from tests.faults.simulator.laws import LawBroken
from tests.faults.simulator.lineage import Checkpoints, Lineage, Placed, coming_of, order_of, rewinds, rows_of
from tests.faults.simulator.machine import ROOT, Machine
from tests.faults.simulator.nodes import File
from tests.faults.simulator.plain_order import OrderBroken
from tests.faults.simulator.plans import Plan, disturbed, undisturbed_tries
from tests.faults.simulator.table import TableFolder
from tests.faults.simulator.tally import Tally

RUN, DATA = Path(ROOT, "runs", "first", "run"), f"{ROOT}/data"
_FAULTS_OF_LOOKS = {
    "open": (errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES),
    "read": (errno.EIO, errno.ESTALE),
    "stat": (errno.EIO, errno.ESTALE, errno.EACCES),
    "list": (errno.EIO, errno.EACCES, errno.EMFILE),
}


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
        )
        self.window = self.random.choice((1000, 3000) if columns else (400_000, 600_000, 2_000_000))
        self.cached = self.random.choice((None, None, 0, 200_000))
        self.lineage: Lineage | None = None
        self.twin: undisturbed.Twin | None = None
        """At the end: the history without disturbances that is trained now."""
        self.trainer: Trainer | None = None
        self.stop = StopRequest()
        self.plan = Plan()
        self.stretches = 0
        self.is_reading = False
        self.faulted = False
        """Whether a fault was injected in this session."""
        self.rows = 0
        self.epoch = 0
        self.checkpoints = Checkpoints()

    def run(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 2, 3, 5))):
            self._session(disturbed(self.random, self.rows, self.epoch))
            for _ in range(self.random.choice((0, 0, 1, 1, 2))):
                self._change_table()
            if self.random.random() < 0.05:
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
            if isinstance(error, RunError) and not (self.faulted or self.checkpoints.spoiled):
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
            if self.checkpoints.reported and not self.checkpoints.spoiled:
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
            changes = ResumeOptions(back_to=self._back_to(plan))
            start.resume(RUN, ResumeCall(plan.limits, plan.resources, growth, changes), stop=self.stop)
            return
        if self.checkpoints.reported:
            raise LawBroken("a run with a checkpoint has disappeared")
        resources = replace(
            plan.resources, window=self.window, cache_limit=self.cached or None, no_cache=self.cached == 0
        )
        growth = replace(growth, accept_changes=False, accept_removed=False, accept_touched=False)
        call = TrainCall(self.options, limits=plan.limits, resources=resources, growth=growth)
        start.train([DATA], RUN, call, stop=self.stop)

    def _back_to(self, plan: Plan) -> str | None:
        """An earlier checkpoint, if there is one."""
        rows = [rows_in_name(path) for path in checkpoints_in(RUN)][:-1]
        if not plan.undoes or not rows:
            return None
        wanted = self.random.choice([BEFORE_LAST_UPDATE, *map(str, rows)])
        self.say(f"back to {wanted} of {rows}")
        return wanted

    def _finish(self) -> str | None:
        """Without disturbances; the reason of a refusal for good, or None."""
        reason = None
        for plan in undisturbed_tries(self.random, self.epoch):
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
        """Flip a bit of a checkpoint; or of a file that the run cannot do without, and restore it after a try to resume."""
        files = self.disk.folder(str(RUN)).names if self.disk.has(RUN) else {}
        names = sorted(name for name in files if name.startswith("checkpoint-"))
        if "run.arrows" in files:
            names += ["run.arrows", "catalog.arrows"]
        if not names:
            return
        name = self.random.choice(names)
        node = files[name]
        assert isinstance(node, File)
        if not node.data:
            return
        place, bit = self.random.randrange(len(node.data)), 1 << self.random.randrange(8)
        node.data[place] ^= bit
        node.sync()
        self.say(f"damage {name}")
        self.checkpoints.spoiled.add(name)
        self.count("damaged checkpoints" if name.startswith("checkpoint") else "other damaged files")
        if name.startswith("checkpoint"):
            return
        if self._session(undisturbed_tries(self.random, self.epoch)[0]) is None:
            raise LawBroken(f"damage of {name} is not noticed")
        node.data[place] ^= bit
        node.sync()
        self.checkpoints.spoiled.discard(name)

    # Called from within a session.

    def visited(self, plan: Any, numbers: list[int], row: int, rows: int, update: Any) -> None:
        """Training has reached a row of a window of so many rows; `numbers`: of the rows since then."""
        if self.twin is not None:
            self.twin.visited(plan, numbers, row, rows, update)
            return
        assert self.lineage is not None
        try:
            self.lineage.order.visit(plan.start, numbers, update)
        except OrderBroken as error:
            raise LawBroken(f"the order of rows: {error}") from error
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
        self.lineage, self.rows, self.epoch = Lineage(base, order_of(base)), 0, 0

    def resumed(self, base: ShardInput) -> None:
        assert self.lineage is not None
        catalog, order = base.table.catalog, self.lineage.order
        if catalog.rows != order.row_starts[order.known]:
            raise LawBroken(f"{catalog.groups} groups have begun, and not {order.known}")

    def placed(
        self, table: Table, look: Look, lost: frozenset[int] | None, growth: Growth, refreshed: Refreshed
    ) -> None:
        assert self.lineage is not None
        if self.trainer is not None:
            self.rows = self.trainer.meter.rows
        coming = coming_of(table, lost, refreshed)
        self.lineage.order.comes(coming, refreshed.table.catalog.row_starts.tolist(), rewinds(table, refreshed))
        event = Placed(
            self.rows, table.cursor, coming, look, lost, growth, table.updates,
            table.sources, dict(self.table.names),
        )  # fmt: skip
        self.lineage = replace(self.lineage, placed=(*self.lineage.placed, event))
        self.count("arrivals")
        self.say(f"placed after {self.rows} rows at {table.cursor.place}: {refreshed.table.cursor.arrivals[-1]}")

    def writes(self, sections: Mapping[str, Bundle], rows: int) -> int:
        assert self.lineage is not None
        number = self.checkpoints.begin(sections, rows, self.lineage.copy())
        self.say(f"checkpoint {number} after {rows} rows")
        return number

    def wrote(self, number: int, name: str) -> None:
        self.checkpoints.wrote(number, name)
        self.count("checkpoints")

    def loaded(self, checkpoint: Checkpoint | None) -> None:
        found = self.checkpoints.found(checkpoint)
        if checkpoint is None or found is None or self.is_reading:
            return
        self.checkpoints.reported, lineage = found
        self.lineage = lineage.resumed()
        dropped = len(lineage.placed) - len(self.lineage.placed)
        self.tally.counts["arrivals that had not begun"] += dropped
        self.rows, self.epoch = rows_of(checkpoint), cursor_in(checkpoint.sections["worker"]).epoch
        self.say(f"loaded checkpoint {found[0]} after {self.rows} rows")

    def ended(self, checkpoint: Checkpoint) -> Lineage:
        """How the state of the last checkpoint came about: it knows no shard of which no row was trained on."""
        found = self.checkpoints.found(checkpoint)
        assert found is not None
        self.rows = rows_of(checkpoint)
        return found[1].resumed()

    def undone(self, undone: Undone | None) -> None:
        """Within a session: it has returned to a checkpoint; None: the run was there already."""
        if undone is not None:
            self.say(f"{undone.undone_rows} rows were undone")
            self.count("undone")

    def last(self) -> Checkpoint:
        found = newest_checkpoint(RUN)
        assert found is not None
        return found


def _reason(error: StreampgsError) -> str:
    """An error without its names and numbers."""
    words = (word for word in error.found.split("\n")[0].split() if not any(c.isdigit() or c in "'/" for c in word))
    return " ".join(list(words)[:8])
