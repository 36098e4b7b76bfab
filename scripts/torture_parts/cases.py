"""Small runs of every kind, with enough windows, checkpoints and decoded groups for a kill to interrupt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streampgs
from streampgs.synth import write_dataset
from tests.end_to_end.mixed_tables import mixed, write_shards

_SMALL = {"memory": "60MB", "window": "60kB", "epochs": 3}


@dataclass(frozen=True)
class Case:
    """A table and the options of runs on it."""

    name: str
    make: Callable[[Path], None]
    """Writes the shards into a folder, in the order of their names."""
    options: dict[str, Any] = field(default_factory=dict)
    rows: int = 1500
    rows_before_more: int = 0
    """The last shard arrives after this many rows; 0: it is there from the start."""

    def train(self, data: Path, run: Path, **more: Any) -> Any:
        return streampgs.train(data, run=run, **{**_SMALL, **self.options, **more})

    def resume(self, run: Path, **more: Any) -> Any:
        return streampgs.resume(run, **{"epochs": _SMALL["epochs"], **more})

    def words(self) -> list[str]:
        """The options of `train` on the command line."""
        words = []
        for name, value in {**_SMALL, **self.options}.items():
            words += [
                f"--{name.replace('_', '-')}",
                ",".join(map(str, value)) if isinstance(value, tuple) else str(value),
            ]
        return words


def _synthetic(kind: str, file_format: str, rows: int = 1500, features: int = 60) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_dataset(folder, rows=rows, kind=kind, shards=5, format=file_format, features=features)

    return make


def _mixed(folder: Path) -> None:
    write_shards(mixed(1500), folder, shards=5, group_rows=100)


CASES = (
    Case("sparse-arrow", _synthetic("sparse", "arrow"), {"sigma": 1e-3}),
    Case("sparse-parquet", _synthetic("sparse", "parquet"), {"sigma": 1e-3}),
    Case("dense-parquet-p", _synthetic("dense", "parquet", features=20), {"sigma": 1e-3, "p": 1.5, "batch": 3}),
    Case("encoded", _mixed, {"sigma": 1e-3, "hash_bits": 8}),
    Case("contest", _synthetic("sparse", "arrow")),
    Case("threads", _synthetic("sparse", "arrow", rows=3000), {"sigma": 1e-3, "threads": 2}, rows=3000),
    Case("growing", _synthetic("sparse", "parquet"), {"sigma": 1e-3}, rows_before_more=1000),
    Case("growing-arrow", _synthetic("dense", "arrow", features=20), {"sigma": 1e-3}, rows_before_more=1700),
)


class Subject:
    """A case with its data in a folder, and the digest that its undisturbed run ends with."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder.resolve()
        folder = self.folder
        self.full = folder / "full"
        case.make(self.full)
        self.shards = sorted(path for path in self.full.iterdir() if path.is_file())
        self.data = folder / "data"
        self.data.mkdir()
        for shard in self.shards if not case.rows_before_more else self.shards[:-1]:
            shutil.copy2(shard, self.data)
        self._runs = 0
        self.start = self.new_run()
        """For a growing case: the run at the moment when the last shard arrives. Otherwise an unused path."""
        if case.rows_before_more:
            case.train(self.data, self.start, rows=case.rows_before_more)
            shutil.copy2(self.shards[-1], self.data)
        self.expected = self.undisturbed()

    def undisturbed(self) -> str:
        return str(self.start_or_resume(self.new_run()).dual_sha256)

    def new_run(self) -> Path:
        """The path of another run of the case; for a growing case a copy of `start`."""
        self._runs += 1
        run = self.folder / f"run-{self._runs}"
        if self._runs > 1 and self.case.rows_before_more:
            shutil.copytree(self.start, run, symlinks=True)
        return run

    def start_or_resume(self, run: Path, **more: Any) -> Any:
        """Start the run, or resume it if its record exists."""
        if (run / "run.arrows").exists():
            return self.case.resume(run, **more)
        return self.case.train(self.data, run, **more)
