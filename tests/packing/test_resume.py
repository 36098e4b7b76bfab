"""The same command resumes an interrupted pack, and the result has the same bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streampgs.base.errors import DataError, OptionError
from streampgs.packing import packer
from streampgs.packing.journal import NAME, RUNS
from streampgs.packing.packer import pack
from streampgs.run.report import StopRequest
from tests.packing.conftest import contents_of, table_of

ROWS = 400


def write_rows(folder: Path) -> None:
    """Write rows, one of them bad."""
    numbers = np.random.default_rng(1).normal(size=ROWS).tolist()
    lines = [f"{x:.3f} {i}:{x!r} {i + 3}:1" for i, x in enumerate(numbers)]
    (folder / "rows.svm").write_text("\n".join([*lines[:150], "x", *lines[150:]]) + "\n")


@pytest.fixture
def small_pieces(small_chunks, monkeypatch) -> None:
    small_chunks(700)
    monkeypatch.setattr(packer, "share_of", lambda memory: 3000)


def stopped_after(count: int) -> tuple[StopRequest, dict]:
    """A stop at the report of progress with number `count`."""
    stop = StopRequest()
    seen = 0

    def look(status) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            stop.ask("test")

    return stop, {"on_progress": look, "stop": stop}


KILLED = """
import os, signal, sys
from streampgs.packing import packer, tokens
tokens._CHUNK_BYTES = 700
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
def test_a_killed_pack_resumes(tmp_path, small_pieces, shuffle, moment):
    write_rows(tmp_path)
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


def test_a_pack_killed_between_any_two_writes_resumes(tmp_path, small_pieces, monkeypatch):
    """The process is killed right after a rename: a shard or a journal exists, but no later file."""
    write_rows(tmp_path)
    options = {"rows_per_shard": 150, "block_bytes": 4096, "shuffle": True, "on_bad_row": "skip"}
    pack(tmp_path / "rows.svm", tmp_path / "whole", **options)
    real = {name: getattr(os, name) for name in ("replace", "link")}

    class Killed(BaseException):
        pass

    for moment in range(1, 60):
        out = tmp_path / f"out{moment}"
        seen = 0

        def counted(name, moment=moment):
            def call(*words, **options):
                nonlocal seen
                real[name](*words, **options)
                seen += 1
                if seen == moment:
                    raise Killed

            return call

        for name in real:
            monkeypatch.setattr(os, name, counted(name))
        try:
            pack(tmp_path / "rows.svm", out, **options)
            ended = True
        except Killed:
            ended = False
        for name, function in real.items():
            monkeypatch.setattr(os, name, function)
        pack(tmp_path / "rows.svm", out, **options)
        assert contents_of(out) == contents_of(tmp_path / "whole"), moment
        assert not (out / RUNS).exists()
        assert not list(out.glob(".*"))
        if ended:
            return
    raise AssertionError("the work has more renames than were tried")


def test_a_pack_stopped_after_types_widened_resumes(tmp_path, small_pieces):
    (tmp_path / "rows.csv").write_text("a\n" + "1\n" * 600 + "x\n" + "1\n" * 600)
    options = {"rows_per_shard": 100}
    pack(tmp_path / "rows.csv", tmp_path / "whole", **options)
    for moment in (1, 3, 5, 7):
        out = tmp_path / f"out{moment}"
        _, watched = stopped_after(moment)
        assert pack(tmp_path / "rows.csv", out, **options, **watched).stopped_by == "test"
        pack(tmp_path / "rows.csv", out, **options)
        assert contents_of(out) == contents_of(tmp_path / "whole")


def test_a_finished_pack_is_not_repeated(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    assert not pack(tmp_path / "rows.svm", tmp_path / "out").nothing_to_do
    before = (tmp_path / "out" / "part-00000.arrow").stat()
    report = pack(tmp_path / "rows.svm", tmp_path / "out")
    assert report.nothing_to_do
    assert report.rows == 1
    assert (tmp_path / "out" / "part-00000.arrow").stat() == before


def test_other_options_or_inputs_are_refused_without_overwrite(tmp_path):
    source, out = tmp_path / "rows.svm", tmp_path / "out"
    source.write_text("1 2:3\n")
    (tmp_path / "more.svm").write_text("1 2:3\n")
    pack(source, out)
    for inputs, options, found in (
        ([source], {"format": "parquet"}, "begun with format 'arrow', not 'parquet'"),
        ([source, tmp_path / "more.svm"], {}, "begun without '.*more.svm'"),
        ([tmp_path / "more.svm"], {}, "begun without"),
        ([f"{source}::x=1"], {}, "begun without"),
    ):
        with pytest.raises(OptionError, match=found) as error:
            pack(inputs, out, **options)
        assert "--overwrite" in error.value.remedy
    pack(source, out, memory="100MB")  # an option that does not affect the rows
    source.write_text("1 2:3\n-1 2:3\n")
    with pytest.raises(DataError, match="has changed since"):
        pack(source, out)
    pack(source, out, overwrite=True, format="parquet")
    assert list(contents_of(out)) == ["part-00000.parquet"]
    assert len(table_of(out)) == 2


def test_a_folder_with_other_files_is_refused_and_kept(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(OptionError, match=r"holds 'thesis\.tex'"):
            pack(tmp_path / "rows.svm", tmp_path / "out", overwrite=overwrite)
    with pytest.raises(OptionError, match="is a file"):
        pack(tmp_path / "rows.svm", tmp_path / "rows.svm")


def test_files_that_the_pack_has_not_written_are_kept(tmp_path):
    """Files of other programs may have the names of shards."""
    source, out = tmp_path / "rows.svm", tmp_path / "out"
    source.write_text("1 2:3\n" * 10)
    pack(source, out, rows_per_shard=4)
    foreign = {
        "part-00003.arrow": "the next shard of another pack",
        "part-00007.arrow": "a later one",
        "part-00000.parquet": "another format",
        "part-00000-6d3f.snappy.parquet": "of Spark",
        "part-of-a-thesis.arrow": "years",
        ".part-00000.arrow": "hidden",
        "notes.txt": "notes",
    }
    for name, text in foreign.items():
        (out / name).write_text(text)
    notes = []
    assert pack(source, out, rows_per_shard=4, on_note=notes.append).nothing_to_do
    assert "part-00000-6d3f.snappy.parquet' is not of this pack" in notes[0]
    for _ in range(2):
        with pytest.raises(OptionError, match=r"part-00003\.arrow' exists already, and is not of this pack"):
            pack(source, out, rows_per_shard=2, overwrite=True)
    report = pack(source, out, rows_per_shard=5, overwrite=True)
    assert (report.rows, report.shards) == (10, 2)
    assert not (out / "part-00002.arrow").exists()
    assert {name: (out / name).read_text() for name in foreign} == foreign


def test_a_shard_is_never_written_over_another_file(tmp_path, small_chunks):
    small_chunks(6)
    source, out = tmp_path / "rows.svm", tmp_path / "out"
    source.write_text("1 2:3\n" * 10)
    _, watched = stopped_after(4)
    assert pack(source, out, rows_per_shard=2, **watched).stopped_by == "test"
    taken = out / f"part-{len(contents_of(out)):05d}.arrow"
    taken.write_text("precious")
    with pytest.raises(OptionError, match=f"{taken.name}' exists already, and is not of this pack"):
        pack(source, out, rows_per_shard=2)
    assert taken.read_text() == "precious"
    taken.rename(tmp_path / "moved")
    assert pack(source, out, rows_per_shard=2).rows == 10
    assert not list(out.glob(".part*"))


def test_the_output_folder_is_not_an_input(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.svm").write_text("1 2:3\n" * 10)
    (tmp_path / "link").symlink_to(data)
    for inputs, out in ((data, data), (data, tmp_path / "link"), (data / "rows.svm", data)):
        with pytest.raises(OptionError, match=r"is the output folder, or in it"):
            pack(inputs, out)
    for out in (data / "out", tmp_path / "link" / "out"):  # found below an input folder, also by a link
        assert pack(data, out, overwrite=True).rows == 10
        assert pack(data, out).nothing_to_do
        assert [path.name for path in out.glob("[!_]*")] == ["part-00000.arrow"]


def test_folders_behind_links_are_packed_once(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rows.svm").write_text("1 2:3\n")
    (tmp_path / "data" / "rows.svm").write_text("1 2:3\n")
    (tmp_path / "data" / "more").symlink_to(tmp_path / "more")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    assert pack(tmp_path / "data", tmp_path / "out").rows == 2


def test_two_packs_start_at_the_same_time(tmp_path):
    """One of them ends, the other is refused or has nothing to do, and the shards hold one of the tables."""
    words = [sys.executable, "-m", "streampgs", "pack"]
    for name, rows in (("one", 20_000), ("two", 30_000)):
        (tmp_path / f"{name}.svm").write_text("1 2:3\n" * rows)
    both = [
        subprocess.Popen([*words, tmp_path / f"{name}.svm", tmp_path / "out"], stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    assert sorted(code for _, code in ended) == [0, 2]
    assert any("writes into" in text or "was begun without" in text for text, _ in ended)
    assert len(table_of(tmp_path / "out")) == (20_000 if ended[0][1] == 0 else 30_000)


def test_a_damaged_journal_is_reported(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")
    pack(tmp_path / "rows.svm", tmp_path / "out")
    (tmp_path / "out" / NAME).write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        pack(tmp_path / "rows.svm", tmp_path / "out")
    pack(tmp_path / "rows.svm", tmp_path / "out", overwrite=True)


def test_a_second_pack_into_the_same_folder_is_refused(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n")

    def again(status) -> None:
        with pytest.raises(OptionError, match="another process writes into"):
            pack(tmp_path / "rows.svm", tmp_path / "out")

    pack(tmp_path / "rows.svm", tmp_path / "out", on_progress=again)


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, small_chunks):
    small_chunks(100)
    source = tmp_path / "rows.svm"
    source.write_text("1 2:3\n" * 100)

    def touch(status) -> None:
        os.utime(source, (1, 1))

    with pytest.raises(DataError, match="was changed while it was read"):
        pack(source, tmp_path / "out", on_progress=touch)


def test_temporary_runs_are_removed_after_the_shuffle(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n" * 100)
    pack(tmp_path / "rows.svm", tmp_path / "out", shuffle=True)
    assert not (tmp_path / "out" / RUNS).exists()


def test_options_may_change_if_no_rows_were_written(tmp_path):
    (tmp_path / "rows.txt").write_text("1 2:x\n")
    with pytest.raises(DataError):
        pack(tmp_path / "rows.txt", tmp_path / "out", kind="svmlight")
    with pytest.raises(DataError, match="does not exist"):
        pack(tmp_path / "rows.txt", tmp_path / "out", kind="lines", labels=tmp_path / "y")
    assert pack(tmp_path / "rows.txt", tmp_path / "out", kind="lines").rows == 1


def test_a_missing_or_shortened_shard_is_refused(tmp_path):
    (tmp_path / "rows.svm").write_text("1 2:3\n" * 10)
    pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    shard = tmp_path / "out" / "part-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="bytes instead of"):
        pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    shard.unlink()
    with pytest.raises(DataError, match=r"part-00001\.arrow' is missing"):
        pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4)
    assert pack(tmp_path / "rows.svm", tmp_path / "out", rows_per_shard=4, overwrite=True).rows == 10
