"""A case with its data in place, on a disk or in a bucket. The undisturbed run gives the expected digest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streampgs
from streampgs.stores import access, patience
from tests.faults.torture.cases import EPOCHS, Case
from tests.faults.torture.forks import in_child
from tests.faults.torture.store import FaultyStore, Plan, store

_ROOT = Path(__file__).resolve().parents[3]


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
