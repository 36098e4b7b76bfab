"""The command `streampgs pack`: output, exit codes, and training on its shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import streampgs
from streampgs.packing.inputs import find_inputs
from tests.packing.conftest import table_of

ROOT = Path(__file__).parents[2]


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streampgs", "pack", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_output_of_a_pack(tmp_path):
    (tmp_path / "a.csv").write_text("0;x\n1;one\nNIL;two\n3;007\n4\n")
    options = ["--from", "csv", "--delimiter", ";", "--names", "n, s", "--null", "NIL", "--types", "s=string"]
    done = run("a.csv::label=1", "out", *options, "--on-bad-row", "skip", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 3
    assert report["columns"] == {"n": "int64", "s": "string", "label": "int64"}
    assert "skipped: 1 rows: another number of columns" in done.stderr
    assert "3 rows in 1 shard," in done.stderr
    assert "peak memory" in done.stderr
    assert table_of(tmp_path / "out").to_pydict() == {"n": [1, None, 3], "s": ["one", "two", "007"], "label": [1] * 3}
    again = run("a.csv::label=1", "out", *options, "--on-bad-row", "skip", folder=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "add --overwrite" in again.stderr
    quiet = run("a.csv::label=1", "out", *options, "--on-bad-row", "skip", "--quiet", "--overwrite", folder=tmp_path)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "found"),
    [
        (["missing.csv", "out"], 1, "there are no files at 'missing.csv'"),
        (["'*.csv'", "out"], 1, "there are no files at"),
        (["odd", "out"], 1, "give it with --from"),
        (["odd", "out", "--from", "avro"], 2, "choose one of csv, tsv"),
        (["bad.svm", "out"], 1, "bad.svm', line 2: a value is not a number: '1 3:x'"),
        (["odd", "out", "--types", "x"], 2, "age=int64"),
        (["odd", "out", "--types", "x=number"], 2, "choose one of int64"),
        (["odd", "out", "--memory", "1MB"], 2, "--memory 1MB is not"),
        (["odd::=1", "out"], 1, "there are no files at 'odd::=1'"),
        (["bad.svm", "bad.svm"], 1, "apart from those in the output folder"),
    ],
)
def test_errors_have_a_message_and_an_exit_code(tmp_path, arguments, code, found):
    (tmp_path / "odd").write_text("what is this\n")
    (tmp_path / "bad.svm").write_text("1 2:3\n1 3:x\n")
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert found in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_pack_leaves_no_shards_and_the_same_command_begins_again(tmp_path, number):
    (tmp_path / "a.svm").write_text("1 5:0.5\n" * 400_000)
    command = [sys.executable, "-m", "streampgs", "pack", "a.svm", "out", "--rows-per-shard", "2000"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not (tmp_path / "out" / ".writing" / "part-00001.arrow").exists():
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 143)
    assert os.listdir(tmp_path / "out") == ([".writing"] if number == signal.SIGKILL else [])
    done = run("a.svm", "out", "--rows-per-shard", "2000", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["rows"] == 400_000


def test_a_pack_that_was_killed_while_shards_got_their_names_begins_again(tmp_path):
    (tmp_path / "a.svm").write_text("1 5:0.5\n" * 10)
    streampgs.pack(tmp_path / "a.svm", tmp_path / "out", rows_per_shard=3)
    (tmp_path / "out" / ".publishing").mkdir()
    (tmp_path / "out" / "part-00003.arrow").rename(tmp_path / "out" / ".publishing" / "part-00003.arrow")
    assert streampgs.pack(tmp_path / "a.svm", tmp_path / "out").shards == 1
    assert os.listdir(tmp_path / "out") == ["part-00000.arrow"]


def test_only_shards_are_replaced(tmp_path):
    (tmp_path / "a.svm").write_text("1 5:0.5\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    for overwrite in (False, True):
        with pytest.raises(streampgs.StreampgsError, match=r"holds 'notes\.txt'"):
            streampgs.pack(tmp_path / "a.svm", tmp_path / "out", overwrite=overwrite)


def test_a_pack_that_fails_leaves_the_shards_that_it_was_to_replace(tmp_path):
    def shards():
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    (tmp_path / "a.svm").write_text("1 5:0.5\n" * 5)
    streampgs.pack(tmp_path / "a.svm", tmp_path / "out", rows_per_shard=2)
    before = shards()
    (tmp_path / "a.svm").write_text("0 5:0.5\n" * 5 + "0 5:x\n")
    with pytest.raises(streampgs.StreampgsError, match="not a number"):
        streampgs.pack(tmp_path / "a.svm", tmp_path / "out", rows_per_shard=2, overwrite=True)
    assert len(before) == 3
    assert shards() == before


def test_shards_of_a_pack_that_was_killed_among_their_names_are_not_trained_on(tmp_path, monkeypatch):
    (tmp_path / "a.svm").write_text("1 5:0.5\n0 5:0.25\n" * 5)
    real, out = os.rename, tmp_path / "out"

    class Killed(BaseException):
        pass

    def rename(source, target):
        if Path(target).name.startswith("part-00002"):
            raise Killed
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(Killed):
            streampgs.pack(tmp_path / "a.svm", out, rows_per_shard=2)
    assert len(list(out.glob("part-*"))) == 2
    with pytest.raises(streampgs.StreampgsError, match="some shards are missing"):
        streampgs.train(out, run=tmp_path / "run", sigma=1e-3)
    streampgs.pack(tmp_path / "a.svm", out, rows_per_shard=2)
    assert streampgs.train(out, run=tmp_path / "run", sigma=1e-3, epochs=1).rows == 10


def test_packing_and_training_from_python(tmp_path):
    random = np.random.default_rng(0)
    lines = [f"{1 if x > 0 else -1} 1:{x!r} 2:1" for x in random.normal(size=2000).tolist()]
    (tmp_path / "rows.svm").write_text("\n".join(lines))
    report = streampgs.pack(tmp_path / "rows.svm", tmp_path / "shards", shuffle=True, rows_per_shard=600)
    assert report.shards == 4
    trained = streampgs.train(tmp_path / "shards", run=tmp_path / "run", epochs=2, sigma=1e-3)
    assert trained.progressive_accuracy > 0.9


def test_inputs_keep_their_order_and_their_kinds_are_detected(tmp_path):
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "_old").mkdir()
    (folder / "out").mkdir()
    names = ["b.csv", "a.csv.gz", "sub/c.SVM", "notes.md", ".hidden.csv", "_old/x.csv", "out/part-00000.arrow"]
    for name in names:
        (folder / name).write_text("1 2:3\n")
    inputs, passed = find_inputs([f"{folder}::y=true,z=a b"], folder / "out", None)
    found = [(str(input.path.relative_to(folder)), input.kind) for input in inputs]
    assert found == [("a.csv.gz", "csv"), ("b.csv", "csv"), ("sub/c.SVM", "svmlight")]
    assert inputs[0].sets == (("y", True), ("z", "a b"))
    assert [file.name for file in passed] == ["notes.md"]
