"""Tells a simulated history what the runs in it do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.data.refresh import Look, Refreshed, Refresher, Table
from streampgs.engine.worker import Worker
from streampgs.run import saved, start, undo
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.shard_input import ShardInput
from streampgs.run.trainer import Trainer
from tests.faults.simulator.machine import Machine
from tests.faults.simulator.source import SimulatedSource
from tests.faults.simulator.whole_history import WholeHistory


@contextmanager
def observed(machine: Machine) -> Iterator[Callable[[WholeHistory], None]]:
    """Within, runs tell the present history what they do. Yields a function that sets it."""
    now: list[WholeHistory] = []

    class Recorded(Refresher):
        def _without(self, table: Table, look: Look, lost: Collection[int]) -> Refreshed:
            left = super()._without(table, look, lost)
            if lost:
                now[0].placed(table, look, frozenset(lost), self.growth, left)
            return left

        def with_new(self, table: Table, look: Look) -> Refreshed:
            grown = super().with_new(table, look)
            now[0].placed(table, look, None, self.growth, grown)
            return grown

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
        else:
            now[0].resumed(base)
        return base

    def write(self: RunFolder, sections: Mapping[str, Bundle], rows: int, *kept: Any) -> Path:
        number = now[0].writes(sections, rows)
        path = write_checkpoint(self, sections, rows, *kept)
        now[0].wrote(number, path.name)
        return path

    def newest(self: RunFolder, *wanted: str) -> Checkpoint | None:
        try:
            found = newest_of_folder(self)
        except RunError as error:
            now[0].checkpoints.refused_all(error)
            raise
        now[0].loaded(found)
        return found if found is None or not wanted else read_checkpoint(found.path, *wanted)

    def restoring(path: Path, *wanted: str) -> Checkpoint:
        found = read_checkpoint(path, *wanted)
        if not wanted:  # as undo reads it
            now[0].checkpoints.returns_to(found)
        return found

    def undoing(folder: RunFolder, wanted: str, *arguments: Any, **facts: Any) -> undo.Undone | None:
        undone = start_undo(folder, wanted, *arguments, **facts)
        now[0].undone(undone)
        return undone

    def advance(self: Worker, row: int) -> None:
        window, first = self.window, self.cursor.row
        assert window is not None
        update = self.source.update_pass(self.cursor)
        now[0].visited(window.span, window.numbers[first:row].tolist(), row, len(window), update)
        advance_to(self, row)

    start_on_shards, resume_on_shards = start.start_on_shards, start.resume_on_shards
    advance_to = Worker.advance_to
    read_checkpoint, start_undo = saved.read_checkpoint, start.undo
    saved.read_checkpoint, start.undo = restoring, undoing
    write_checkpoint, newest_of_folder = RunFolder.write_checkpoint, RunFolder.newest_checkpoint
    start.Refresher, start.Trainer = Recorded, Watched  # type: ignore[misc]
    start.start_on_shards, start.resume_on_shards = starting, resuming
    RunFolder.write_checkpoint, RunFolder.newest_checkpoint = write, newest  # type: ignore[method-assign]
    Worker.advance_to = advance  # type: ignore[method-assign]

    def watch(history: WholeHistory) -> None:
        now[:] = [history]
        SimulatedSource.reads_files = True
        SimulatedSource.known.clear()
        machine.clock.asleep = history.asleep

    try:
        yield watch
    finally:
        start.Refresher, start.Trainer = Refresher, Trainer  # type: ignore[misc]
        start.start_on_shards, start.resume_on_shards = start_on_shards, resume_on_shards
        RunFolder.write_checkpoint, RunFolder.newest_checkpoint = write_checkpoint, newest_of_folder  # type: ignore[method-assign]
        Worker.advance_to = advance_to  # type: ignore[method-assign]
        saved.read_checkpoint, start.undo = read_checkpoint, start_undo
