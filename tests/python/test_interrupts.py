"""Ctrl-C in Python saves a checkpoint and raises KeyboardInterrupt; the signals are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampgs
from streampgs.run.report import Observer, StopRequest

X = np.random.default_rng(0).standard_normal((20_000, 6))
Y = (X[:, 0] > 0.0).astype(int)
OPTIONS: dict[str, Any] = {"loss": "logistic", "sigma": 1e-3, "checkpoint_seconds": "1h"}


class CtrlC(Observer):
    """Presses it just before the first row."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def choices(self, choices: dict[str, str]) -> None:
        while self.times > 0:
            self.times -= 1
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_and_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    whole = streampgs.train(X, Y, run=tmp_path / "whole", epochs=3, progress=False, **OPTIONS)
    with pytest.raises(KeyboardInterrupt, match=r"saved after [\d,]+ rows; continue with streampgs\.resume\('.*run'\)"):
        streampgs.train(X, Y, run=tmp_path / "run", epochs=3, observer=CtrlC(), **OPTIONS)
    assert 0 < streampgs.Model.load(tmp_path / "run").rows < whole.rows
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt, match="saved after"):
        streampgs.resume(tmp_path / "run", observer=CtrlC())
    assert streampgs.resume(tmp_path / "run", progress=False).dual_sha256 == whole.dual_sha256


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as interrupted:
        streampgs.train(X, Y, run=tmp_path / "run", epochs=1000, observer=CtrlC(times=2), **OPTIONS)
    assert str(interrupted.value) == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_the_program_stay(tmp_path: Path) -> None:
    pressed = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        report = streampgs.train(X, Y, run=tmp_path / "run", epochs=1, observer=CtrlC(), **OPTIONS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (pressed, report.stopped_by) == ([signal.SIGINT], "epochs")


def test_a_caller_may_stop_training_itself(tmp_path: Path) -> None:
    stop = StopRequest()

    class Stops(Observer):
        def choices(self, choices: dict[str, str]) -> None:
            stop.ask("impatience")

    report = streampgs.train(X, Y, run=tmp_path / "run", epochs=1000, observer=Stops(), stop=stop, **OPTIONS)
    assert (report.stopped_by, report.outcome) == ("impatience", "paused")


def test_training_in_a_thread_works(tmp_path: Path) -> None:
    reports = []
    arguments = {"run": tmp_path / "run", "epochs": 1, "progress": False, **OPTIONS}
    thread = threading.Thread(target=lambda: reports.append(streampgs.train(X, Y, **arguments)))
    thread.start()
    thread.join()
    assert reports[0].stopped_by == "epochs"


def test_ctrl_c_in_a_script(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import numpy, streampgs
        from streampgs.run.report import Observer
        class Tells(Observer):
            def status(self, status):
                print("training", flush=True)
        x = numpy.random.default_rng(0).standard_normal((20_000, 6))
        streampgs.train(x, x[:, 0] > 0, run="run", sigma=1e-3, epochs=10**6, observer=Tells(), checkpoint_seconds=1e6)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    last = errors.splitlines()[-1]
    assert last.startswith("KeyboardInterrupt: saved after ")
    assert last.endswith("continue with streampgs.resume('run')")
    assert streampgs.Model.load(tmp_path / "run").rows > 0
