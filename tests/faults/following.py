"""Test --follow with real processes: a writer appends shards at random times, some of them slowly and in place, while the
trainer is killed and resumed several times. At the end each row must have been trained on, and at most once per epoch, and
the model must have the same bits as a quiet run in which the shards arrive at the same rows.

`python -m scripts.checks.follow` does this with many shards.

Each row has its own feature and a label that no score reaches, so that each visit adds exactly 1 to λ of this feature:
the trained vector counts the visits. Shards that arrive in the middle of an epoch join it; those that arrive after it are
trained on in an update, here without old rows.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.engine.worker import cursor_in
from streampgs.run.folder import RunFolder

_OPTIONS = ["--loss", "absolute", "--sigma", "1", "--t0", "1", "--no-intercept", "--ball", "none"]
# Without old rows in updates, so that no row is trained on more often than there are epochs.
_GROWTH = ["--replay", "0"]
_POLL = "0.3s"
_PATIENCE_SECONDS = 300


@dataclass
class Outcome:
    shards: int
    rows: int
    kills: int
    arrivals: int
    visits_are_right: bool
    same_as_quiet: bool

    @property
    def holds(self) -> bool:
        return self.visits_are_right and self.same_as_quiet


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


def write(path: Path, content: bytes, slowly: float) -> None:
    """Slowly: in place under the final name. Otherwise under a temporary name that is then changed."""
    if slowly <= 0.0:
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_bytes(content)
        hidden.rename(path)
        return
    with open(path, "wb") as file:
        for part in range(4):
            file.write(content[len(content) * part // 4 : len(content) * (part + 1) // 4])
            file.flush()
            time.sleep(slowly)


def append_shards(folder: Path, sizes: list[int], first: int, seed: int, pause: float) -> None:
    """Runs in another process: appends shards and sometimes renames or rewrites one."""
    chance = random.Random(seed)
    for number, rows in enumerate(sizes):
        time.sleep(chance.expovariate(1.0 / pause))
        suffix = chance.choice(["arrow", "parquet"])
        slowly = chance.choice([0.0, 0.0, 0.1, 0.5])
        # Shards do not arrive in the order of their names.
        path = folder / f"{chance.choice('abc')}-{number:03d}.{suffix}"
        write(path, content_of(table_of(first, rows), suffix), slowly)
        first += rows
        if chance.random() < 0.1:
            path.rename(path.with_name(f"renamed-{path.name}"))
        elif chance.random() < 0.1:
            write(path, path.read_bytes(), 0.0)


class Trainer:
    """The command line with --follow."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "streampgs", *words, *_GROWTH, "--follow", "--poll", _POLL]
        self.process = subprocess.Popen(
            [*command, "--checkpoint-every", "0.2s", "--quiet", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=_PATIENCE_SECONDS)
        if self.process.returncode != 143:
            raise SystemExit(f"the trainer ended with {self.process.returncode}:\n{err.decode()}")
        return dict(json.loads(out))

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(f"the trainer exited early:\n{self.process.communicate()[1].decode()}")


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


def quiet_run(events: list[dict[str, Any]], table: Path, folder: Path, epochs: int) -> str:
    """Train with the same shards arriving at the same rows, without kills. Shards are identified by the number in their name."""
    data, run = folder / "quiet-table", folder / "quiet-run"
    data.mkdir()
    by_name = {path.name.removeprefix("renamed-"): path for path in table.iterdir()}

    def bring(names: list[str]) -> None:
        for name in names:
            shutil.copy2(by_name[Path(name).name.removeprefix("renamed-")], data / Path(name).name)

    arrivals = [event for event in events if event["event"] == "appended" and not event.get("lost")]
    late = {Path(name).name.removeprefix("renamed-") for event in arrivals for name in event["added_names"]}
    bring([name for name in by_name if name not in late])
    command = ["train", str(data), "--run", str(run), *_OPTIONS]
    for event in [*arrivals, None]:
        limit = [] if event is None else ["--rows", str(event["rows"])]
        words = [*command, *_GROWTH, "--epochs", str(epochs), *limit, "--json", "--quiet"]
        ended = subprocess.run([sys.executable, "-m", "streampgs", *words], capture_output=True, check=False)
        if ended.returncode:
            raise SystemExit(f"the quiet run ended with {ended.returncode}:\n{ended.stderr.decode()}")
        report = json.loads(ended.stdout)
        command = ["resume", str(run)]
        if event is not None:
            if report["rows"] != event["rows"]:
                raise SystemExit(f"the quiet run is at row {report['rows']:,} instead of {event['rows']:,}")
            bring(event["added_names"])
    return str(report["dual_sha256"])


def follow(folder: Path, shards: int, kills: int, rows: int, epochs: int, seed: int, pause: float) -> Outcome:
    chance = random.Random(seed)
    table, run = folder / "table", folder / "run"
    table.mkdir()
    sizes = [chance.randrange(1, rows) for _ in range(shards)]
    write(table / "b-first.arrow", content_of(table_of(0, rows), "arrow"), 0.0)
    total = rows + sum(sizes)
    trainer = Trainer("train", str(table), "--run", str(run), *_OPTIONS, "--epochs", str(epochs))
    writer = multiprocessing.get_context("spawn").Process(target=append_shards, args=(table, sizes, rows, seed, pause))
    writer.start()
    moments = sorted(chance.uniform(0.05, 0.95) * shards for _ in range(kills))
    killed = 0
    began = time.monotonic()
    while writer.is_alive() or not is_idle(run, total, epochs):
        trainer.check_alive()
        if writer.exitcode:
            raise SystemExit(f"the writer ended with {writer.exitcode}")
        there = len(list(table.glob("[!.]*")))
        if killed < kills and there > moments[killed] and list(run.glob("checkpoint-*.arrows")):
            time.sleep(chance.random())
            trainer.kill()
            killed += 1
            trainer = Trainer("resume", str(run))
        if time.monotonic() - began > _PATIENCE_SECONDS + 2 * pause * shards:
            raise SystemExit(f"not all of {total:,} rows were trained on after {_PATIENCE_SECONDS} s")
        time.sleep(0.1)
    writer.join()
    time.sleep(1.0)  # time to train on rows twice by mistake
    report = trainer.end()
    visits = dual_of(run)
    right = len(visits) == total and bool(((visits >= 1) & (visits <= epochs)).all())
    events = RunFolder(run).events()
    arrivals = sum(event["event"] == "appended" and not event.get("lost") for event in events)
    same = quiet_run(events, table, folder, epochs) == report["dual_sha256"]
    return Outcome(shards, total, killed, arrivals, right, same)
