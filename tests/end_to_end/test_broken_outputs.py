"""Outputs that are closed, full or gone: training continues without its messages, and a result that is lost is an error."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import signal
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


def test_no_message_gets_into_a_file_if_all_standard_streams_are_closed(
    data: Path, trained: tuple[Path, str], tmp_path: Path
) -> None:
    """Otherwise the first files that are opened get the numbers 0, 1 and 2."""
    run = tmp_path / "run"
    assert shell(f"{STREAMPGS} train {data} --run {run} {SMALL} <&- >&- 2>&-").returncode == 0
    model = streampgs.Model.load(run)
    assert (model.rows, model.damaged) == (4_000, ())
    assert (run / "lock").read_text().isdigit()
    events = [json.loads(line)["event"] for line in (run / "history.jsonl").read_text().splitlines()]
    assert events == ["started", "stopped"]


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
@pytest.mark.parametrize("command", ["inspect {run} --json", "train --help"])
def test_a_result_that_cannot_be_written_is_an_error(trained: tuple[Path, str], command: str, stdout: str) -> None:
    done = shell(f"{STREAMPGS} {command.format(run=trained[0])} {stdout}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the result cannot be written to standard output: ")
    assert done.stderr.count("\n") == 2


def test_the_model_is_saved_if_the_result_cannot_be_written(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = shell(f"{STREAMPGS} train {data} --run {run} {SMALL} --json --quiet >/dev/full")
    assert done.returncode == 1
    assert "all else is done and saved" in done.stderr
    assert streampgs.Model.load(run).rows == 4_000


@pytest.mark.parametrize("command", ["history {run}", "train --help", "predict {run} {data} --out -"])
def test_a_reader_that_goes_ends_the_command_without_a_message(
    data: Path, trained: tuple[Path, str], command: str
) -> None:
    done = shell(f"{STREAMPGS} {command.format(run=trained[0], data=data)} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("141\n", "")


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


def ignore_hang_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_terminal_that_is_closed_pauses_training(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process, end = in_terminal(["train", str(data), "--run", str(run), "--epochs", "1000000", "--sigma", "1e-3"])
    read_until(end, b"rows/s")
    os.close(end)
    assert process.wait(60) == 129
    stopped = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    assert (stopped["event"], stopped["by"]) == ("stopped", "SIGHUP")
    assert streampgs.Model.load(run).rows == stopped["rows"]


def test_under_nohup_training_outlives_its_terminal(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", str(data), "--run", str(run), "--sigma", "1e-3", "--seconds", "1.5"]
    process, end = in_terminal(words, ignore_hang_up)
    read_until(end, b"rows/s")
    os.close(end)
    assert process.wait(60) == 0
    stopped = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    assert (stopped["event"], stopped["by"]) == ("stopped", "seconds")


# In Python.


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stderr", [Full(), closed(), None], ids=["full", "closed", "missing"])
@pytest.mark.parametrize("progress", [True, "auto"])
def test_python_trains_without_standard_error(
    data: Path,
    trained: tuple[Path, str],
    tmp_path: Path,
    monkeypatch,
    capsys,
    stderr: io.StringIO | None,
    progress: object,
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    report = streampgs.train(data, run=tmp_path / "run", epochs=2, sigma=1e-3, memory="60MB", progress=progress)
    assert report.dual_sha256 == trained[1]
    assert capsys.readouterr().out == ""


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
