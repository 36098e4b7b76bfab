"""However an update is interrupted, the run ends with the bits of the run without interruptions: models of all lineages, judged
rows and mixture."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streampgs
from streampgs.run.folder import RunFolder
from tests.end_to_end.mixed_tables import mixed, replaced, write
from tests.end_to_end.test_growing_tables import only
from tests.faults.run_state import sections_of, state_digest

pytestmark = pytest.mark.timeout(300)  # a run that waits for itself would hang

SMALL = {"memory": "60MB", "window": "30kB"}
EPOCHS = 2


@dataclass(frozen=True)
class Case:
    nights: tuple[Callable[[], pa.Table], ...]
    """The table at first, and what arrives in each night."""
    options: dict[str, Any] = field(default_factory=dict)
    file_format: str = "parquet"


def part(rows: int, seed: int) -> Callable[[], pa.Table]:
    return lambda: mixed(rows, seed)


def numbers_only(rows: int, seed: int) -> Callable[[], pa.Table]:
    return lambda: mixed(rows, seed).select(["label", "age", "income", "scores"])


def regression(rows: int, seed: int) -> Callable[[], pa.Table]:
    return lambda: replaced(mixed(rows, seed), "label", mixed(rows, seed)["income"])


_HASHED = {"hash_bits": 8}
CASES = {
    "several sigmas": Case((part(300, 0), part(60, 1), part(90, 2)), _HASHED),
    "batches, p below 2": Case((part(300, 0), part(60, 1), part(90, 2)), {**_HASHED, "p": 1.5, "batch": 7, "sigma": 1e-4}),
    "dense": Case((numbers_only(300, 0), numbers_only(70, 1), numbers_only(50, 2)), {"sigma": 1e-3}, "arrow"),
    "numbers": Case((regression(300, 0), regression(60, 1), regression(80, 2)), {**_HASHED, "loss": "squared"}),
    "new columns and classes": Case(
        (
            lambda: only(("kind", "age", "city"), 0, 3),
            lambda: only(("kind", "age", "city", "colour"), 1, 4).slice(0, 80),
            lambda: only(("kind", "age", "height"), 2, 4).slice(0, 90),
        ),
        {"label": "kind", "sigma": 1e-4},
    ),
    "one pass without replay": Case((part(300, 0), part(60, 1), part(90, 2)), {**_HASHED, "sigma": 1e-3, "passes": 1, "replay": 0}),
    "several threads": Case((part(300, 0), part(60, 1), part(90, 2)), {**_HASHED, "sigma": 1e-3, "threads": 2}),
}  # fmt: skip


def arrive(case: Case, night: int, data: Path) -> None:
    suffix = "parquet" if case.file_format == "parquet" else "arrow"
    write(case.nights[night](), data / f"night-{night}.{suffix}", case.file_format, group_rows=40)


def begin(case: Case, base: Path, name: str) -> tuple[Path, Path]:
    data, run = base / f"{name}-data", base / name
    arrive(case, 0, data)
    streampgs.train(data, run=run, epochs=EPOCHS, **SMALL, **case.options)
    return data, run


def resume_in_steps(run: Path, chance: random.Random, most: int) -> int:
    """Resume for so many rows at most, until there is nothing more to do; the number of sessions."""
    sessions, rows = 0, -1
    while True:
        limit = streampgs.Model.load(run).rows + chance.randint(1, most)
        report = streampgs.resume(run, rows=limit, epochs=EPOCHS, checkpoint_seconds=1e-6)
        if report.rows == rows:
            return sessions
        sessions, rows = sessions + 1, report.rows
        if sessions % 5 == 0:
            shutil.rmtree(run / "cache", ignore_errors=True)


@pytest.mark.parametrize("name", CASES)
def test_pauses_at_any_row_of_updates_change_no_bit(name: str, tmp_path: Path) -> None:
    case, chance = CASES[name], random.Random(name)
    quiet_data, quiet = begin(case, tmp_path, "quiet")
    data, run = begin(case, tmp_path, "paused")
    for night in range(1, len(case.nights)):
        arrive(case, night, quiet_data)
        arrive(case, night, data)
        before = streampgs.Model.load(quiet).rows
        report = streampgs.resume(quiet)
        assert report.rows > before, "the new rows are trained on"
        most = (report.rows - before) // 4
        assert resume_in_steps(run, chance, most) > 3, "there are pauses within the update"
    for folder in quiet, run:
        streampgs.resume(folder, epochs=EPOCHS + 1)  # in which all lineages train on all rows
    assert {"lanes", "recent", "fresh", "mixture"} <= sections_of(RunFolder(run)).keys()
    assert state_digest(RunFolder(run)) == state_digest(RunFolder(quiet))
