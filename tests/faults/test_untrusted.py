"""An untrusted run folder: what it may make streampgs read, write and delete."""

from __future__ import annotations

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
import pytest

import streampgs
from streampgs.base.errors import RunError
from streampgs.run.folder import RunFolder
from tests.end_to_end.observers import Notes
from tests.faults.torture.subjects import Subject

Subjects = Callable[[str], Subject]


def paused(subject: Subject, **more: object) -> Path:
    run = subject.new_run()
    subject.start_or_resume(run, rows=subject.case.rows, **more)
    return run


# The place of the cache.


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


@pytest.mark.parametrize("kind", ["pipe", "device", "link"])
def test_odd_files_in_a_cache_are_replaced(subject: Subjects, kind: str) -> None:
    parquet = subject("sparse-parquet")
    run = paused(parquet)
    for file in (run / "cache").rglob("*.rows"):
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
