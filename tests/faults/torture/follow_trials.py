"""`--follow` under faults: a writer appends shards while trainers are killed and stores fail.

Each row has its own feature and a label that no score reaches, so that the trained vector counts the visits of each row: at
least one, and at most one per epoch, because updates replay no old rows here. The model must have the bits of a quiet run in
which the same shards arrive at the same rows.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streampgs
from streampgs.engine.worker import cursor_in
from streampgs.run.folder import RunFolder
from streampgs.run.report import StopRequest
from tests.faults.torture.cases import FOLLOWED_BUCKET, Case
from tests.faults.torture.forks import Ended, in_background, in_child
from tests.faults.torture.kills import leftovers
from tests.faults.torture.store import FaultyStore, Plan, store
from tests.faults.torture.subjects import be_impatient
from tests.faults.torture.tally import LOST, SURVIVED, Tally

_COUNTING = {"loss": "absolute", "sigma": 1.0, "t0": 1.0, "intercept": 0.0, "ball": "none"}
_SMALL = {"memory": "60MB", "window": "6kB", "replay": 0.0}
_EPOCHS = 2
_LIVES = 4
_SECONDS = 60.0
_NAMES = "abc"
_FAULTS = ("500", "503", "429", "close", "cut head", "truncate", "slow", "late")


def table_of(first: int, rows: int) -> pa.Table:
    numbers = np.arange(first, first + rows, dtype=np.int32)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32))
    return pa.table(
        {
            "label": np.full(rows, 1e9),
            "indices": pa.ListArray.from_arrays(offsets, pa.array(numbers)),
            "values": pa.ListArray.from_arrays(offsets, pa.array(np.ones(rows, np.float32))),
        }
    )


def content_of(table: pa.Table, suffix: str) -> bytes:
    sink = pa.BufferOutputStream()
    if suffix == "parquet":
        pq.write_table(table, sink, row_group_size=max(1, table.num_rows // 3))
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=max(1, table.num_rows // 2))
    return bytes(sink.getvalue())


def dual_of(run: Path) -> np.ndarray:
    checkpoint = RunFolder(run).newest_checkpoint()
    assert checkpoint is not None
    return checkpoint.sections["lanes"].arrays["0.dual"][1:, 0]


def is_idle(run: Path, total: int, epochs: int) -> bool:
    """Whether each of `total` rows was trained on, and no epoch is left."""
    checkpoint = RunFolder(run).newest_checkpoint()
    if checkpoint is None:
        return False
    cursor = cursor_in(checkpoint.sections["worker"])
    visits = checkpoint.sections["lanes"].arrays["0.dual"][1:, 0]
    return cursor.begins_epoch and cursor.epoch >= epochs and len(visits) == total and bool((visits >= 1).all())


class FolderWriter:
    """Writes shards into a folder: at once under their names, or slowly, or as a temporary file that is then renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    @property
    def source(self) -> str:
        return str(self.folder)

    def write(self, name: str, content: bytes, chance: Random) -> None:
        path = self.folder / name
        how = chance.choice(("renamed", "slowly", "halted"))
        if how == "renamed":
            hidden = self.folder / f".{name}.tmp"
            hidden.write_bytes(content)
            hidden.rename(path)
            return
        middle = chance.randrange(len(content))
        with open(path, "wb") as file:
            for part in (content[:middle], content[middle:]):
                file.write(part)
                file.flush()
                time.sleep(0.02 if how == "slowly" else chance.uniform(0.05, 0.3))
        if chance.random() < 0.2:
            path.rename(path.with_name(f"renamed-{name}"))
        elif chance.random() < 0.2:
            path.write_bytes(content)

    def content(self, name: str) -> bytes:
        """Of the shard that had this name at some time."""
        paths = (self.folder / name, self.folder / f"renamed-{name}", self.folder / name.removeprefix("renamed-"))
        return next(path.read_bytes() for path in paths if path.exists())


class BucketWriter:
    """Puts objects, some of them first without their end, and keeps their content."""

    def __init__(self, folder: Path, target: FaultyStore, prefix: str) -> None:
        self.folder, self.target, self.prefix = folder, target, prefix
        folder.mkdir()

    @property
    def source(self) -> str:
        return self.target.address(self.prefix)

    def write(self, name: str, content: bytes, chance: Random) -> None:
        (self.folder / name).write_bytes(content)
        if chance.random() < 0.3:
            (self.folder / ".half").write_bytes(content[: chance.randrange(len(content))])
            self.target.put(f"{self.prefix}/{name}", self.folder / ".half")
            (self.folder / ".half").unlink()
            time.sleep(chance.uniform(0.0, 0.2))
        self.target.put(f"{self.prefix}/{name}", self.folder / name)

    def content(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


class FollowSubject:
    """The place of tables that grow; each attempt has its own."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder.resolve()
        self.attempt = ""
        self.store = store() if case.place == FOLLOWED_BUCKET else None

    def writer(self, folder: Path) -> FolderWriter | BucketWriter:
        if self.store is None:
            return FolderWriter(folder)
        return BucketWriter(folder, self.store, self.attempt.replace("/", "-"))


class FollowTrials:
    def __init__(self, subject: FollowSubject, tally: Tally) -> None:
        self.subject, self.tally = subject, tally

    def follow(self, number: int, chance: Random) -> None:
        folder = self.subject.folder / str(number)
        folder.mkdir()
        run, writer = folder / "run", self.subject.writer(folder / "table")
        sizes = [chance.randrange(20, 300) for _ in range(chance.randint(3, 6))]
        writer.write("b-first.arrow", content_of(table_of(0, sizes[0]), "arrow"), chance)
        appending = in_background(lambda: _append(writer, sizes, chance))
        total, message = sum(sizes), ""
        for life in range(_LIVES):
            self._disturb(chance)
            kill_after = chance.uniform(0.1, 1.0) if life < _LIVES - 1 else None
            if kill_after is None:
                os.waitpid(appending, 0)
                self._calm()
            ended = in_child(lambda: self._trainer(writer.source, run, total), _SECONDS, kill_after)
            if not (ended.finished or ended.killed or ended.refused):
                message = ended.message
        message = message or self._wrong(ended, run, writer, total, folder)
        self.tally.note("follow under faults", LOST if message else SURVIVED, f"{self.subject.case.name}: {message}")
        shutil.rmtree(folder)

    def _disturb(self, chance: Random) -> None:
        if self.subject.store is not None:
            faults = tuple(chance.sample(_FAULTS, 3))
            self.subject.store.follow(Plan(str(chance.random()), faults, chance.choice((0.0, 0.1, 0.3))))

    def _calm(self) -> None:
        if self.subject.store is not None:
            self.subject.store.follow(Plan())

    def _trainer(self, source: str, run: Path, total: int) -> str:
        """In a child: follow until the rows of all shards are used, and a moment longer."""
        stop = StopRequest()
        if self.subject.store is not None:
            be_impatient()
            os.environ.update(self.subject.store.environment)

        def watch() -> None:
            while not is_idle(run, total, _EPOCHS):
                time.sleep(0.05)
            time.sleep(0.3)  # time to train on rows twice by mistake
            stop.ask("SIGTERM")

        threading.Thread(target=watch, daemon=True).start()
        options: dict[str, Any] = {"epochs": _EPOCHS, "follow": True, "poll_seconds": 0.05, "stop": stop}
        options |= {"checkpoint_seconds": 0.0}
        if (run / "run.arrows").exists():
            return str(streampgs.resume(run, replay=0.0, **options).dual_sha256)
        return str(streampgs.train(source, run=run, **_COUNTING, **_SMALL, **options).dual_sha256)

    def _wrong(self, ended: Ended, run: Path, writer: Any, total: int, folder: Path) -> str:
        if not ended.finished:
            return f"the last trainer ended with: {ended.message}"
        visits = dual_of(run)
        if len(visits) != total or not ((visits >= 1) & (visits <= _EPOCHS)).all():
            return f"{len(visits)} rows of {total}, visited {visits.min():g} to {visits.max():g} times"
        quiet = in_child(lambda: _quiet(RunFolder(run).events(), writer, folder))
        if quiet.result != ended.result:
            return f"other bits than the quiet run: {quiet.message}"
        return f"left behind: {leftovers(run)}" if leftovers(run) else ""


def _append(writer: FolderWriter | BucketWriter, sizes: list[int], chance: Random) -> None:
    first = sizes[0]
    for number, rows in enumerate(sizes[1:]):
        time.sleep(chance.uniform(0.0, 0.5))
        suffix = chance.choice(("arrow", "parquet"))
        # Shards do not arrive in the order of their names.
        name = f"{chance.choice(_NAMES)}-{number}.{suffix}"
        writer.write(name, content_of(table_of(first, rows), suffix), chance)
        first += rows


def _quiet(events: list[dict[str, Any]], writer: FolderWriter | BucketWriter, folder: Path) -> str:
    """The digest of a run on a folder to which the same shards are added at the same rows."""
    data, run = folder / "quiet-table", folder / "quiet-run"
    data.mkdir()

    def bring(names: list[str]) -> None:
        for name in names:
            (data / Path(name).name).write_bytes(writer.content(Path(name).name))

    arrivals = [event for event in events if event["event"] == "appended" and not event.get("lost")]
    late = {_plain(name) for event in arrivals for name in event["added_names"]}
    bring([path.name for path in writer.folder.iterdir() if _plain(path.name) not in late])
    go: Callable[..., Any] = lambda **more: streampgs.train(data, run=run, **_COUNTING, **_SMALL, **more)  # noqa: E731
    for event in arrivals:
        stop = StopRequest()
        if not event["rows"]:  # it was killed before its first checkpoint
            stop.ask("SIGTERM")
        report = go(epochs=_EPOCHS, rows=event["rows"] or None, stop=stop)
        if report.rows != event["rows"]:
            raise RuntimeError(f"the quiet run is at row {report.rows} instead of {event['rows']}")
        bring(event["added_names"])
        go = lambda **more: streampgs.resume(run, replay=0.0, **more)  # noqa: E731
    return str(go(epochs=_EPOCHS).dual_sha256)


def _plain(name: str) -> str:
    return Path(name).name.removeprefix("renamed-")
