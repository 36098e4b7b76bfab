"""A case with its data in place: on a disk, in a bucket or on a stream. The undisturbed run gives the expected digest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streampgs
from streampgs.stores import access, patience
from tests.faults.torture.cases import EPOCHS, Case
from tests.faults.torture.forks import in_background, in_child
from tests.faults.torture.store import FaultyStore, Plan, store

_ROOT = Path(__file__).resolve().parents[3]
_NO_LIMIT = 10**9


class Subject:
    """Shards on a disk."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder.resolve()
        folder = self.folder
        self.full = folder / "full"
        case.make(self.full)
        self.shards = sorted(path for path in self.full.iterdir() if path.is_file())
        self.data = folder / "data"
        self.data.mkdir()
        for shard in self.shards_at_the_start:
            shutil.copy2(shard, self.data)
        self._runs = 0
        self.attempt = ""
        """The name of the present attempt, from which all random choices of a session follow."""
        self.start = self.new_run()
        """For a growing case: the run at the moment when the last shard arrives. Otherwise an unused path."""
        if case.rows_before_more:
            self.start_or_resume(self.start, epochs=None, rows=case.rows_before_more)
            shutil.copy2(self.shards[-1], self.data)
        self.expected = str(self.start_or_resume(self.new_run()).dual_sha256)

    @property
    def shards_at_the_start(self) -> list[Path]:
        return self.shards[:-1] if self.case.rows_before_more else self.shards

    @property
    def source(self) -> str:
        """The data as `train` takes them."""
        return str(self.data)

    @property
    def files(self) -> list[Path]:
        """The shards on this disk, which may be damaged."""
        return sorted(path for path in self.data.iterdir() if path.is_file())

    def new_run(self) -> Path:
        """The path of another run of the case; for a growing case a copy of `start`."""
        self._runs += 1
        run = self.folder / f"run-{self._runs}"
        if self._runs > 1 and self.case.rows_before_more:
            shutil.copytree(self.start, run, symlinks=True)
        return run

    def start_or_resume(self, run: Path, **more: Any) -> Any:
        """Start the run, or resume it if its record exists."""
        more = {"epochs": EPOCHS, **more}
        if (run / "run.arrows").exists():
            return streampgs.resume(run, **more)
        return streampgs.train(self.source, run=run, **{**self.case.all_options, **more})

    def process(self, run: Path, *words: str) -> subprocess.Popen[bytes]:
        """The command line that starts or resumes the run."""
        command = ["resume", str(run)]
        if not (run / "run.arrows").exists():
            command = ["train", self.source, "--run", str(run), *self.case.words()]
        return self._command([*command, "--epochs", str(EPOCHS), *words], subprocess.DEVNULL)

    def _command(self, words: list[str], stdin: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "streampgs", *words],
            cwd=_ROOT,
            env={**os.environ, **self.environment},
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        return {}


class BucketSubject(Subject):
    """Shards in an object store. The digest is that of the same shards on the disk."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.store: FaultyStore | None = None
        super().__init__(case, folder)
        self.store = store()
        self.store.follow(Plan())
        for shard in self.shards_at_the_start:
            self.put(shard)
        if case.rows_before_more:
            self.start = self.folder / "start-in-bucket"
            ended = in_child(
                lambda: self.start_or_resume(self.start, epochs=None, rows=case.rows_before_more).stopped_by
            )
            assert ended.finished, ended.message
            self.put(self.shards[-1])

    def put(self, shard: Path) -> None:
        assert self.store is not None
        self.store.put(self.key(shard), shard)

    def key(self, shard: Path) -> str:
        return f"{self.case.name}/{shard.name}"

    @property
    def source(self) -> str:
        return str(self.data) if self.store is None else self.store.address(self.case.name)

    @property
    def files(self) -> list[Path]:
        return []

    @property
    def environment(self) -> Mapping[str, str]:
        return {} if self.store is None else self.store.environment

    def start_or_resume(self, run: Path, **more: Any) -> Any:
        """In a child, because the library of the store does not survive a fork."""
        if self.store is not None:
            be_impatient()
            os.environ.update(self.environment)
        return super().start_or_resume(run, **more)


def be_impatient() -> None:
    """For the rest of this process: give up soon when a store fails."""
    patience.PATIENCE_SECONDS = 0.6
    patience.FIRST_PAUSE_SECONDS = 0.01
    access.STALL_SECONDS = 0.5


class StreamSubject(Subject):
    """Rows on standard input, from a producer in its own process. A session that resumes gets the stream from its first row
    or from the row that the run reports, in batches of other sizes."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._table: pa.Table | None = None
        super().__init__(case, folder)

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            self._table = pa.concat_tables(map(_read, self.shards))
        return self._table

    @property
    def files(self) -> list[Path]:
        return []

    def start_or_resume(self, run: Path, epochs: int | None = None, rows: int = _NO_LIMIT, **more: Any) -> Any:
        chance = Random(f"{self.attempt} {sorted(path.name for path in run.glob('checkpoint-*'))}")
        begun = (run / "run.arrows").exists()
        again = chance.random() < 0.5 or not any(run.glob("checkpoint-*"))
        first = streampgs.inspect(run)["stream_rows"] if begun and not again else 0
        if begun:
            more["skip_taken"] = again
        return self.session(run, lambda fd: produce(self.table.slice(first), fd, chance), rows, **more)

    def session(self, run: Path, producer: Callable[[int], None], rows: int = _NO_LIMIT, **more: Any) -> Any:
        """Train on the stream that `producer` writes to the descriptor that it is given."""
        with _standard_input(producer):
            if (run / "run.arrows").exists():
                return streampgs.resume(run, "-", rows=rows, **more)
            more.pop("memory", None)  # the size of the reservoir follows from it
            return streampgs.train("-", run=run, **{**self.case.all_options, "rows": rows, **more})

    def process(self, run: Path, *words: str) -> subprocess.Popen[bytes]:
        command = ["resume", str(run), "-", "--skip-taken"]
        if not (run / "run.arrows").exists():
            command = ["train", "-", "--run", str(run), *self.case.words()]
        reading, writing = os.pipe()
        in_background(lambda: produce(self.table, writing, Random(0)), keeping=writing)
        os.close(writing)
        try:
            return self._command([*command, *words], reading)
        finally:
            os.close(reading)


def _read(shard: Path) -> pa.Table:
    if shard.suffix == ".parquet":
        return pq.read_table(shard)
    with pa.ipc.open_file(pa.OSFile(str(shard))) as file:
        return file.read_all()


def produce(table: pa.Table, fd: int, chance: Random, ends: bool = True) -> None:
    """Write the rows as a stream of batches of random sizes; `ends`: with the mark of its end."""
    with open(fd, "wb", closefd=False) as pipe:
        writer = pa.ipc.new_stream(pipe, table.schema)
        first = 0
        while first < table.num_rows:
            rows = chance.choice((1, 7, 50, 300, 2000))
            writer.write_table(table.slice(first, rows))
            first += rows
        if ends:
            writer.close()


class _standard_input:
    """Inside, standard input is a pipe into which a process writes, which dies with this one."""

    def __init__(self, producer: Callable[[int], None]) -> None:
        self._produce = producer

    def __enter__(self) -> None:
        reading, writing = os.pipe()
        self._producer = in_background(lambda: self._produce(writing), keeping=writing)
        os.close(writing)
        self._before = os.dup(0)
        os.dup2(reading, 0)
        os.close(reading)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._before, 0)
        os.close(self._before)
        os.kill(self._producer, signal.SIGKILL)
        os.waitpid(self._producer, 0)
