"""The folder of a run: files are read back as written, the newest intact checkpoint is used, and only one process trains."""

from __future__ import annotations

import math
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streampgs.base.errors import RunError
from streampgs.base.stage import Bundle
from streampgs.run import checkpoint, seal
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.lock import RunLock
from streampgs.run.memory import peak_rss_bytes, rss_bytes
from streampgs.table.catalog import Catalog, build_catalog
from streampgs.table.layout import Columns


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "data").mkdir()
    for name in "ab":
        table = pa.table({"label": [1, 0], "indices": [[0], [1, 2]]})
        with pa.ipc.new_file(tmp_path / f"data/{name}.arrow", table.schema) as writer:
            writer.write_table(table)
    return build_catalog([str(tmp_path / "data")], Columns())


def vectors(seed: int, size: int = 10) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {"dual": generator.normal(size=size), "sum": generator.normal(size=size)}


def written(folder: RunFolder, *rows: int) -> list[Path]:
    return [folder.write_checkpoint({"lanes": Bundle({"rows": n}, vectors(n))}, n) for n in rows]


def rows_of(found: Checkpoint | None) -> int:
    assert found is not None
    return found.sections["lanes"].values["rows"]


def flip(path: Path, share: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(share * len(data))] ^= 1
    path.write_bytes(data)


# The record and the catalog.


def test_record_and_catalog_are_read_back(folder, catalog):
    assert not folder.exists
    folder.create({"options": {"p": 1.8}}, catalog)
    assert folder.exists
    again = RunFolder(folder.path)
    assert again.record() == {"format": seal.FORMAT, "options": {"p": 1.8}}
    assert again.catalog().shards == catalog.shards
    again.write_catalog(catalog.first(1))
    assert folder.catalog().shards == catalog.shards[:1]


def test_a_run_of_another_format_is_refused(folder, catalog):
    folder.create({"format": 1}, catalog)
    with pytest.raises(RunError, match=rf"is of format 1; this version reads format {seal.FORMAT}\n  → start again"):
        folder.record()


@pytest.mark.parametrize("name", ["run.arrows", "catalog.arrows"])
def test_a_damaged_record_or_catalog_is_named(folder, catalog, name):
    folder.create({}, catalog)
    flip(folder.path / name)
    with pytest.raises(RunError, match=rf"'.*{name}' is damaged: its SHA-256 does not match"):
        folder.record()
        folder.catalog()


@pytest.mark.parametrize("name", ["run.arrows", "catalog.arrows"])
def test_a_pipe_is_refused_as_a_record(folder, catalog, name):
    folder.create({}, catalog)
    (folder.path / name).unlink()
    os.mkfifo(folder.path / name)
    with pytest.raises(RunError, match=rf"'.*{name}' is damaged: .*not a regular file"):
        folder.record()
        folder.catalog()


# Checkpoints.


def test_a_checkpoint_keeps_every_bit(folder, monkeypatch):
    monkeypatch.setattr(checkpoint, "_PART_BYTES", 24)  # so that arrays have several parts
    odd = np.array([0.0, -0.0, 5e-324, math.inf, -math.inf, math.nan, 0.1, -1e308, 1 / 3, 2.0**-1074])
    whole = np.arange(60, dtype=np.int64).reshape(5, 3, 4)
    arrays = {"dual": odd, "sum": odd[::-1], "whole": whole[:, ::2], "bytes": np.arange(256, dtype=np.uint8)}
    sections = {
        "lanes": Bundle({"t": 12, "x": 0.1}, arrays),
        "meter": Bundle({"rows": 3}),
        "source": Bundle({}, {"none": np.empty((0, 7))}, {"computed": (10, lambda: odd + 1.0)}),
    }
    path = folder.write_checkpoint(sections, 7)
    found = folder.newest_checkpoint()
    assert {name: bundle.values for name, bundle in found.sections.items()} == {
        "lanes": {"t": 12, "x": 0.1}, "meter": {"rows": 3}, "source": {},
    }  # fmt: skip
    expected = {"none": np.empty((0, 7)), "computed": odd + 1.0}
    for section, wanted in (("lanes", arrays), ("meter", {}), ("source", expected)):
        read = found.sections[section].arrays
        assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in read.items()} == {
            n: (a.dtype, a.shape, a.tobytes()) for n, a in wanted.items()
        }
    assert (found.path, found.damaged) == (path, [])
    part = checkpoint.read_checkpoint(path, "source", "unknown").sections
    assert list(part) == ["source"]
    assert part["source"].arrays["computed"].tobytes() == expected["computed"].tobytes()
    found.sections["lanes"].arrays["dual"][0] = 1.0  # the arrays are writable: a stage may keep them as its state


def test_the_last_three_checkpoints_are_kept(folder):
    paths = written(folder, 1, 5, 20, 300, 4000)
    assert folder.checkpoints() == paths[-3:]
    assert sorted(os.listdir(folder.path)) == [path.name for path in paths[-3:]]


@pytest.mark.parametrize("damage", [flip, lambda path: os.truncate(path, 100), lambda path: os.truncate(path, 0)])
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(folder, damage):
    paths = written(folder, 1, 2, 3)
    damage(paths[2])
    found = folder.newest_checkpoint()
    assert (found.path, rows_of(found)) == (paths[1], 2)
    assert np.array_equal(found.sections["lanes"].arrays["dual"], vectors(2)["dual"])
    assert [path for path, _ in found.damaged] == [paths[2]]
    assert all(why for _, why in found.damaged)
    damage(paths[1])
    found = folder.newest_checkpoint()
    assert (found.path, [path for path, _ in found.damaged]) == (paths[0], [paths[2], paths[1]])


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-backup.arrows",
        "checkpoint-000000000000002 (copy).arrows",
        "checkpoint-000000000000900.arrows~",
        "checkpoint-000000000000900.arrows.bak",
        "checkpoint-000000000000900.arrow",
        "checkpoint-00000000000000900.arrows",
        "checkpoint-900.arrows",
        "checkpoint-\N{ARABIC-INDIC DIGIT NINE}00000000000000.arrows",
        "checkpoint-00000000000090\n.arrows",
    ],
)
def test_a_file_with_a_name_like_that_of_a_checkpoint_is_ignored_and_kept(folder, name):
    paths = written(folder, 1, 2, 3)
    copy = folder.path / name
    copy.write_bytes(paths[0].read_bytes())
    found = folder.newest_checkpoint()
    assert (rows_of(found), found.damaged) == (3, [])
    assert folder.lookalikes() == [name]
    later = written(folder, 10, 20, 30, 40)
    assert folder.checkpoints() == later[-3:]
    assert copy.read_bytes()
    for path in later:
        path.unlink(missing_ok=True)
    assert folder.newest_checkpoint() is None
    with pytest.raises(RunError, match="exists already"):
        folder.refuse_if_taken()


def test_a_checkpoint_under_the_name_of_another_is_reported_and_not_used(folder):
    paths = written(folder, 1, 2, 3)
    (folder.path / "checkpoint-000000000000900.arrows").write_bytes(paths[0].read_bytes())
    found = folder.newest_checkpoint()
    assert rows_of(found) == 3
    assert [why for _, why in found.damaged] == ["its name is wrong: it was written after 1 rows"]


def test_training_continues_from_a_copy_despite_damaged_checkpoints(folder):
    """The remedy in the error is to restore a checkpoint from a copy. Later checkpoints must then be used."""
    (old,) = written(folder, 100)
    copy = old.read_bytes()
    for path in written(folder, 200, 300, 400):
        flip(path)
    old.write_bytes(copy)
    assert rows_of(folder.newest_checkpoint()) == 100
    written(folder, 110)
    assert rows_of(folder.newest_checkpoint()) == 110
    written(folder, 250)
    assert rows_of(folder.newest_checkpoint()) == 250


def test_if_all_checkpoints_are_damaged_the_error_names_them(folder):
    for path in written(folder, 1, 2, 3):
        flip(path)
    with pytest.raises(RunError) as refused:
        folder.newest_checkpoint()
    assert "all checkpoints of run" in refused.value.found
    for rows in (1, 2, 3):
        assert f"checkpoint-{rows:015d}.arrows: its SHA-256 does not match" in refused.value.found
    assert "restore one from a copy" in refused.value.remedy


def test_a_checkpoint_of_another_format_is_refused(folder):
    [path] = written(folder, 1)
    table, record = seal.read_sealed(path)
    seal.write_sealed(path, iter(table.to_batches()), table.schema, {**record, "format": 7})
    with pytest.raises(RunError, match="is of format 7"):
        folder.newest_checkpoint()


# The lock.

HOLD = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from streampgs.run.lock import RunLock\n"
    "with RunLock(Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)
TRY = (
    "import sys\n"
    "from pathlib import Path\n"
    "from streampgs.base.errors import RunError\n"
    "from streampgs.run.lock import RunLock\n"
    "try:\n"
    "    with RunLock(Path(sys.argv[1])):\n"
    "        print('got it')\n"
    "except RunError as error:\n"
    "    print(error)\n"
)


def holder(folder: RunFolder) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_the_process_id_of_the_first(folder):
    with RunLock(folder.path):
        tried = subprocess.run(
            [sys.executable, "-c", TRY, str(folder.path)], capture_output=True, text=True, check=True
        )
    assert f"'{folder.path}' is being trained by process {os.getpid()}\n" in tried.stdout
    assert "wait for it, or stop it" in tried.stdout


def test_the_lock_of_a_killed_process_is_released(folder):
    with holder(folder) as process:
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert (folder.path / "lock").read_text() == str(process.pid)
    with RunLock(folder.path):
        assert (folder.path / "lock").read_text() == str(os.getpid())


def test_a_deleted_lock_file_still_locks(folder):
    with RunLock(folder.path):
        (folder.path / "lock").unlink()
        with pytest.raises(RunError, match="is being trained by process"), RunLock(folder.path):
            pass


# Memory of this process.


def test_the_peak_of_memory_is_at_least_the_memory_in_use_and_includes_an_allocation():
    before = rss_bytes()
    size = 64 << 20
    with mmap.mmap(-1, size) as block:  # new pages: an array may reuse memory of earlier ones
        block.write(b"1" * size)
        assert rss_bytes() >= before + size // 2
        assert peak_rss_bytes() >= rss_bytes() > 0
        peak = peak_rss_bytes()
    assert peak_rss_bytes() >= peak - (1 << 20)
