"""An interrupted pack goes on with the same command and ends with the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampgs.errors import DataError, OptionError
from streampgs.packing.journal import NAME, RUNS
from streampgs.packing.packer import pack
from streampgs.run.report import StopRequest
from tests.packing.conftest import contents_of, table_of

ROWS = 400


def write_inputs(folder: Path) -> dict[str, dict]:
    """A file of each kind, and the options it takes."""
    random = np.random.default_rng(1)
    numbers = random.normal(size=ROWS)
    texts = {
        "rows.svm": [f"{x:.3f} {i}:{x!r} {i + 3}:1" for i, x in enumerate(numbers.tolist())],
        "rows.vw": [f"1 |f {i}:{x!r}" for i, x in enumerate(numbers.tolist())],
        "rows.csv": ["i,x,word", *(f"{i},{x!r},w{i % 7}" for i, x in enumerate(numbers.tolist()))],
        "rows.jsonl": [json.dumps({"i": i, "x": x}) for i, x in enumerate(numbers.tolist())],
    }
    for name, lines in texts.items():
        # Rows that are left out must be counted once, however often the work is taken up.
        bad = {"rows.svm": ["x"], "rows.vw": ["y"], "rows.csv": ["1", "z,1,w"], "rows.jsonl": ["[]"]}[name]
        lines[150:150] = bad
        (folder / name).write_text("\n".join(lines) + "\n")
    few = pa.array([i % 11 == 0 if i > 200 else None for i in range(ROWS)])
    table = pa.table({"x": numbers, "few": few, "word": pa.array([None if i % 5 else f"w{i}" for i in range(ROWS)])})
    pq.write_table(table, folder / "rows.parquet", row_group_size=60)
    with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    np.save(folder / "rows.npy", random.normal(size=(ROWS, 3)))
    np.savez(folder / "rows.npz", X=random.normal(size=(ROWS, 3)), y=numbers)
    options: dict[str, dict] = {name: {"on_bad_row": "skip"} for name in texts}
    options["rows.csv"]["types"] = {"i": "int64"}
    return options | {name: {} for name in NAMES if name not in texts}


NAMES = ["rows.svm", "rows.vw", "rows.csv", "rows.jsonl", "rows.parquet", "rows.arrow", "rows.npy", "rows.npz"]


@pytest.fixture
def small_pieces(small_chunks, monkeypatch) -> None:
    from streampgs.packing import array_slices, arrow_tables, packer

    small_chunks(700)
    monkeypatch.setattr(array_slices, "SLICE_BYTES", 500)
    monkeypatch.setattr(arrow_tables, "_PIECE_BYTES", 500)
    monkeypatch.setattr(packer, "share_of", lambda memory: 3000)


def stopped_after(count: int) -> tuple[StopRequest, dict]:
    """A stop at the given report of progress."""
    stop = StopRequest()
    seen = 0

    def look(status) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            stop.ask("test")

    return stop, {"on_progress": look, "stop": stop}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_pause_is_no_pause(tmp_path, small_pieces, name, shuffle):
    options = write_inputs(tmp_path)[name] | {"rows_per_shard": 137, "block_bytes": 4096, "shuffle": shuffle}
    whole = pack(tmp_path / name, tmp_path / "whole", **options)
    assert whole.rows == ROWS
    assert sum(whole.skipped_rows.values()) == ("on_bad_row" in options) + ("types" in options)
    for moments in ([0], [4, 9], [15, 12, 18]):
        out = tmp_path / f"out{len(moments)}"
        for moment in moments:
            _, watched = stopped_after(moment)
            report = pack(tmp_path / name, out, **options, **watched)
            if report.stopped_by == "done":
                break
            assert report.rows < ROWS
            assert not [file.name for file in out.iterdir() if file.name.startswith(".part")]
        final = pack(tmp_path / name, out, **options)
        assert contents_of(out) == contents_of(tmp_path / "whole")
        assert final.skipped_rows == whole.skipped_rows
        assert final.rows == ROWS
        assert {file.name for file in out.iterdir()} == {NAME, *contents_of(out)}


KILLED = """
import os, signal, sys
from streampgs.packing import array_slices, byte_streams, csv_text, packer
byte_streams._CHUNK_BYTES = csv_text._BLOCK_BYTES = 700
array_slices.SLICE_BYTES = 500
packer.share_of = lambda memory: 3000
source, out, moment, shuffle = sys.argv[1:]
seen = 0
def look(status):
    global seen
    seen += 1
    if seen == int(moment):
        os.kill(os.getpid(), signal.SIGKILL)
packer.pack(source, out, rows_per_shard=137, block_bytes=4096, shuffle=shuffle == "shuffle", on_bad_row="skip", on_progress=look)
"""


@pytest.mark.parametrize(("shuffle", "moment"), [("", 8), ("shuffle", 6), ("shuffle", 40)])
def test_a_killed_pack_goes_on(tmp_path, small_pieces, shuffle, moment):
    write_inputs(tmp_path)
    options = {"rows_per_shard": 137, "block_bytes": 4096, "shuffle": bool(shuffle), "on_bad_row": "skip"}
    source, out = tmp_path / "rows.svm", tmp_path / "out"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", KILLED, str(source), str(out), str(moment), shuffle]
    killed = subprocess.run(command, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    pack(source, out, **options)
    pack(source, tmp_path / "whole", **options)
    assert contents_of(out) == contents_of(tmp_path / "whole")
    assert {file.name for file in out.iterdir()} == {NAME, *contents_of(out)}


def test_every_moment_between_two_writes_can_be_the_last(tmp_path, small_pieces, monkeypatch):
    """As if killed right after a rename: a shard, a run or a journal is there, and what follows is not."""
    write_inputs(tmp_path)
    options = {"rows_per_shard": 90, "block_bytes": 4096, "shuffle": True, "on_bad_row": "skip"}
    pack(tmp_path / "rows.svm", tmp_path / "whole", **options)
    rename = os.replace

    class Killed(BaseException):
        pass

    for moment in range(1, 40):
        out = tmp_path / f"out{moment}"
        seen = 0

        def counted(source, target, moment=moment):
            nonlocal seen
            rename(source, target)
            seen += 1
            if seen == moment:
                raise Killed

        monkeypatch.setattr(os, "replace", counted)
        try:
            pack(tmp_path / "rows.svm", out, **options)
            ended = True
        except Killed:
            ended = False
        monkeypatch.setattr(os, "replace", rename)
        pack(tmp_path / "rows.svm", out, **options)
        assert contents_of(out) == contents_of(tmp_path / "whole"), moment
        assert not (out / RUNS).exists()
        if ended:
            return
    raise AssertionError("the work has more renames than were tried")


def test_what_was_interrupted_after_types_widened(tmp_path, small_pieces):
    (tmp_path / "rows.csv").write_text("a\n" + "1\n" * 600 + "x\n" + "1\n" * 600)
    options = {"rows_per_shard": 100}
    pack(tmp_path / "rows.csv", tmp_path / "whole", **options)
    for moment in (1, 3, 5, 7):
        out = tmp_path / f"out{moment}"
        _, watched = stopped_after(moment)
        assert pack(tmp_path / "rows.csv", out, **options, **watched).stopped_by == "test"
        pack(tmp_path / "rows.csv", out, **options)
        assert contents_of(out) == contents_of(tmp_path / "whole")


def test_nothing_is_done_twice(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    assert not pack(tmp_path / "rows.svm", tmp_path / "out").nothing_to_do
    before = (tmp_path / "out" / "part-00000.arrow").stat()
    report = pack(tmp_path / "rows.svm", tmp_path / "out")
    assert report.nothing_to_do
    assert report.rows == 1
    assert (tmp_path / "out" / "part-00000.arrow").stat() == before


def test_another_command_is_refused_until_it_overwrites(tmp_path):
    source, out = tmp_path / "rows.svm", tmp_path / "out"
    source.write_text("1 2:3\n")
    (tmp_path / "more.svm").write_text("1 2:3\n")
    pack(source, out)
    for inputs, options, found in (
        ([source], {"format": "parquet"}, "begun with format 'arrow' and not 'parquet'"),
        ([source, tmp_path / "more.svm"], {}, "begun without '.*more.svm'"),
        ([tmp_path / "more.svm"], {}, "begun without"),
        ([f"{source}::x=1"], {}, "begun without"),
    ):
        with pytest.raises(OptionError, match=found) as error:
            pack(inputs, out, **options)
        assert "--overwrite" in error.value.remedy
    pack(source, out, memory="100MB")  # changes nothing of the rows
    source.write_text("1 2:3\n-1 2:3\n")
    with pytest.raises(DataError, match="was changed since"):
        pack(source, out)
    pack(source, out, overwrite=True, format="parquet")
    assert list(contents_of(out)) == ["part-00000.parquet"]
    assert len(table_of(out)) == 2


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(OptionError, match=r"holds 'thesis\.tex'"):
            pack(tmp_path / "rows.svm", tmp_path / "out", overwrite=overwrite)
    with pytest.raises(OptionError, match="is a file"):
        pack(tmp_path / "rows.svm", tmp_path / "rows.svm")


def test_a_damaged_journal_is_said_to_be_one(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    pack(tmp_path / "rows.svm", tmp_path / "out")
    (tmp_path / "out" / NAME).write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        pack(tmp_path / "rows.svm", tmp_path / "out")
    pack(tmp_path / "rows.svm", tmp_path / "out", overwrite=True)


def test_two_packs_do_not_write_into_one_folder(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")

    def again(status) -> None:
        with pytest.raises(OptionError, match="another process packs into"):
            pack(tmp_path / "rows.svm", tmp_path / "out")

    pack(tmp_path / "rows.svm", tmp_path / "out", on_progress=again)


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path, small_chunks):
    small_chunks(100)
    source = tmp_path / "rows.svm"
    source.write_text("1 2:3\n" * 100)

    def touch(status) -> None:
        os.utime(source, (1, 1))

    with pytest.raises(DataError, match="was changed while it was read"):
        pack(source, tmp_path / "out", on_progress=touch)


def test_runs_do_not_outlast_the_shuffle(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n" * 100)
    pack(tmp_path / "rows.svm", tmp_path / "out", shuffle=True)
    assert not (tmp_path / "out" / RUNS).exists()


def test_a_command_that_came_to_nothing_can_be_corrected(tmp_path):
    (tmp_path / "rows.txt").write_text("1 2:x\n")
    with pytest.raises(DataError):
        pack(tmp_path / "rows.txt", tmp_path / "out", kind="svmlight")
    with pytest.raises(DataError, match="does not exist"):
        pack(tmp_path / "rows.txt", tmp_path / "out", kind="lines", labels=tmp_path / "y")
    assert pack(tmp_path / "rows.txt", tmp_path / "out", kind="lines").rows == 1


def test_a_shard_that_was_lost_is_missed(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n" * 10)
    pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    shard = tmp_path / "out" / "part-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="bytes and not"):
        pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    shard.unlink()
    with pytest.raises(DataError, match=r"part-00001\.arrow' is gone"):
        pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    assert pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4, overwrite=True).rows == 10
