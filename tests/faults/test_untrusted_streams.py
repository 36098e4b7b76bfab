"""The stream section of a checkpoint from an untrusted run: it is refused by the file's name, or it could have been ours."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streampgs.base.stage import Bundle
from streampgs.options.commands import EncodingOptions, Limits
from streampgs.packing.synth import write_dataset
from streampgs.run.folder import RunFolder
from streampgs.run.seal import read_sealed
from tests.end_to_end.mixed_tables import mixed
from tests.end_to_end.streaming import resume, train, written
from tests.faults.torture.forgery import VALUES, changed, places, seal, without
from tests.faults.torture.forks import in_child

KINDS: dict[str, dict[str, Any]] = {
    "sparse": {"sigma": 1e-3},
    "dense": {"sigma": 1e-3, "replay": 2.0},
    "mixed": {"sigma": 1e-3, "encoding": EncodingOptions(text=("text",))},
}
ROWS = 5_000


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
        [path] = RunFolder(self.run).checkpoints()
        self.name = path.name
        self.contents, self.record = read_sealed(path)
        self.section = RunFolder(self.run).newest_checkpoint().sections["worker"]
        self.taken = self.section.values["taken"]
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

    def with_values(self, folder: Path, values: Any) -> Any:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.run, run)
        seal(run / self.name, self.contents, changed(self.record, ("sections", "worker", "values"), values))
        return self.resumed(run)

    def with_arrays(self, folder: Path, arrays: dict[str, np.ndarray]) -> Any:
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.run, run)
        checkpoint = RunFolder(run).newest_checkpoint()
        sections = {**checkpoint.sections, "worker": Bundle(self.section.values, arrays)}
        rows = int(self.name.removeprefix("checkpoint-").removesuffix(".arrows"))
        assert RunFolder(run).write_checkpoint(sections, rows).name == self.name
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
def test_a_section_that_is_written_again_gives_the_same_bits(
    kind: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run = paused(kind)
    assert all(len(run.section.arrays[f"{part}.values"]) for part in ("reservoir", "window", "waiting"))
    ended = run.with_arrays(tmp_path, run.section.arrays)
    assert ended.finished, ended.message
    assert ended.result == run.expected


def refused(ended: Any, name: str) -> bool:
    """With an error that names the file. Values that JSON does not allow, such as NaN, count as damage."""
    advice = ("do not trust it", "restore one from a copy")
    return bool(
        ended.refused and name in ended.result["found"] and any(words in ended.result["remedy"] for words in advice)
    )


HARMLESS = {("cursor", "row"), ("reservoir", "largest_key"), ("reservoir", "counts", 2), ("reservoir", "counts", 3), ("reservoir", "counts", 4),
            ("reservoir", "counts", 5)}  # fmt: skip
"""Numbers that may have other values: the row of the window, which row is kept next, and how many rows have passed."""


@pytest.mark.parametrize("kind", KINDS)
def test_forged_numbers_are_an_error_that_names_the_file(
    kind: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run, chance = paused(kind), random.Random(kind)
    values = run.section.values
    wheres = [place for place in places(values) if place]
    for number in range(3 * len(wheres)):
        where, value = wheres[number % len(wheres)], chance.choice(VALUES)
        if isinstance(where[-1], str) and number >= 2 * len(wheres):
            record, claim = without(values, where), "absent"
        else:
            record, claim = changed(values, where, value), repr(value)[:60]
        ended = run.with_values(tmp_path, record)
        same = ended.finished and ended.result == run.expected
        used = where in HARMLESS and ended.finished
        assert refused(ended, run.name) or same or used, (where, claim, ended.message)


Arrays = dict[str, np.ndarray]


def with_item(name: str, value: Any, row: int = 3) -> Callable[[Arrays], Arrays]:
    def change(arrays: Arrays) -> Arrays:
        array = arrays[name].copy()
        array[row] = value
        return {**arrays, name: array}

    return change


def with_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {**arrays, name: change(arrays[name])}


def longer_row(arrays: Arrays) -> Arrays:
    """One row of the window has as many entries as two windows hold."""
    lengths, count = arrays["window.lengths"].copy(), 60_000
    entries = np.arange(count - int(lengths[0])).astype(np.uint32)
    lengths[0] = count
    more = {"window.lengths": lengths}
    for name in ("window.indices", "window.values"):
        if arrays[name].size:
            more[name] = np.concatenate([entries.astype(arrays[name].dtype), arrays[name]])
    return {**arrays, **more}


CHANGES: dict[str, Callable[[Arrays], Arrays]] = {
    "no window": lambda arrays: {name: a[:0] if name.startswith("window") else a for name, a in arrays.items()},
    "no rows waiting": lambda arrays: {name: a[:0] if name.startswith("waiting") else a for name, a in arrays.items()},
    "an array less": lambda arrays: {name: a for name, a in arrays.items() if name != "waiting.numbers"},
    "the last row less": with_array("window.numbers", lambda a: a[:-1]),
    "rows twice": with_array("window.lengths", lambda a: np.concatenate([a, a])),
    "backwards": with_array("waiting.numbers", lambda a: a[::-1]),
    "fewer values": with_array("window.values", lambda a: a[:-1]),
    "fewer values in the reservoir": with_array("reservoir.values", lambda a: a[:-1]),
    "values of another type": with_array("waiting.values", lambda a: a.astype(np.float64)),
    "numbers of another type": with_array("waiting.numbers", lambda a: a.astype(np.int32)),
    "labels of another shape": with_array("window.labels", lambda a: a.reshape(-1)),
    "a number of another place": with_item("waiting.numbers", 2**62),
    "a negative number": with_item("window.numbers", -1),
    "no label": with_item("window.labels", math.nan),
    "another label": with_item("waiting.labels", 0.25),
    "no label in the reservoir": with_item("reservoir.labels", math.nan),
    "an infinite value": with_item("window.values", math.inf),
    "an infinite value in the reservoir": with_array("reservoir.values", lambda a: np.full_like(a, math.inf)),
    "a negative length": with_item("window.lengths", -1),
    "an unbounded length": with_item("waiting.lengths", 2**62),
    "rows that overlap": with_array("reservoir.starts", lambda a: a * 0),
    "rows outside of the reservoir": with_item("reservoir.starts", 2**62),
    "rows before the reservoir": with_item("reservoir.starts", -1),
    "longer than its slot": with_item("reservoir.lengths", 10**6),
    "a slot of any size": with_item("reservoir.capacities", 2**62),
    "left out for no reason": lambda arrays: {
        **arrays, "waiting.bad_numbers": arrays["waiting.numbers"][:1], "waiting.bad_reasons": np.array([99]),
    },
    "a row longer than a window": longer_row,
}  # fmt: skip
OF_SPARSE: dict[str, Callable[[Arrays], Arrays]] = {
    "fewer indices": with_array("window.indices", lambda a: a[:-1]),
    "an index out of range": with_item("window.indices", 2**32 - 1),
    "an index twice": with_array("waiting.indices", lambda a: a * 0 + 5),
    "indices out of range in the reservoir": with_array("reservoir.indices", lambda a: a * 0 + 2**31),
}


@pytest.mark.parametrize(
    ("kind", "change"), [*(("sparse", name) for name in (*CHANGES, *OF_SPARSE)), *(("dense", name) for name in CHANGES)]
)
def test_forged_rows_are_an_error_that_names_the_file(
    kind: str, change: str, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    run = paused(kind)
    ended = run.with_arrays(tmp_path, {**CHANGES, **OF_SPARSE}[change](run.section.arrays))
    assert refused(ended, run.name), ended.message


@pytest.mark.parametrize(
    ("place", "claim"),
    [
        (("worker",), None), (("worker", "values"), None), (("worker", "values", "taken"), -1),
        (("worker", "values", "taken"), "x"), (("worker", "values", "taken"), 2**70), (("worker", "values", "taken"), 17),
        (("worker", "values", "cursor"), None), (("worker", "values", "cursor"), {}), (("run", "values", "limits"), "none"),
        (("run", "values", "options"), {"p": 7}), (("lanes", "arrays"), {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_checkpoint_of_a_stream_is_an_error_that_names_the_file(
    place: tuple[str, ...], claim: Any, paused: Callable[[str], Paused], tmp_path: Path
) -> None:
    source, run = paused("sparse"), tmp_path / "run"
    shutil.copytree(source.run, run)
    seal(run / source.name, source.contents, changed(source.record, ("sections", *place), claim))
    ended = source.resumed(run)
    assert ended.refused, ended.message
    assert source.name in ended.result["found"]


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
    seal(
        run / "run.arrows",
        table,
        {**record, "stream": {**record["stream"], "sizes": {**record["stream"]["sizes"], **claim}}},
    )
    ended = source.resumed(run)
    assert ended.refused, ended.message
    assert "run.arrows" in ended.result["found"] or "memory" in ended.result["found"]
