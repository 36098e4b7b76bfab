"""Runs of the benchmarks of growth, in a folder of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

import streampgs
from scripts.papers.growth.tables import write

NO_END = 1_000_000
_COLUMNS = {"label": "label"}

Quality = list[float]
"""Accuracy and log loss."""


class Place:
    """A table that grows, its held-out rows, and runs on it."""

    def __init__(self, folder: Path, seed: int, tests: dict[str, pa.Table]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.seed, self.data = folder, seed, folder / "data"
        self._tests: dict[str, str] = {}
        for name, table in tests.items():
            self.add_test(name, table)

    def add_test(self, name: str, table: pa.Table) -> None:
        write(table, self.folder / "tests" / name, "part")
        self._tests[name] = str(self.folder / "tests" / name)

    def arrive(self, table: pa.Table, name: str, shards: int = 1) -> None:
        write(table, self.data, name, shards)

    def run(self, name: str) -> Path:
        return self.folder / f"run-{name}"

    def train(self, name: str, data: Path | list[str] | None = None, **options: Any) -> Any:
        run = self.run(name)
        shutil.rmtree(run, ignore_errors=True)
        sources = data if isinstance(data, list) else [str(data or self.data)]
        return streampgs.train(sources, run=run, seed=self.seed, progress=False, **_COLUMNS, **options)

    def resume(self, name: str, **options: Any) -> Any:
        return streampgs.resume(self.run(name), progress=False, **options)

    def copy(self, name: str, to: str) -> None:
        shutil.rmtree(self.run(to), ignore_errors=True)
        shutil.copytree(self.run(name), self.run(to))

    def quality(self, name: str, only: str | None = None) -> dict[str, Quality]:
        found = {}
        for test, path in self._tests.items():
            if only is None or test == only:
                measured = streampgs.evaluate(self.run(name), path)
                found[test] = [measured["accuracy"], measured["log_loss"]]
        return found

    def judgements(self, name: str) -> list[dict[str, Any]]:
        """What each update reported of the lineages and of the model before, on rows that none was trained on."""
        return [found for event in self.events(name) for found in _with_shares(event)]

    def events(self, name: str) -> list[dict[str, Any]]:
        return streampgs.history(self.run(name))


def _with_shares(record: Any) -> list[dict[str, Any]]:
    if not isinstance(record, dict):
        return []
    if {"shares", "lineages"} <= record.keys():
        return [record]
    return [found for value in record.values() for found in _with_shares(value)]
