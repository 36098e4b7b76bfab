"""A file that cannot be read at the moment is not damaged: nothing older is used in its place, and nothing is deleted."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base import faults
from streampgs.base.errors import StreampgsError, Unreadable
from streampgs.packing.packer import pack
from streampgs.run.folder import RunFolder
from tests.faults.failing_calls import FailingCalls, Sometimes, always
from tests.faults.torture.cases import CASES, DISK
from tests.faults.torture.subjects import Subject

Subjects = Callable[[str], Subject]
REMEDIES = {
    errno.EIO: "try again",
    errno.ESTALE: "try again",
    errno.ETIMEDOUT: "try again",
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "close other programs",
    errno.EACCES: "check the permissions",
    errno.ENOMEM: "free some memory",
}


def paused(subject: Subject) -> Path:
    run = subject.new_run()
    for rows in (600, 1200, 1800):
        subject.start_or_resume(run, rows=rows)
    return run


def contents(folder: Path) -> dict[str, bytes]:
    """Of all files but the history, which records errors."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".jsonl")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name != "lock"}


def readers(run: Path, data: Path) -> dict[str, Callable[[], object]]:
    return {
        "inspect": lambda: streampgs.inspect(run),
        "evaluate": lambda: streampgs.evaluate(run, data),
        "predict": lambda: streampgs.predict(run, data, out=run.parent / "predictions.parquet"),
        "load": lambda: streampgs.Model.load(run),
        "resume": lambda: streampgs.resume(run, epochs=3),
    }


@pytest.mark.parametrize("number", REMEDIES, ids=errno.errorcode.__getitem__)
def test_files_of_a_run_that_cannot_be_opened_are_not_called_damaged(
    subject: Subjects, monkeypatch, number: int
) -> None:
    encoded = subject("encoded")
    run = paused(encoded)
    before = contents(run)
    newest = max(name for name in before if name.startswith("checkpoint-"))
    used = {
        "run.arrows": ["inspect", "evaluate", "predict", "load", "resume"],
        newest: ["inspect", "evaluate", "predict", "load", "resume"],
        "encoding.arrows": ["evaluate", "predict", "load", "resume"],
        "catalog.arrows": ["resume"],
    }
    for name, commands in used.items():
        for command in commands:
            with monkeypatch.context() as patch:
                failing = FailingCalls(patch, always(number, name, "open"))
                with pytest.raises(Unreadable) as refused:
                    readers(run, encoded.data)[command]()
            assert failing.failed
            assert refused.value.found == f"'{run / name}' cannot be read: {os.strerror(number)}"
            assert REMEDIES[number] in refused.value.remedy
            assert contents(run) == before
    assert encoded.start_or_resume(run).dual_sha256 == encoded.expected


def test_a_run_folder_that_cannot_be_listed_is_not_taken_for_a_new_one(subject: Subjects, monkeypatch) -> None:
    sparse = subject("sparse-arrow")
    run = paused(sparse)
    before = contents(run)
    for command in (lambda: streampgs.train(sparse.data, run=run), *readers(run, sparse.data).values()):
        with monkeypatch.context() as patch:
            FailingCalls(patch, lambda call, path: errno.EIO if call == "listdir" and path == str(run) else None)
            with pytest.raises(Unreadable, match=rf"the folder '{run}' cannot be read: Input/output error"):
                command()
        assert contents(run) == before


def test_checkpoints_that_a_trainer_replaces_meanwhile_are_not_missed(subject: Subjects, monkeypatch) -> None:
    """Between listing and opening, the trainer wrote three new ones and removed those that were listed."""
    sparse = subject("sparse-arrow")
    run, moved = paused(sparse), []
    whole = run.with_name(run.name + "-later")
    shutil.copytree(run, whole)
    streampgs.resume(whole, rows=2400)

    def replace_checkpoints(call: str, path: str) -> None:
        if call == "open" and "checkpoint-" in path and not moved:
            moved.append(path)
            for old in run.glob("checkpoint-*"):
                old.unlink()
            for new in sorted(whole.glob("checkpoint-*"))[-1:]:
                shutil.copy(new, run)

    FailingCalls(monkeypatch, replace_checkpoints)
    assert streampgs.Model.load(run).rows == 2400
    assert moved


@pytest.mark.parametrize("name", [case.name for case in CASES if case.place == DISK])
def test_faults_of_a_network_drive_that_pass_change_no_bit(subject: Subjects, monkeypatch, name: str) -> None:
    one = subject(name)
    run = one.new_run()
    failing = FailingCalls(monkeypatch, Sometimes(errno.ESTALE, one.folder, "open", "preadv"))
    one.start_or_resume(run, rows=700)
    assert one.start_or_resume(run).dual_sha256 == one.expected
    assert failing.failed > 10


@pytest.mark.parametrize("name", ["sparse-arrow", "sparse-parquet", "encoded"])
@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_shard_that_cannot_be_read_is_not_called_damaged(
    subject: Subjects, monkeypatch, name: str, call: str
) -> None:
    one = subject(name)
    run = paused(one)
    shutil.rmtree(run / "cache", ignore_errors=True)
    shard = sorted(one.data.iterdir())[2]
    with monkeypatch.context() as patch:
        failing = FailingCalls(patch, always(errno.EIO, shard.name, call))
        with pytest.raises(Unreadable, match=rf"^shard '{shard}' cannot be read: Input/output error\n"):
            streampgs.resume(run, epochs=3)
    assert failing.failed > len(faults.PAUSES)
    checkpoint = RunFolder(run).newest_checkpoint()
    assert checkpoint is not None
    assert checkpoint.damaged == []
    assert one.start_or_resume(run).dual_sha256 == one.expected


@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_cache_that_cannot_be_read_is_kept(subject: Subjects, monkeypatch, call: str) -> None:
    parquet = subject("sparse-parquet")
    run = paused(parquet)
    cached = contents(run / "cache")
    assert cached
    with monkeypatch.context() as patch:
        FailingCalls(patch, always(errno.EIO, "cache", call))
        with pytest.raises(
            Unreadable, match=r"cache file '.*' cannot be read: Input/output error\n.* if the file is deleted"
        ):
            streampgs.resume(run, epochs=3)
    assert cached.items() <= contents(run / "cache").items()
    assert parquet.start_or_resume(run).dual_sha256 == parquet.expected


def test_a_shard_that_was_replaced_meanwhile_is_not_read_on(subject: Subjects, monkeypatch, tmp_path: Path) -> None:
    """The old descriptor is stale because another file has the name now."""
    sparse = subject("sparse-arrow")
    data = shutil.copytree(sparse.data, tmp_path / "data")
    first, second = sorted(data.iterdir())[:2]
    replaced: list[str] = []

    def stale(call: str, path: str) -> int | None:
        if call != "preadv" or path != str(first) or len(replaced) > 4:
            return None
        replaced.append(path)
        if len(replaced) < 4:
            return None
        shutil.copy(second, first)
        return errno.ESTALE

    FailingCalls(monkeypatch, stale)
    with pytest.raises(StreampgsError, match=rf"shard '{first}' was replaced while in use"):
        streampgs.train(data, run=tmp_path / "run", **sparse.case.all_options)


# Packing.


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv.gz"])
def test_inputs_that_cannot_be_read_are_not_called_damaged(monkeypatch, tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"label": [0, 1] * 50, "x": range(100)}), tmp_path / "rows.parquet")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"label,x\n" + b"1,2\n" * 100))
    FailingCalls(monkeypatch, always(errno.EMFILE, name, "open"))
    with pytest.raises(Unreadable, match=rf"'.*{name}' cannot be read: Too many open files\n.*ulimit -n"):
        pack(tmp_path / name, tmp_path / "out")
