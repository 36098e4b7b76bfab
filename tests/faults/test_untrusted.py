"""An untrusted run folder: what it may make streampgs read, write and delete."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from streampgs.base.errors import RunError, StreampgsError
from streampgs.encoding import types
from streampgs.model.inspection import inspect_run
from streampgs.model.model import Model
from streampgs.run.cache_place import mark
from streampgs.run.folder import RunFolder
from streampgs.run.memory import peak_rss_bytes
from streampgs.run.seal import SealBroken, read_sealed
from tests.faults.torture.forgery import changed, seal
from tests.faults.torture.subjects import Subject

Subjects = Callable[[str], Subject]


def paused(subject: Subject, **more: object) -> Path:
    run = subject.new_run()
    subject.start_or_resume(run, rows=subject.case.rows, **more)
    return run


def forge(path: Path, **claims: object) -> None:
    table, record = read_sealed(path)
    seal(path, table, {**record, **claims})


class Notes:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


# The place of the cache.


def test_a_cache_elsewhere_is_not_used_because_a_record_names_it(subject: Subjects, tmp_path: Path) -> None:
    parquet, home = subject("sparse-parquet"), tmp_path / "home"
    run = paused(parquet)
    home.mkdir()
    forge(run / "run.arrows", cache=str(home))
    notes = Notes()
    assert parquet.start_or_resume(run, observer=notes).dual_sha256 == parquet.expected
    assert os.listdir(home) == []
    assert any("is not marked as one: now it is in the run's folder" in note for note in notes.notes)
    forge(run / "run.arrows", cache="../../home")
    parquet.start_or_resume(run)
    assert os.listdir(home) == []


def test_a_cache_that_a_user_has_chosen_is_used_again(subject: Subjects, tmp_path: Path) -> None:
    parquet, cache = subject("sparse-parquet"), tmp_path / "cache"
    run = paused(parquet, cache=cache)
    files = {path.name for path in cache.iterdir()}
    assert len(files) > 1
    assert not (run / "cache").exists()
    assert parquet.start_or_resume(run).dual_sha256 == parquet.expected
    assert {path.name for path in cache.iterdir()} == files
    assert not (run / "cache").exists()


def test_the_cache_in_a_run_folder_moves_with_it(subject: Subjects, tmp_path: Path) -> None:
    parquet = subject("sparse-parquet")
    run = paused(parquet)
    shutil.move(run, tmp_path / "moved")
    notes = Notes()
    assert parquet.start_or_resume(tmp_path / "moved", observer=notes).dual_sha256 == parquet.expected
    assert not run.exists()
    assert not any("cache" in note for note in notes.notes)


@pytest.mark.parametrize("link", ["cache", "cache/shards"])
def test_a_cache_that_is_a_link_is_refused_unless_its_target_is_marked(
    subject: Subjects, tmp_path: Path, link: str
) -> None:
    parquet, home = subject("sparse-parquet"), tmp_path / "home"
    run = paused(parquet)
    home.mkdir()
    if link == "cache":
        shutil.rmtree(run / "cache")
    (run / link).symlink_to(home)
    with pytest.raises(RunError, match=r"is a link to .*, which is not marked as a cache"):
        parquet.start_or_resume(run)
    assert os.listdir(home) == []
    mark(home)
    assert parquet.start_or_resume(run).dual_sha256 == parquet.expected


# Folders that rows from memory may replace.


def test_rows_from_memory_do_not_replace_an_existing_folder(tmp_path: Path) -> None:
    (tmp_path / "project" / "data").mkdir(parents=True)
    (tmp_path / "project" / "data" / "years.csv").write_text("of work")
    with pytest.raises(RunError, match="exists already, but not from an interrupted start"):
        streampgs.train(np.eye(4), [0, 1, 0, 1], run=tmp_path / "project")
    assert (tmp_path / "project" / "data" / "years.csv").read_text() == "of work"


def test_a_killed_start_with_rows_from_memory_starts_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "data").mkdir(parents=True)
    (run / "data" / ".part-00000.arrow.writing").write_bytes(b"half")
    (run / "lock").touch()
    report = streampgs.train(np.eye(4), [0, 1, 0, 1], run=run, epochs=1, memory="60MB", sigma=0.1)
    assert report.rows == 4


# Commands that only read a run.


@pytest.mark.parametrize(
    ("place", "claim"),
    [(("lanes", "values"), {}), (("race", "values"), {}), (("run", "values", "options"), {"p": 7}),
     (("worker", "values", "cursor"), None), (("meter", "values"), "many"), (("lanes", "values", "specs"), [{}])],
    ids=str,
)  # fmt: skip
def test_reading_a_forged_checkpoint_is_an_error_that_names_it(
    subject: Subjects, place: tuple[str, ...], claim: object
) -> None:
    run = paused(subject("sparse-arrow"))
    newest = RunFolder(run).checkpoints()[-1]
    table, record = read_sealed(newest)
    seal(newest, table, changed(record, ("sections", *place), claim))
    for look in (inspect_run, Model.load):
        with pytest.raises(RunError) as refused:
            look(run)
        assert newest.name in refused.value.found
        assert refused.value.remedy


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_never_enters_the_model(subject: Subjects, number: float) -> None:
    sparse = subject("sparse-arrow")
    run = paused(sparse)
    newest = RunFolder(run).checkpoints()[-1]
    checkpoint = RunFolder(run).newest_checkpoint()
    checkpoint.sections["lanes"].arrays["0.dual"][3] = number
    RunFolder(run).write_checkpoint(checkpoint.sections, int(newest.stem.split("-")[1]))
    with pytest.raises(RunError, match=rf"{newest.name}' is intact, but .*a number that is not finite"):
        sparse.start_or_resume(run)


def test_more_steps_than_any_run_can_take_are_refused(subject: Subjects) -> None:
    """Sums over workers must not overflow: negative counts never end."""
    sparse = subject("sparse-arrow")
    run = paused(sparse)
    newest = RunFolder(run).checkpoints()[-1]
    checkpoint = RunFolder(run).newest_checkpoint()
    checkpoint.sections["lanes"].arrays["0.steps"][...] = 1 << 62
    RunFolder(run).write_checkpoint(checkpoint.sections, int(newest.stem.split("-")[1]))
    with pytest.raises(RunError, match=rf"{newest.name}' is intact, but .*steps"):
        sparse.start_or_resume(run)


# The rest.


def test_out_of_memory_is_an_error(subject: Subjects, tmp_path: Path) -> None:
    sparse = subject("sparse-arrow")
    words = [
        "train",
        str(sparse.data),
        "--run",
        str(tmp_path / "run"),
        *sparse.case.words(),
        "--feature-count",
        "200000000",
    ]
    # Without the forecast, as if another process took the memory meanwhile.
    program = "from streampgs.cli import main; from streampgs.run import fitting; fitting.bounds = list; main()"
    limited = f"ulimit -v 1600000; exec {shlex.join([sys.executable, '-c', program, *map(str, words)])}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "error: out of memory" in done.stderr
    assert "continue with streampgs resume" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "around", [pa.list_, lambda kind: pa.list_(pa.struct({"indices": pa.list_(pa.int8()), "values": pa.list_(kind)}))]
)
def test_the_work_on_a_type_does_not_grow_with_a_power_of_its_depth(
    around: Callable[[pa.DataType], pa.DataType], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, calls, storage_of = pa.int32(), [0], types.storage_of

    def counting(kind: pa.DataType) -> pa.DataType:
        calls[0] += 1
        assert calls[0] < 10_000
        return storage_of(kind)

    monkeypatch.setattr(types, "storage_of", counting)
    for _ in range(60):
        kind = around(kind)
    assert types.class_of(kind) is None
    assert types.class_of(pa.list_(kind)) is None


@pytest.mark.parametrize(
    "record",
    [b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5000, b'{"a": [' + b"[]," * 23_000_000 + b"[]]}"],
    ids=range(4),
)
def test_a_record_that_would_crash_or_fill_the_memory_is_damage(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.arrows"
    schema = pa.schema({}).with_metadata({b"streampgs": record})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    data = sink.getvalue().to_pybytes()
    path.write_bytes(data + b"spgseal1" + hashlib.sha256(data).digest())
    before = peak_rss_bytes()
    with pytest.raises(SealBroken, match="its contents are not"):
        read_sealed(path)
    assert peak_rss_bytes() - before < 600 * 10**6


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_odd_files_in_a_cache_are_replaced(subject: Subjects, kind: str) -> None:
    parquet = subject("sparse-parquet")
    run = paused(parquet)
    for file in (run / "cache").rglob("*.arrows"):
        copy = file.with_suffix(".copy")
        file.rename(copy)
        make = {
            "pipe": os.mkfifo,
            "device": lambda p: p.symlink_to("/dev/zero"),
            "link": lambda p, c=copy: p.symlink_to(c),
        }
        make[kind](file)
    assert parquet.start_or_resume(run).dual_sha256 == parquet.expected


def test_no_source_executes_data() -> None:
    forbidden = {"eval", "exec", "pickle", "marshal", "shelve", "__import__", "popen"}
    for source in Path(streampgs.__file__).parent.rglob("*.py"):
        tokens = list(tokenize.tokenize(io.BytesIO(source.read_bytes()).readline))
        names = {token.string for token in tokens if token.type == tokenize.NAME}
        assert not names & forbidden, source
        assert not {"subprocess", "system"} & names, source


def test_a_shard_with_an_impossible_path_is_named(subject: Subjects) -> None:
    sparse = subject("sparse-arrow")
    run = paused(sparse)
    table, record = read_sealed(run / "catalog.arrows")
    paths = table.column("path").to_pylist()
    paths[1] = "/" + "x" * 300
    place = table.schema.get_field_index("path")
    seal(run / "catalog.arrows", table.set_column(place, "path", [paths]), record)
    with pytest.raises(StreampgsError, match=r"x{300}"):
        sparse.start_or_resume(run)


FORGED_BEFORE = [
    ("run.arrows", ("sizes", "block_bytes"), 1 << 31),
    ("checkpoint", ("sections", "models", "values", "sigma_rows"), 0.5),
    ("checkpoint", ("sections", "lanes", "values", "specs", 0, "batch"), 1 << 32),
    ("checkpoint", ("sections", "race", "values", "judges_on"), float("inf")),
    ("checkpoint", ("sections", "run", "values", "options", "weight"), "x"),
]


@pytest.mark.parametrize(("name", "place", "value"), FORGED_BEFORE, ids=str)
def test_values_that_once_ended_in_a_traceback_are_refused_or_harmless(
    subject: Subjects, name: str, place: tuple, value: object
) -> None:
    growing = subject("growing")
    run = growing.new_run()
    growing.start_or_resume(run, rows=growing.case.rows * 3 // 2)
    path = RunFolder(run).checkpoints()[-1] if name == "checkpoint" else run / name
    table, record = read_sealed(path)
    seal(path, table, changed(record, place, value))
    try:
        growing.start_or_resume(run)
    except RunError as refused:
        assert refused.remedy
