"""An untrusted companion of a checkpoint: its contents are valid, or an error names the file."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from scripts.torture_parts.forgery import VALUES, changed, places, seal, without
from scripts.torture_parts.forks import in_child
from streampgs.options import EncodingOptions, Limits
from streampgs.run.folder import RunFolder
from streampgs.run.seal import read_sealed
from streampgs.synth import write_dataset
from tests.end_to_end.mixed_tables import mixed
from tests.end_to_end.streaming import resume, train, written

KINDS: dict[str, dict[str, Any]] = {
    "sparse": {"sigma": 1e-3},
    "dense": {"sigma": 1e-3, "replay": 2.0},
    "mixed": {"sigma": 1e-3, "encoding": EncodingOptions(text=("text",))},
}
ROWS = 5_000
RESERVOIR, WINDOW, WAITING = 0, 1, 2


class Paused:
    """A paused run with rows in the reservoir, in the window and waiting after it, and its stream."""

    def __init__(self, folder: Path, kind: str) -> None:
        if kind == "mixed":
            self.table = mixed(ROWS)
        else:
            write_dataset(folder / "data", rows=ROWS, kind=kind, shards=1, features=60 if kind == "sparse" else 20)
            [path] = (folder / "data").glob("*.arrow")
            self.table = pa.ipc.open_file(str(path)).read_all()
        self.run = folder / "run"
        options = dict(KINDS[kind])
        train(written(self.table.slice(0, ROWS - 500), [500]), self.run, Limits(rows=3_500), **options)
        for old in RunFolder(self.run).checkpoints()[:-1]:
            old.unlink()
        self.companion = RunFolder(self.run).companions()[-1].name
        self.contents, self.record = read_sealed(self.run / self.companion)
        self.taken = self.record["taken"]
        self.expected = self.resumed(self.run).result

    def resumed(self, run: Path) -> Any:
        """Resume to the end of the stream, in a child process: a loop that leaves its arrays would crash it."""

        def work() -> str:
            data = written(self.table.slice(self.taken), [500])
            copy = run.with_name("again")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(run, copy)
            return str(resume(data, copy).dual_sha256)

        return in_child(work, 60.0)

    def with_companion(self, folder: Path, table: pa.Table, record: Any) -> Any:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.run, run)
        seal(run / self.companion, table, record)
        return self.resumed(run)


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Paused]:
    made: dict[str, Paused] = {}

    def of(kind: str) -> Paused:
        if kind not in made:
            made[kind] = Paused(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return of


@pytest.mark.parametrize("kind", KINDS)
def test_a_companion_that_is_sealed_again_gives_the_same_bits(
    kind: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run = paused(kind)
    parts = run.contents.column("part").to_numpy()
    assert set(parts) == {RESERVOIR, WINDOW, WAITING}
    ended = run.with_companion(tmp_path, run.contents, run.record)
    assert ended.finished, ended.message
    assert ended.result == run.expected


def refused(ended: Any, companion: str) -> bool:
    """With an error that names the file. Values that JSON does not allow, such as NaN, count as damage."""
    advice = ("do not trust it", "restore one from a copy")
    return bool(
        ended.refused
        and companion in ended.result["found"]
        and any(words in ended.result["remedy"] for words in advice)
    )


def record_places(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [place for place in places(record) if place and place != ("format",)]


HARMLESS = {("reservoir", "largest_key"), ("reservoir", "counts", 2), ("reservoir", "counts", 3), ("reservoir", "counts", 4),
            ("reservoir", "counts", 5)}  # fmt: skip
"""Numbers that may have any value: which row is kept next, and how many rows have passed."""


@pytest.mark.parametrize("kind", KINDS)
def test_forged_numbers_are_an_error_that_names_the_file(
    kind: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run, chance = paused(kind), random.Random(kind)
    wheres = record_places(run.record)
    for number in range(3 * len(wheres)):
        where, value = wheres[number % len(wheres)], chance.choice(VALUES)
        if isinstance(where[-1], str) and number >= 2 * len(wheres):
            record, claim = without(run.record, where), "absent"
        else:
            record, claim = changed(run.record, where, value), repr(value)[:60]
        ended = run.with_companion(tmp_path, run.contents, record)
        same = record == run.record and ended.finished and ended.result == run.expected
        used = where in HARMLESS and ended.finished
        assert refused(ended, run.companion) or same or used, (where, claim, ended.message)


def replaced(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    place, values = table.schema.get_field_index(name), table.column(name).to_pylist()
    values[row] = value
    return table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))


def other_lengths(table: pa.Table) -> pa.Table:
    """A row with more indices than values."""
    return replaced(table, "indices", 7, [*table.column("indices")[7].as_py(), 1])


def swapped(table: pa.Table) -> pa.Table:
    return table.select([1, 0, *range(2, table.num_columns)])


def of_type(table: pa.Table, name: str, kind: pa.DataType) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, pa.field(name, kind, nullable=False), table.column(name).cast(kind))


def first_of(table: pa.Table, part: int) -> int:
    return int(np.argmax(table.column("part").to_numpy() == part))


def longest(count: int) -> list[int]:
    return list(range(count))


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no rows": lambda table: table.slice(0, 0),
    "the last row less": lambda table: table.slice(0, table.num_rows - 1),
    "the first row less": lambda table: table.slice(1),
    "rows twice": lambda table: pa.concat_tables([table, table]),
    "backwards": lambda table: table.take(list(range(table.num_rows))[::-1]),
    "columns swapped": swapped,
    "a column less": lambda table: table.drop_columns(["number"]),
    "no values": lambda table: table.drop_columns(["values"]),
    "values of another type": lambda table: of_type(table, "values", pa.list_(pa.float64())),
    "numbers of another type": lambda table: of_type(table, "number", pa.int32()),
    "labels of another type": lambda table: of_type(table, "labels", pa.list_(pa.float64())),
    "another part": lambda table: replaced(table, "part", first_of(table, WINDOW), 7),
    "parts mixed": lambda table: replaced(table, "part", first_of(table, WINDOW) + 3, RESERVOIR),
    "a number from elsewhere": lambda table: replaced(table, "number", first_of(table, WAITING), 2**62),
    "a negative number": lambda table: replaced(table, "number", first_of(table, WINDOW), -1),
    "no label": lambda table: replaced(table, "labels", first_of(table, RESERVOIR), [math.nan]),
    "another label": lambda table: replaced(table, "labels", first_of(table, WAITING), [0.25]),
    "an infinite value": lambda table: replaced(
        table, "values", 2, [math.inf] * len(table.column("values")[2])
    ),
}  # fmt: skip
OF_SPARSE: dict[str, Callable[[pa.Table], pa.Table]] = {
    "indices of another length": other_lengths,
    "an index out of range": lambda table: replaced(
        table, "indices", 3, [2**32 - 1] * len(table.column("indices")[3])
    ),
    "an index twice": lambda table: replaced(table, "indices", 4, [5] * len(table.column("indices")[4])),
    "a row longer than a window": lambda table: replaced(
        replaced(table, "indices", first_of(table, WINDOW), longest(30_000)),
        "values", first_of(table, WINDOW), [1.0] * 30_000,
    ),
    "a row longer than the arena": lambda table: replaced(
        replaced(table, "indices", 0, longest(3_000_000)), "values", 0, [1.0] * 3_000_000
    ),
}  # fmt: skip
OF_DENSE: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a longer row": lambda table: replaced(table, "values", first_of(table, WINDOW), [1.0] * 5_000),
    "a shorter row": lambda table: replaced(table, "values", first_of(table, WAITING), [1.0]),
}


def one_by_one(table: pa.Table, run: Paused) -> pa.Table:
    """The table in the batches of the original, if it has as many rows: each batch has rows of one part."""
    if table.num_rows != run.contents.num_rows:
        return table
    table, cuts = table.combine_chunks(), np.cumsum([0, *(batch.num_rows for batch in run.contents.to_batches())])
    return pa.concat_tables(table.slice(first, stop - first) for first, stop in pairwise(cuts))


@pytest.mark.parametrize(
    ("kind", "change"),
    [*(("sparse", name) for name in (*CHANGES, *OF_SPARSE)), *(("dense", name) for name in (*CHANGES, *OF_DENSE))],
)
def test_forged_rows_are_an_error_that_names_the_file(
    kind: str, change: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run = paused(kind)
    table = {**CHANGES, **OF_SPARSE, **OF_DENSE}[change](run.contents)
    ended = run.with_companion(tmp_path, one_by_one(table, run), run.record)
    assert refused(ended, run.companion), ended.message


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("companion", "../../etc/passwd"), ("companion", None), ("companion", 7), ("stream_rows", -1), ("stream_rows", "x"),
        ("stream_rows", 2**70), ("stream_rows", 17), ("cursor", None), ("cursor", {}), ("limits", "none"), ("options", {"p": 7}),
    ],
)  # fmt: skip
def test_a_forged_checkpoint_of_a_stream_is_an_error_that_names_the_file(
    name: str, claim: Any, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    source, run = paused("sparse"), tmp_path / "run"
    shutil.copytree(source.run, run)
    newest = RunFolder(run).checkpoints()[-1]
    table, record = read_sealed(newest)
    seal(newest, table, {**record, name: claim})
    ended = source.resumed(run)
    assert ended.refused, ended.message
    assert newest.name in ended.result["found"] or source.companion in ended.result["found"]


@pytest.mark.parametrize(
    "claim",
    [{"window_bytes": 0}, {"window_bytes": 2**61}, {"replay": -1.0}, {"replay": 1e300}, {"replay": math.inf},
     {"reservoir_bytes": 100}, {"reservoir_bytes": -5}, {"horizon": 0}, {"horizon": "x"}],
    ids=str,
)  # fmt: skip
def test_forged_sizes_of_a_stream_are_refused(
    claim: dict[str, Any], paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    source, run = paused("sparse"), tmp_path / "run"
    shutil.copytree(source.run, run)
    table, record = read_sealed(run / "run.arrows")
    seal(run / "run.arrows", table, {**record, "stream": {**record["stream"], **claim}})
    ended = source.resumed(run)
    assert ended.refused, ended.message
    assert "run.arrows" in ended.result["found"] or "--memory" in ended.result["found"]
