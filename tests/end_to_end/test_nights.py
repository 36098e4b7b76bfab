"""Nights that go wrong, and what the user does about them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import streampgs
from streampgs.cli.main import cli
from streampgs.errors import OptionError, RunError
from tests.end_to_end.conftest import ROWS, Tables

SHARD_ROWS = ROWS // 6
SMALL = {"memory": "60MB", "window": "200kB"}


@pytest.fixture
def table(tables: Tables, tmp_path: Path) -> tuple[Path, list[Path]]:
    """A folder with four shards, and two shards that are not in it."""
    data, shards = tmp_path / "table", sorted(tables.path("sparse", "arrow").glob("*.arrow"))
    data.mkdir()
    for shard in shards[:4]:
        shutil.copy(shard, data)
    return data, shards[4:]


def printed(*words: object) -> str:
    """All that a command prints."""
    done = CliRunner().invoke(cli, [*map(str, words)], standalone_mode=False, catch_exceptions=False)
    return done.output


# Limits that count from where the run is.


def test_more_epochs_count_from_the_epochs_that_are_done(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, rows = table[0], 4 * SHARD_ROWS
    whole = streampgs.train(data, run=tmp_path / "whole", epochs=4, sigma=1e-5, **SMALL)
    run = tmp_path / "run"
    streampgs.train(data, run=run, epochs=1, sigma=1e-5, **SMALL)
    assert streampgs.resume(run, epochs="+1").rows == 2 * rows
    streampgs.resume(run, rows="+100")  # an epoch that has begun is completed first
    assert streampgs.resume(run, epochs="+1").rows == 4 * rows
    assert streampgs.resume(run).dual_sha256 == whole.dual_sha256
    assert streampgs.history(run)[-1]["limits"] == {"epochs": 4}


def test_more_rows_and_seconds_count_from_the_newest_checkpoint(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, rows=300, sigma=1e-5, **SMALL)
    assert streampgs.resume(run, rows="+70").rows == 370
    report = streampgs.resume(run, seconds="+0.05s", epochs=10_000)
    assert report.stopped_by == "seconds"
    again = streampgs.resume(run, seconds="+0.05s")
    assert again.rows_this_call > 0


@pytest.mark.parametrize("limit", ["+0", "+-1", "++1", "+", "+x"])
def test_a_limit_that_adds_nothing_is_refused(limit: str, table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, rows=300, sigma=1e-5, **SMALL)
    for name in ("epochs", "rows", "seconds"):
        with pytest.raises(OptionError, match=name):
            streampgs.resume(run, **{name: limit})


# A night that is undone.


def test_a_night_that_is_undone_leaves_no_trace_in_the_model(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, (bad, good) = table
    run, other = tmp_path / "run", tmp_path / "other"
    for one in run, other:
        streampgs.train(data, run=one, epochs=1, sigma=1e-5, **SMALL)
    shutil.copy(bad, data)
    wrong = streampgs.resume(run)
    assert wrong.found.new_rows == SHARD_ROWS
    (data / bad.name).unlink()
    shutil.copy(good, data)
    again = streampgs.resume(run, back_to="before-last-update")
    assert again.dual_sha256 == streampgs.resume(other).dual_sha256
    assert again.dual_sha256 != wrong.dual_sha256
    assert again.notes[0].startswith(f"returned to the checkpoint before the last {wrong.rows - 4 * SHARD_ROWS:,} rows")
    events = streampgs.history(run)
    assert [event["event"] for event in events if event.get("undone")] == ["appended", "stopped"]
    assert [event["event"] for event in events][-4:] == ["undone", "resumed", "appended", "stopped"]


def test_a_shard_that_joined_in_an_undone_night_may_be_another_one_later(
    table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, (bad, good) = table
    run = tmp_path / "run"
    streampgs.train(data, run=run, epochs=1, sigma=1e-5, **SMALL)
    shutil.copy(bad, data / "night.arrow")
    streampgs.resume(run)
    shutil.copy(good, data / "night.arrow")
    again = streampgs.resume(run, back_to=4 * SHARD_ROWS)
    assert again.found.new_shards == [str(data / "night.arrow")]
    assert again.found.lost_shards == []


@pytest.mark.parametrize("wanted", ["300", "checkpoint-000000000000300.arrows"])
def test_a_run_returns_to_any_checkpoint_that_it_has(
    wanted: str, table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, run = table[0], tmp_path / "run"
    whole = streampgs.train(data, run=tmp_path / "whole", rows=1_000, sigma=1e-5, **SMALL)
    for rows in 300, 400, 500:
        report = (streampgs.resume if run.exists() else streampgs.train)(
            *(() if run.exists() else (data,)), run=run, rows=rows, **({} if run.exists() else {"sigma": 1e-5, **SMALL})
        )
    assert report.rows == 500
    assert [one["rows"] for one in streampgs.inspect(run)["checkpoints"]] == [300, 400, 500]
    report = streampgs.resume(run, back_to=wanted, rows=1_000)
    assert (report.rows_this_call, report.dual_sha256) == (700, whole.dual_sha256)
    again = streampgs.resume(run, back_to=1_000)
    assert (again.outcome, again.rows) == ("nothing new", 1_000)
    with pytest.raises(OptionError, match=r"back_to=400.* no such checkpoint\n  → .*checkpoints: 300, 1000"):
        streampgs.resume(run, back_to=400)


KILLED_AT_A_REMOVAL = """
import os, signal, sys
from pathlib import Path
from streampgs.run.folder import RunFolder
from streampgs.run.undo import undo

left, unlink = int(sys.argv[2]), os.unlink

def removed(*arguments, **keywords):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    unlink(*arguments, **keywords)

os.unlink = removed
undo(RunFolder(Path(sys.argv[1])), "300")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_while_a_run_returns_to_a_checkpoint_leaves_the_old_run_or_the_new_one(
    table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, origin = table[0], tmp_path / "origin"
    whole = streampgs.train(data, run=tmp_path / "whole", rows=1_000, sigma=1e-5, **SMALL)
    streampgs.train(data, run=origin, rows=300, sigma=1e-5, keep=4, **SMALL)
    for rows in 400, 500, 600:
        streampgs.resume(origin, rows=rows)
    newest = []
    for removed in 1, 2, 3:
        run = tmp_path / f"run-{removed}"
        shutil.copytree(origin, run)
        words = [sys.executable, "-c", KILLED_AT_A_REMOVAL, str(run), str(removed)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        newest.append(streampgs.inspect(run)["rows"])
        report = streampgs.resume(run, back_to=300, rows=1_000)
        assert (report.rows_this_call, report.dual_sha256) == (700, whole.dual_sha256)
        assert [event["rows"] for event in streampgs.history(run) if event.get("undone") or event.get("lost")][
            -1
        ] == 600
    assert newest == [600, 600, 300]


def test_a_checkpoint_that_cannot_be_removed_leaves_the_run_as_it_was(
    table: tuple[Path, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run = table[0], tmp_path / "run"
    streampgs.train(data, run=run, rows=300, sigma=1e-5, **SMALL)
    streampgs.resume(run, rows=400)

    def refuse(path: object, **_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted", str(path))

    with monkeypatch.context() as only_here:
        only_here.setattr(os, "unlink", refuse)
        with pytest.raises(RunError, match=r"checkpoint-0*400.arrows' cannot be removed: not permitted"):
            streampgs.resume(run, back_to=300)
    assert streampgs.inspect(run)["rows"] == 400


def test_a_damaged_checkpoint_is_no_place_to_return_to(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, run = table[0], tmp_path / "run"
    streampgs.train(data, run=run, rows=300, sigma=1e-5, **SMALL)
    streampgs.resume(run, rows=400)
    (run / "checkpoint-000000000000300.arrows").write_bytes(b"damage")
    with pytest.raises(RunError, match=r"checkpoint-0*300\.arrows' is damaged: .*\n  → choose another one"):
        streampgs.resume(run, back_to=300)
    assert streampgs.inspect(run)["rows"] == 400


def test_the_checkpoints_before_the_last_updates_are_kept(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    data, run = table[0], tmp_path / "run"
    shards = sorted(data.glob("*.arrow"))
    for shard in shards[1:]:
        shard.rename(tmp_path / shard.name)
    streampgs.train(data, run=run, epochs=1, sigma=1e-5, keep=2, **SMALL)
    before = []
    for shard in shards[1:]:
        (tmp_path / shard.name).rename(shard)
        before.append(streampgs.inspect(run)["rows"])
        report = streampgs.resume(run, checkpoint_seconds=0)
    kept = streampgs.inspect(run)["checkpoints"]
    assert [one["rows"] for one in kept if one["before_update"]] == before[-2:]
    assert len(kept) == 4
    report = streampgs.resume(run, back_to=before[-2])
    assert len(report.found.new_shards) == 2
    assert report.dual_sha256 is not None


def test_history_lists_the_checkpoints_that_a_run_can_return_to(table: tuple[Path, list[Path]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, rows=300, sigma=1e-5, **SMALL)
    assert "--back-to" not in printed("history", run)
    streampgs.resume(run, rows=400)
    note = f"streampgs resume {run} --back-to ROWS returns to an earlier checkpoint: 300"
    assert note in printed("history", run)
    assert note in printed("inspect", run)
    streampgs.resume(run, back_to=300, rows="+5")
    shown = printed("history", run)
    assert "returned to this checkpoint: 100 rows undone" in shown
    assert shown.count("(undone)") == 1
