"""After an exception in the middle of a step (Ctrl-C in a program, no more memory) the last complete state remains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streampgs
from streampgs.learn import learner
from streampgs.learn.lanes import Lanes
from streampgs.learn.pgs import Pgs
from streampgs.selection.race import Race
from tests.faults.torture.subjects import Subject

INSIDE_A_STEP = [(learner, "refuse_divergence"), (Pgs, "settle"), (Pgs, "end_stretch"), (Lanes, "grow")]


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which pytest would handle itself."""


def interrupt_at(patch: pytest.MonkeyPatch, owner: Any, name: str, passage: int) -> None:
    """Raise at the n-th call, after the function has done its work and before its caller gets the result."""
    real, passed = getattr(owner, name), [0]

    def interrupted(*words: object) -> object:
        result = real(*words)
        passed[0] += 1
        if passed[0] == passage:
            raise Interrupted
        return result

    patch.setattr(owner, name, interrupted)


def interrupted_run(subject: Subject, patch: pytest.MonkeyPatch, owner: Any, name: str, passage: int) -> str:
    """The digest of a run that is interrupted twice and resumed."""
    run = subject.new_run()
    for _ in range(2):
        with patch.context() as patched:
            interrupt_at(patched, owner, name, passage)
            with pytest.raises(Interrupted):
                subject.start_or_resume(run)  # without periodic checkpoints: the exception causes the save
    return str(subject.start_or_resume(run).dual_sha256)


@pytest.mark.parametrize(("owner", "name"), INSIDE_A_STEP, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("passage", [1, 3])
def test_a_half_done_step_is_not_saved(subject: Callable[[str], Subject], monkeypatch, owner, name, passage):
    sparse = subject("sparse-arrow")
    assert interrupted_run(sparse, monkeypatch, owner, name, passage) == sparse.expected


@pytest.mark.parametrize("passage", [1, 2])
def test_a_half_done_evaluation_is_not_saved(subject: Callable[[str], Subject], monkeypatch, passage):
    contest = subject("contest")
    assert interrupted_run(contest, monkeypatch, Race, "judge", passage) == contest.expected


def test_a_skipped_row_is_counted_once_if_its_window_is_started_again(tmp_path, monkeypatch):
    labels = [float("nan") if row % 10 == 3 else float(row % 2) for row in range(20_000)]
    table = pa.table({"label": labels, "indices": [[row % 7] for row in range(20_000)]})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    options = {"epochs": 1, "memory": "60MB", "window": "100kB", "sigma": 1e-3, "on_bad_row": "skip"}
    with monkeypatch.context() as patched:
        interrupt_at(patched, Lanes, "grow", 3)
        with pytest.raises(Interrupted):
            streampgs.train(tmp_path / "a.arrow", run=tmp_path / "run", **options)
    assert sum(streampgs.resume(tmp_path / "run").skipped_rows_of_run.values()) == 2_000
