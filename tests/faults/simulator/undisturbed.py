"""The history without disturbances: one process that never ends, with the same arrivals at the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streampgs.data.findings import Findings
from streampgs.data.refresh import Refresher
from streampgs.engine.worker import cursor_in
from streampgs.options.commands import Limits, Resources
from streampgs.order.arrivals import UpdateSizes
from streampgs.order.cursor import Cursor
from streampgs.run.checkpoint import Checkpoint, Kept, write_checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.report import Observer, Session, StopRequest
from streampgs.run.shard_input import ShardInput
from streampgs.run.trainer import Trainer
from tests.faults.simulator.disk import Disk
from tests.faults.simulator.laws import LawBroken
from tests.faults.simulator.learner import MOST_EPOCHS
from tests.faults.simulator.lineage import order_of, rewinds
from tests.faults.simulator.plain_order import LINEAGES, LONG, visits_in
from tests.faults.simulator.source import SimulatedSource

if TYPE_CHECKING:
    from tests.faults.simulator.lineage import Lineage, Placed
    from tests.faults.simulator.whole_history import WholeHistory


def compare(history: WholeHistory) -> None:
    """The run of the history ended with the state, and with the bytes, of the undisturbed one."""
    from tests.faults.simulator.whole_history import RUN

    checkpoint = history.last()
    found = history.disk.folder(str(RUN)).names[checkpoint.path.name].data  # type: ignore[union-attr]
    lineage = history.ended(checkpoint)
    if lineage.order.has_forgotten:
        history.count("histories that cannot be compared")
        return
    twin = history.twin = Twin(history, lineage)
    try:
        for placed in lineage.placed:
            twin.train_until(placed.rows, placed.cursor)
            twin.place(placed)
        twin.train_until(history.rows, cursor_in(checkpoint.sections["worker"]))
        twin.check_visits(checkpoint)
    except AssertionError as error:
        raise LawBroken(f"the order of rows: {error}") from error
    expected = twin.checkpoint_like(checkpoint)
    if expected != bytes(found):
        raise LawBroken(f"other bits than without disturbances: {twin.differences(checkpoint)}")


class Twin:
    def __init__(self, history: WholeHistory, lineage: Lineage) -> None:
        from tests.faults.simulator.whole_history import DATA, RUN

        self._history, machine = history, history.machine
        machine.disk = disk = Disk()
        for folder in (*reversed(RUN.parents[:3]), RUN):
            disk.mkdir(folder)
        disk.mkdir(DATA)
        history.table.move_to(disk)
        self._show = history.table.show
        self._folder = RunFolder(RUN)
        self._session = Session(Observer())
        resources = Resources(memory=900 * 10**6, checkpoint_seconds=1e9)
        base = replace(lineage.base, resources=resources)
        self._trainer = Trainer(self._folder, base, self._session, StopRequest(), resources)
        self._target: tuple[int, ...] | None = None
        self.order = order_of(base)
        SimulatedSource.reads_files = False

    def train_until(self, rows: int, cursor: Cursor) -> None:
        """Rows of an update that no lineage trains on are not counted, so that several places have the same count."""
        trainer = self._trainer
        if rows > trainer.meter.rows:
            trainer.data = _limited(trainer.data, Limits(rows=rows))
            trainer.train()
        if _reached(trainer.cursor) != _reached(cursor):
            trainer.data = _limited(trainer.data, Limits(rows=rows + 1))
            trainer.stop, self._target = StopRequest(), _reached(cursor)
            trainer.train()
            trainer.stop, self._target = StopRequest(), None

    def visited(self, plan: Any, numbers: list[int], row: int, rows: int, update: Any) -> None:
        self.order.visit(plan.start, numbers, update)
        if _reached(plan.start.at_row(row) if row < rows else plan.next) == self._target:
            self._trainer.stop.ask("SIGTERM")

    def place(self, placed: Placed) -> None:
        trainer, data = self._trainer, self._trainer.data
        assert isinstance(data, ShardInput)
        self._show(dict(placed.files))
        cursor = trainer.cursor
        table = replace(data.table, cursor=cursor, sources=placed.sources, updates=placed.updates)
        refresher = Refresher(placed.growth, self._session.note, Findings())
        if placed.lost is None:
            refreshed = refresher.with_new(table, placed.look)
        else:
            refreshed = refresher._without(table, placed.look, placed.lost)
        trainer.continue_on(refreshed)
        self.order.comes(placed.coming, refreshed.table.catalog.row_starts.tolist(), rewinds(table, refreshed))

    def check_visits(self, checkpoint: Checkpoint) -> None:
        self.order.end(self._trainer.cursor)
        self._history.tally.counts["updates"] += self.order.updates
        for name in LINEAGES:
            if name == LONG or self.order.updates:
                visits = checkpoint.sections[name].arrays["0.visits"][:, 0].tolist()
                self.order.check_lineage(name, visits_in(visits, MOST_EPOCHS))

    def checkpoint_like(self, checkpoint: Checkpoint) -> bytes:
        """The bytes of the checkpoint that this process would write at the same time."""
        from tests.faults.simulator.whole_history import RUN

        values = checkpoint.sections["run"].values
        data = _limited(self._trainer.data, _limits_of(values))
        self._trainer.data = replace(data, record=replace(data.record, updates=UpdateSizes(**values["updates"])))
        sections = self._trainer._sections()
        seconds = ("seconds_training", "seconds_waiting")
        sections["meter"].values.update({name: checkpoint.sections["meter"].values[name] for name in seconds})
        path = write_checkpoint(RUN, sections, self._trainer.meter.rows, Kept())
        self._sections = sections
        return path.read_bytes()

    def differences(self, checkpoint: Checkpoint) -> str:
        found = []
        for name, bundle in self._sections.items():
            other = checkpoint.sections.get(name)
            if other is None:
                found.append(f"no section {name}")
                continue
            found += [
                f"{name}.{key}: {other.values.get(key)!r:.300} instead of {value!r:.300}"
                for key, value in json.loads(json.dumps(bundle.values)).items()
                if other.values.get(key) != value
            ]
            found += [
                f"{name}.{key}: other array"
                for key, array in bundle.arrays.items()
                if key not in other.arrays or not np.array_equal(other.arrays[key], array)
            ]
        return "; ".join(found)


def _reached(cursor: Cursor) -> tuple[int, ...]:
    return *cursor.place, cursor.slice, cursor.row


def _limits_of(values: dict[str, Any]) -> Limits:
    return Limits(**{name: value for name, value in values["limits"].items() if value is not None})


def _limited(data: Any, limits: Limits) -> ShardInput:
    assert isinstance(data, ShardInput)
    return replace(data, record=replace(data.record, limits=limits))
