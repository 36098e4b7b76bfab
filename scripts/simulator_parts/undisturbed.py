"""The history without disturbances: one process that never ends, with the same arrivals at the same rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scripts.simulator_parts.disk import Disk
from scripts.simulator_parts.laws import LawBroken
from scripts.simulator_parts.learner import MOST_EPOCHS, Visits
from scripts.simulator_parts.plain_order import PlainOrder
from scripts.simulator_parts.source import SimulatedSource
from streampgs.data.findings import Findings
from streampgs.data.refresh import Refresher
from streampgs.options import Limits, Resources
from streampgs.run import start
from streampgs.run.checkpoint import Checkpoint, write_checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.report import Session, Silent, StopRequest
from streampgs.run.shard_input import ShardInput
from streampgs.run.trainer import Trainer

if TYPE_CHECKING:
    from scripts.simulator_parts.lineage import Placed
    from scripts.simulator_parts.whole_history import WholeHistory


def compare(history: WholeHistory) -> None:
    """The run of the history ended with the state, and with the bytes, of the undisturbed one."""
    from scripts.simulator_parts.whole_history import RUN

    checkpoint = history.last()
    found = history.disk.folder(str(RUN)).names[checkpoint.path.name].data  # type: ignore[union-attr]
    history.loaded(checkpoint)
    lineage = history.lineage
    assert lineage is not None
    twin = _Twin(history, lineage.base)
    try:
        for placed in lineage.placed:
            twin.train_until(placed.rows)
            twin.place(placed)
        twin.train_until(history.rows)
        twin.check_visits(checkpoint)
    except AssertionError as error:
        raise LawBroken(f"the order of rows: {error}") from error
    expected = twin.checkpoint_like(checkpoint)
    if expected != bytes(found):
        raise LawBroken(f"other bits than without disturbances: {twin.differences(checkpoint)}")


class _Twin:
    def __init__(self, history: WholeHistory, base: ShardInput) -> None:
        from scripts.simulator_parts.whole_history import DATA, RUN

        machine = history.machine
        machine.disk = disk = Disk()
        for folder in (*reversed(RUN.parents[:3]), RUN):
            disk.mkdir(folder)
        disk.mkdir(DATA)
        history.table.move_to(disk)
        self._show = history.table.show
        self._folder = RunFolder(RUN)
        self._session = Session(Silent())
        resources = Resources(memory=900 * 10**6, checkpoint_seconds=1e9)
        base = replace(base, resources=resources)
        self._trainer = Trainer(self._folder, base, self._session, StopRequest(), resources)
        cursor = base.table.cursor
        self._order = PlainOrder(
            cursor, base.table.catalog.row_starts.tolist(), base.record.options.sampling == "epoch"
        )
        SimulatedSource.reads_files = False
        Visits.watcher = staticmethod(self._visited)  # type: ignore[assignment]

    def _visited(self, plan: Any, numbers: Any) -> None:
        self._order.visit(plan.start.epoch, plan.start.part, numbers.tolist())

    def train_until(self, rows: int) -> None:
        trainer = self._trainer
        if rows > trainer.meter.rows:
            trainer.data = _limited(trainer.data, Limits(rows=rows))
            trainer.train()

    def place(self, placed: Placed) -> None:
        trainer, data = self._trainer, self._trainer.data
        assert isinstance(data, ShardInput)
        self._show(dict(placed.files))
        cursor = trainer.worker.cursor if trainer.worker is not None else data.cursor
        table = replace(data.table, cursor=cursor, epochs=placed.epochs, sources=placed.sources)
        refresher = Refresher(placed.growth, self._session.note, Findings())
        refreshed = refresher._placed(table, *placed.arguments)
        start._continue_on(trainer, refreshed)
        catalog = refreshed.table.catalog
        row_starts, begins_again = catalog.row_starts.tolist(), placed.arguments[2]
        self._order.placed(cursor, refreshed.table.cursor, row_starts, catalog.groups, begins_again)

    def check_visits(self, checkpoint: Checkpoint) -> None:
        worker = self._trainer.worker
        assert worker is not None
        self._order.end(worker.cursor)
        visits = checkpoint.sections["lanes"].arrays["0.visits"][:, 0]
        self._order.check_state(visits.tolist(), MOST_EPOCHS)

    def checkpoint_like(self, checkpoint: Checkpoint) -> bytes:
        """The bytes of the checkpoint that this process would write at the same time."""
        from scripts.simulator_parts.whole_history import RUN

        self._trainer.data = _limited(self._trainer.data, _limits_of(checkpoint))
        sections = self._trainer._sections()
        seconds = ("seconds_training", "seconds_waiting")
        sections["meter"].values.update({name: checkpoint.sections["meter"].values[name] for name in seconds})
        path = write_checkpoint(RUN, sections, self._trainer.meter.rows)
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


def _limits_of(checkpoint: Checkpoint) -> Limits:
    values = {name: value for name, value in checkpoint.sections["run"].values["limits"].items() if value is not None}
    return Limits(**values)


def _limited(data: Any, limits: Limits) -> ShardInput:
    assert isinstance(data, ShardInput)
    return replace(data, record=replace(data.record, limits=limits))
