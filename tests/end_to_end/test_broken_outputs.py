"""Outputs that are closed, full or gone: training continues without its messages, and a result that is lost is an error."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import streampgs
from streampgs.packing.synth import write_dataset

STREAMPGS = shlex.join([sys.executable, "-m", "streampgs"])
SMALL = "--epochs 2 --sigma 1e-3 --memory 60MB"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs") / "data"
    write_dataset(folder, rows=2_000, kind="dense", shards=2, format="arrow", features=5)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path) -> tuple[Path, str]:
    """A run, and its digest."""
    run = data.parent / "trained"
    report = streampgs.train(data, run=run, epochs=2, sigma=1e-3, memory="60MB")
    return run, str(report.dual_sha256)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2> >(true)"])
def test_training_goes_on_without_standard_error(
    data: Path, trained: tuple[Path, str], tmp_path: Path, stderr: str
) -> None:
    done = shell(f"{STREAMPGS} train {data} --run {tmp_path / 'run'} {SMALL} --json {stderr}")
    assert done.returncode == 0
    assert json.loads(done.stdout)["dual_sha256"] == trained[1]


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize("command", ["inspect {run} --json", "train --help"])
def test_a_result_that_cannot_be_written_is_an_error(trained: tuple[Path, str], command: str, stdout: str) -> None:
    done = shell(f"{STREAMPGS} {command.format(run=trained[0])} {stdout}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the result cannot be written to standard output: ")
    assert done.stderr.count("\n") == 2


# A terminal that is closed.


def in_terminal(words: list[str], prepare: Callable[[], None] = lambda: None) -> tuple[subprocess.Popen[bytes], int]:
    """A process that has a terminal of its own, and the other end of the terminal."""
    end, terminal = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # becomes the controlling terminal
        prepare()

    words = [sys.executable, "-m", "streampgs", *words]
    process = subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=own_terminal)
    os.close(terminal)
    return process, end


def read_until(end: int, text: bytes) -> None:
    seen, deadline = b"", time.monotonic() + 100
    while text not in seen:
        assert time.monotonic() < deadline
        seen += os.read(end, 4096)


def test_a_terminal_that_is_closed_pauses_training(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process, end = in_terminal(["train", str(data), "--run", str(run), "--epochs", "1000000", "--sigma", "1e-3"])
    read_until(end, b"rows/s")
    os.close(end)
    assert process.wait(60) == 129
    stopped = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    assert (stopped["event"], stopped["by"]) == ("stopped", "SIGHUP")
    assert streampgs.Model.load(run).rows == stopped["rows"]


# In Python.


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("name", ["history.jsonl", "metrics.jsonl"])
def test_lines_for_people_that_cannot_be_written_do_not_end_training(
    data: Path, trained: tuple[Path, str], tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to("/dev/full")
    (run / "lock").touch()
    report = streampgs.train(data, run=run, epochs=2, sigma=1e-3, memory="60MB")
    assert report.dual_sha256 == trained[1]
    assert [note for note in report.notes if "cannot be written" in note] == [
        f"'{run / name}' cannot be written: it is a link to another place; training continues, but this file is not complete"
    ]
