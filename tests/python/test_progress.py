"""Progress and reports of Python: in terminals, in notebooks, in scripts, and not at all."""

from __future__ import annotations

import sys
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import streampgs
from streampgs.python.progress import (
    LineObserver,
    NotebookObserver,
    PythonObserver,
    SilentObserver,
    observer_for,
)
from streampgs.run.report import Report, Status

X = np.random.default_rng(0).standard_normal((3000, 5))
Y = (X[:, 0] + X[:, 1] > 0.0).astype(int)
STATUS = Status(
    t=10, rows=10, epoch=0, epoch_fraction=0.25, rows_per_second=1e6, loss=0.5, accuracy=0.75, gap=None, lanes=3,
   update=None, fraction=0.25, seconds=1.0, seconds_left=3.0, rss_bytes=1,
)  # fmt: skip


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A stand-in for IPython in the kernel of a notebook: the objects that are under the cell, in order."""
    shown: list[Any] = []

    class Handle:
        def update(self, thing: object) -> None:
            shown.append(copy(thing))

    def display(thing: object, display_id: bool) -> Handle:
        assert display_id
        assert not shown, "one display for a call"
        shown.append(copy(thing))
        return Handle()

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return shown


def trained(run: Path, **options: Any) -> Report:
    return streampgs.train(X, Y, run=run, epochs=2, **options)


def test_a_notebook_shows_a_bar_and_keeps_the_notes(notebook: list[Any], tmp_path: Path) -> None:
    report = trained(tmp_path / "run")
    assert report.notes  # the choice of sigma
    bars = [each for each in notebook if "<progress" in each._repr_html_()]
    assert bars
    assert "<progress" not in notebook[-1]._repr_html_()
    assert all(note in repr(notebook[-1]) for note in report.notes)


def test_progress_is_a_line_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("streampgs.python.progress._PLAIN_SECONDS", 0.0)
    observer = observer_for(True)
    assert isinstance(observer, LineObserver)
    observer.status(STATUS)
    observer.close()
    assert "epoch 0.25" in capfd.readouterr().err


def test_auto_chooses_by_the_place(notebook: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(observer_for("auto")) is NotebookObserver
    assert type(observer_for(False)) is SilentObserver
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert type(observer_for("auto")) is PythonObserver  # IPython in a terminal that is not one here
    monkeypatch.delitem(sys.modules, "IPython")
    assert type(observer_for("auto")) is PythonObserver
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert type(observer_for("auto")) is LineObserver


def test_a_report_is_a_few_lines_and_a_table(tmp_path: Path) -> None:
    report = trained(tmp_path / "run", progress=False)
    lines = repr(report).splitlines()
    assert lines[0] == f"Report of run '{tmp_path / 'run'}'"
    assert len(lines) <= 10
    assert any(line.split()[:2] == ["rows", "6,000"] for line in lines)
    assert f"{report.progressive_accuracy:.5f}" in repr(report)
    assert "trained, ended by epochs" in repr(report)
    table = replace(report, run="<b>", notes=["a < b"])._repr_html_()
    assert table.count("<tr>") == len(lines) - 1
    assert "<b>" not in table
    assert "a &lt; b" in table


def test_notes_use_words_of_python(tmp_path: Path) -> None:
    trained(tmp_path / "run", progress=False)
    again = streampgs.resume(tmp_path / "run", progress=False)
    assert again.outcome == "nothing new"
    assert any("epochs='+1'" in note and "--" not in note for note in again.notes)
