"""A file of a newer format is refused, of each kind: an older program must not guess its contents."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import RunError
from streampgs.reading import cache
from streampgs.run import seal
from tests.faults.torture.cases import CASES
from tests.faults.torture.subjects import Subject


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A table that is encoded and decoded into the cache. Its encoding grows with the last shard."""
    return Subject(next(case for case in CASES if case.name == "encoded"), tmp_path_factory.mktemp("formats"))


def newer_sealed(path: Path) -> None:
    table, record = seal.read_sealed(path)
    seal.write_sealed(path, iter(table.to_batches()), table.schema, {**record, "format": seal.FORMAT + 1})


def newer_cache(path: Path) -> None:
    data = path.read_bytes()
    size, written_as = cache._TAIL.itemsize, b"%d" % (cache.FORMAT + 1)
    tail = np.frombuffer(data[-size:], cache._TAIL).copy()
    index_bytes = int(tail["slices"][0]) * cache._INDEX.itemsize
    index = np.frombuffer(data[-size - index_bytes : -size], cache._INDEX)
    tail["index_checksum"], tail["format"] = cache._of(index, written_as), written_as
    path.write_bytes(data[:-size] + tail.tobytes())


def refused(path: Path, change: Callable[[Path], None], command: Callable[[], object]) -> None:
    before = path.read_bytes()
    change(path)
    changed = path.read_bytes()
    assert changed != before
    with pytest.raises(RunError, match=rf"^'{re.escape(str(path))}' was written by a newer streampgs: .*\n  → upgrade"):
        command()
    assert path.read_bytes() == changed
    path.write_bytes(before)


def test_every_file_of_a_run_is_refused_if_its_format_is_newer(subject: Subject) -> None:
    run = subject.new_run()
    for rows in (500, 1000):
        subject.start_or_resume(run, rows=rows)
    sealed = sorted(run.glob("*.arrows"))
    assert [re.sub(r"-\d+", "", path.stem) for path in sealed] == [
        "catalog",
        "checkpoint",
        "checkpoint",
        "encoding",
        "run",
    ]
    for path in sealed[:1] + sealed[2:]:  # the older checkpoint is not read
        refused(path, newer_sealed, lambda: subject.start_or_resume(run))
        if path.stem != "catalog":
            refused(path, newer_sealed, lambda: streampgs.evaluate(run, subject.data))
    assert subject.start_or_resume(run).dual_sha256 == subject.expected


def test_a_cache_is_refused_and_kept_if_its_format_is_newer(subject: Subject) -> None:
    run = subject.new_run()
    subject.start_or_resume(run, rows=1000)
    cached = {path: path.read_bytes() for path in (run / "cache").glob("*.rows")}
    assert cached
    for path in cached:
        newer_cache(path)
    newer = {path: path.read_bytes() for path in cached}
    with pytest.raises(RunError, match=r"cache/.*' was written by a newer streampgs: .*\n  → upgrade"):
        subject.start_or_resume(run)
    assert {path: path.read_bytes() for path in cached} == newer
    for path, data in cached.items():
        path.write_bytes(data)
    assert subject.start_or_resume(run).dual_sha256 == subject.expected


def test_the_encoding_of_a_grown_table_is_refused_if_its_format_is_newer(tmp_path: Path) -> None:
    run, data = tmp_path / "run", tmp_path / "data"
    data.mkdir()
    table = pa.table({"label": [0, 1] * 300, "x": range(600)})
    pq.write_table(table, data / "0.parquet")
    streampgs.train(data, run=run, epochs=1, memory="60MB", sigma=1e-3)
    pq.write_table(table.append_column("y", table.column("x")), data / "1.parquet")
    streampgs.resume(run, epochs=2)
    [grown] = run.glob("encoding-*.arrows")
    refused(grown, newer_sealed, lambda: streampgs.resume(run, epochs=3))
    refused(grown, newer_sealed, lambda: streampgs.evaluate(run, data))


def test_a_file_without_a_format_or_of_an_older_one_is_refused(tmp_path: Path) -> None:
    for number in (None, seal.FORMAT - 1, "2", 2.5):
        seal.write_sealed(tmp_path / "a.arrows", iter(()), pa.schema({}), {"format": number})
        with pytest.raises(RunError, match=rf"is of format {number!r}; this version reads format {seal.FORMAT}"):
            seal.read_sealed(tmp_path / "a.arrows")
