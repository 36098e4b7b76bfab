"""Nights that go wrong, and what the user does about them."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import streampgs
from streampgs.base.errors import DataError, OptionError
from streampgs.cli.main import cli
from streampgs.options.commands import Limits
from streampgs.run.report import StopRequest
from streampgs.run.saved import saved_run
from tests.end_to_end import streaming
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.conftest import ROWS, Tables
from tests.end_to_end.observers import StopAfter

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
    """All that a command prints; lines that were wrapped are whole again."""
    done = CliRunner().invoke(cli, [*map(str, words)], standalone_mode=False, catch_exceptions=False)
    return re.sub(r"\n {30,}", " ", done.output)


# Limits that count from where the run is.


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
    undone = wrong.rows - 4 * SHARD_ROWS
    assert again.notes[0] == f"returned to the checkpoint after {4 * SHARD_ROWS:,} rows: {undone:,} rows undone"
    events = streampgs.history(run)
    names = [event["event"] for event in events]
    assert {event["event"] for event in events if event.get("undone")} >= {"appended", "stopped"}
    assert names[names.index("undone") :][:3] == ["undone", "resumed", "appended"]
    assert not any(event.get("undone") for event in events[names.index("undone") :])


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


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_returns_to_a_checkpoint_is_as_a_copy_that_was_made_then(
    seed: int, tables: Tables, tmp_path: Path
) -> None:
    """Random nights: shards come and go, limits change, and the run goes back again and again."""
    chance = random.Random(seed)
    first, *others = sorted(tables.path("sparse", "arrow").glob("*.arrow"))
    data, run = tmp_path / "table", tmp_path / "run"
    data.mkdir()
    shutil.copy(first, data)
    streampgs.train(data, run=run, rows=chance.choice([400, SHARD_ROWS, 1_700]), sigma=1e-5, keep=50, **SMALL)
    copies: dict[int, tuple[Path, int]] = {}
    undone = 0
    for night in range(9):
        state = streampgs.inspect(run)
        if state["rows"] not in copies:
            copies[state["rows"]] = shutil.copytree(run, tmp_path / f"copy-{night}"), state["catalog"]["shards"]
        if others and chance.random() < 0.6:
            shutil.copy(others.pop(0), data)
        options = chance.choice([{}, {"epochs": "+1"}, {"rows": "+130"}, {"rows": "+700"}])
        back = chance.choice([*copies])
        copy, shards = copies[back]
        if back == state["rows"]:
            streampgs.resume(run, **options)
            continue
        undone += 1
        later = sorted(data.glob("*.arrow"))[shards:]
        if later and chance.random() < 0.5:
            later[-1].unlink()
        then = shutil.copytree(copy, tmp_path / f"then-{night}")
        wanted, found = streampgs.resume(then, **options), streampgs.resume(run, back_to=back, **options)
        assert (found.outcome, found.rows_this_call) == (wanted.outcome, wanted.rows_this_call)
        assert state_of(run) == state_of(then)
        copies = {rows: kept for rows, kept in copies.items() if rows <= back}
    assert undone >= 2


def test_a_run_on_a_stream_returns_to_a_checkpoint(tables: Tables, tmp_path: Path) -> None:
    """The stream starts again after the rows that were taken then."""
    shards = sorted(tables.path("sparse", "arrow").glob("*.arrow"))
    rows = pa.concat_tables(pa.ipc.open_file(shard).read_all() for shard in shards)
    data, run = streaming.written(rows, [500]), tmp_path / "run"
    whole = streaming.train(data, tmp_path / "whole", sigma=1e-5)
    streaming.train(data, run, Limits(rows=1_000), sigma=1e-5)
    streaming.resume(data, run, Limits(rows=3_000), skip_taken=True)
    earlier = streampgs.inspect(run)["checkpoints"][0]["rows"]
    report = streaming.resume(data, run, skip_taken=True, back_to=str(earlier))
    assert (report.rows_this_call, report.dual_sha256) == (whole.rows - earlier, whole.dual_sha256)


# Evaluations in the history.


# A resume that is undone if the model is worse after it.


def state_of(run: Path) -> dict[str, object]:
    """All that a resume would continue from, without the seconds of training, and the model."""
    found, model = streampgs.inspect(run), streampgs.Model.load(run)
    state = {name: found[name] for name in ("rows", "t", "dual_sha256", "limits", "arrivals", "catalog", "options")}
    sections = saved_run(run).checkpoint.sections
    del sections["meter"]
    parts = {
        (name, array): values.tobytes() for name, bundle in sections.items() for array, values in bundle.arrays.items()
    }
    return {**state, "coef": model.coef_.tobytes(), "arrays": parts}


@pytest.fixture
def rated(table: tuple[Path, list[Path]], tables: Tables, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The folder of shards, a run on them, and test rows."""
    run = tmp_path / "run"
    streampgs.train(table[0], run=run, epochs=2, sigma=1e-5, **SMALL)
    return table[0], run, tables.test_path("sparse")


def inverted(shard: Path, path: Path) -> None:
    """The rows of a shard with the wrong labels."""
    with pa.ipc.open_file(shard) as file:
        rows = file.read_all()
    at = rows.schema.get_field_index("label")
    wrong = rows.set_column(at, "label", pc.negate(rows["label"]))
    with pa.ipc.new_file(path, wrong.schema) as writer:
        writer.write_table(wrong)


def test_a_resume_that_makes_the_model_worse_is_undone(
    rated: tuple[Path, Path, Path], table: tuple[Path, list[Path]]
) -> None:
    data, run, test = rated
    before, accuracy = state_of(run), streampgs.evaluate(run, test)["accuracy"]
    inverted(table[1][0], data / "night.arrow")
    wrong = streampgs.resume(run, validation=test, fail_if="accuracy < before - 0.02", epochs="+1")
    assert wrong.outcome == "rejected"
    found = wrong.validation
    assert found is not None
    assert (found["failed"], found["rows"]) == (["accuracy < before - 0.02"], 1_000)
    assert found["before"]["accuracy"] == accuracy
    assert found["after"]["accuracy"] < accuracy - 0.02
    assert state_of(run) == before
    assert wrong.rows == before["rows"]
    assert wrong.rows_this_call > 0
    assert streampgs.history(run)[-1]["failed"] == ["accuracy < before - 0.02"]
    assert "undone, because accuracy < before - 0.02" in printed("history", run)


def test_shards_of_a_rejected_night_wait_until_they_change_or_are_accepted(
    rated: tuple[Path, Path, Path], table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, run, test = rated
    fails, passes = ({"validation": test, "fail_if": condition} for condition in ("loss > 0", "loss < 0"))
    shutil.copytree(run, tmp_path / "other")
    bad, good = data / "night-1.arrow", data / "night-2.arrow"
    inverted(table[1][0], bad)
    wrong = streampgs.resume(run, **fails)
    assert (wrong.outcome, wrong.found.rejected_shards) == ("rejected", [str(bad)])
    assert f"left out from now on: '{bad}'" in wrong.notes[-1]
    shutil.copy(table[1][1], good)
    night = streampgs.resume(run, **passes)
    assert (night.outcome, night.found.new_shards, night.found.rejected_shards) == ("trained", [str(good)], [str(bad)])
    shutil.move(bad, tmp_path)
    assert night.dual_sha256 == streampgs.resume(tmp_path / "other").dual_sha256
    renamed = shutil.copyfile(tmp_path / bad.name, data / "renamed.arrow")  # with another time, too
    plain = streampgs.resume(run, back_to="before-last-update", accept_removed=True)
    assert (plain.dual_sha256, plain.found.rejected_shards) == (night.dual_sha256, [str(renamed)])
    assert any("left out, because a resume with them was rejected" in note for note in plain.notes)
    shutil.copytree(run, tmp_path / "mended")
    again = streampgs.resume(run, accept_rejected=True, **fails)
    assert (again.outcome, again.found.new_shards) == ("rejected", [str(renamed)])
    assert streampgs.resume(run).outcome == "nothing new"
    taken = streampgs.resume(run, accept_rejected=True)
    assert (taken.found.new_shards, taken.found.rejected_shards) == ([str(renamed)], [])
    assert streampgs.resume(run).found.rejected_shards == []
    shutil.copy(table[1][0], renamed)
    assert streampgs.resume(tmp_path / "mended", **passes).found.new_shards == [str(renamed)]


def test_a_resume_that_was_killed_is_compared_with_the_model_from_before_it(rated: tuple[Path, Path, Path]) -> None:
    """Many checkpoints are written in between: the one to return to is kept."""
    _, run, test = rated
    before = state_of(run)
    options = {"validation": test, "fail_if": "loss < 100 * before", "checkpoint_seconds": 0}
    stop = StopRequest()
    paused = streampgs.resume(run, epochs="+2", observer=StopAfter(stop, 6), stop=stop, **options)
    assert (paused.outcome, paused.validation) == ("paused", None)
    assert streampgs.inspect(run)["checkpoints"][0]["rows"] == before["rows"]
    assert streampgs.resume(run, **options).outcome == "rejected"
    assert state_of(run) == before


# Shards that are left out.


def test_a_wrong_shard_is_left_out_of_an_undone_night_and_later_ones(
    table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, (bad, good) = table
    run, other = tmp_path / "run", tmp_path / "other"
    for one in run, other:
        streampgs.train(data, run=one, epochs=1, sigma=1e-5, **SMALL)
    shutil.copy(bad, data)
    streampgs.resume(run)
    again = streampgs.resume(run, back_to="before-last-update", leave_out=data / bad.name)
    assert (again.outcome, again.found.new_shards) == ("nothing new", [])
    assert again.found.ignored_files == {str(data / bad.name): "it was left out"}
    shutil.copy(good, data)
    night = streampgs.resume(run)
    (data / bad.name).unlink()
    assert night.found.new_shards == [str(data / good.name)]
    assert night.dual_sha256 == streampgs.resume(other).dual_sha256


# A run that has moved.


def test_a_run_and_its_data_may_move(table: tuple[Path, list[Path]], tables: Tables, tmp_path: Path) -> None:
    data, (new, _) = table
    run, validation = tmp_path / "run", tmp_path / "validation"
    shutil.copytree(tables.test_path("sparse"), validation)
    options = {"sigma": 1e-5, "validation": validation, **SMALL}
    whole = streampgs.train(data, run=tmp_path / "whole", epochs=2, **options)
    streampgs.train(data, run=run, rows=3 * SHARD_ROWS, **options)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for one in data, run, validation:
        shutil.move(one, elsewhere / one.name)
    moved = elsewhere / "run"
    with pytest.raises(DataError, match=r"table' does not exist.*\n  → .* name the place .* with data='PLACE'"):
        streampgs.resume(moved, epochs=2)
    report = streampgs.resume(moved, epochs=2, data=elsewhere / "table", validation=elsewhere / "validation")
    assert report.dual_sha256 == whole.dual_sha256
    shutil.copy(new, elsewhere / "table")
    assert streampgs.resume(moved).found.new_rows == SHARD_ROWS


# A file that was not written to its end.


# A resume that only says what it would do.


def bytes_of(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in run.rglob("*")}


@pytest.mark.parametrize(
    ("situation", "options", "outcome", "code"),
    [
        ("new shard", {}, "would train an update", 0),
        ("new shard", {"rows": 4 * SHARD_ROWS}, "nothing new", 3),
        ("new shard in an epoch", {}, "would train", 0),
        ("half a shard", {}, "nothing new", 3),
        ("nothing", {}, "nothing new", 0),
        ("nothing", {"epochs": "+1", "keep": 1, "passes": 1}, "would train", 0),
        ("missing shard", {}, None, 1),
        ("missing shard", {"accept_removed": True}, "nothing new", 0),
        ("edited shard", {"accept_removed": True}, None, 1),
        ("edited shard", {"accept_changes": True}, "would train an update", 0),
        ("another type", {}, None, 1),
        ("nothing", {"leave_out": "no-such-shard"}, None, 2),
    ],
)
def test_a_dry_run_tells_what_a_resume_does_and_changes_no_byte(
    situation: str,
    options: dict[str, object],
    outcome: str | None,
    code: int,
    table: tuple[Path, list[Path]],
    tmp_path: Path,
) -> None:
    data, (new, other) = table
    run = tmp_path / "run"
    streampgs.train(data, run=run, epochs=1, sigma=1e-5, **SMALL)
    if situation == "new shard in an epoch":
        stop = StopRequest()
        streampgs.resume(run, epochs=2, checkpoint_seconds=0, observer=StopAfter(stop, 2), stop=stop)
    if situation.startswith("new shard"):
        shutil.copy(new, data)
    if situation == "half a shard":
        (data / new.name).write_bytes(new.read_bytes()[:-1000])
    if situation in ("missing shard", "edited shard"):
        (data / "part-00000.arrow").unlink()
    if situation == "edited shard":
        shutil.copy(other, data / "part-00000.arrow")
    if situation == "another type":
        with pa.ipc.new_file(
            data / "new.arrow", (strings := pa.table({"label": ["a"], "indices": ["b"]})).schema
        ) as file:
            file.write_table(strings)
    before = bytes_of(run)
    words = [
        word
        for name, value in options.items()
        for word in [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    ]
    shown = command("resume", run, "--dry-run", "--json", *words)
    assert shown.code == code, shown.err
    if outcome is None:
        with pytest.raises((DataError, OptionError)) as told:
            streampgs.resume(run, dry_run=True, **options)
        assert bytes_of(run) == before
        with pytest.raises((DataError, OptionError)) as refused:
            streampgs.resume(run, **options)
        assert str(told.value) == str(refused.value)
        return
    told_report = streampgs.resume(run, dry_run=True, **options)
    assert bytes_of(run) == before
    assert (told_report.outcome, told_report.rows_this_call) == (outcome, 0)
    assert shown.json["outcome"] == outcome
    report = streampgs.resume(run, **options)
    assert (report.outcome == "trained") == outcome.startswith("would")
    assert bool(report.rows_this_call) == outcome.startswith("would")
    assert told_report.found == report.found


# Files that are not needed any more.


# A limit in the way of new shards.


@pytest.mark.parametrize("limit", [{"rows": 4 * SHARD_ROWS}, {"seconds": 1e-9}])
def test_new_shards_wait_at_the_end_of_an_epoch_if_a_limit_is_reached(
    limit: dict[str, float], table: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    data, run = table[0], tmp_path / "run"
    before = streampgs.train(data, run=run, epochs=1, sigma=1e-5, **SMALL)
    shutil.copy(table[1][0], data)
    report = streampgs.resume(run, **limit)
    assert (report.outcome, report.rows, report.dual_sha256) == ("nothing new", before.rows, before.dual_sha256)
    assert (report.found.new_shards, report.found.new_rows) == ([], 0)
    assert report.found.waiting_shards == [str(data / table[1][0].name)]
    (name,) = limit
    assert report.notes == [
        f"1 new shard waits, because the limit of {name} is reached; to train on them: "
        f"streampgs.resume('{run}', epochs=1)"
    ]
    assert command("resume", run, "--quiet").code == 3
    assert streampgs.resume(run, epochs=1).found.new_rows == SHARD_ROWS
