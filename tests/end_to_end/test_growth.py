"""Shards that join a run: every row is trained on once per epoch, and old rows keep their numbers."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.cli.history_text import history_text
from streampgs.model.inspection import inspect_run
from streampgs.run.folder import RunFolder
from streampgs.run.history import read_events
from streampgs.run.report import Observer, StopRequest
from streampgs.run.saved import saved_run
from tests.end_to_end.conftest import ROWS, Tables
from tests.end_to_end.observers import Notes

pytestmark = pytest.mark.timeout(300)  # readers and producers that wait for each other can hang

SHARD_ROWS = ROWS // 6
SMALL = {"memory": "60MB", "window": "200kB"}


def test_shards_that_join_during_an_epoch_are_trained_on_once_in_that_epoch(tables: Tables, tmp_path: Path) -> None:
    source, data = tables.path("sparse", "parquet"), tmp_path / "table"
    shards = sorted(source.glob("*.parquet"))
    data.mkdir()
    for shard in shards[:4]:
        shutil.copy(shard, data)
    run = tmp_path / "run"
    report = streampgs.train(data, run=run, rows=SHARD_ROWS, **SMALL)
    shutil.copy(shards[4], data)
    report = streampgs.resume(run, rows=3 * SHARD_ROWS)
    shutil.copy(shards[5], data)
    report = streampgs.resume(run, epochs=1)
    assert report.rows == 6 * SHARD_ROWS
    report = streampgs.resume(run, epochs=2)
    assert report.rows == 12 * SHARD_ROWS
    assert inspect_run(run)["arrivals"][-1]["shards"] == 6
    joined = [event["rows"] for event in RunFolder(run).events() if event["event"] == "appended"]
    assert SHARD_ROWS <= joined[0] < 3 * SHARD_ROWS <= joined[1] < 5 * SHARD_ROWS


# Visits of each row. A row has its own feature and a label too large to reach, so each visit adds 1 to its dual variable.

PLAIN = {"loss": "absolute", "sigma": 1.0, "t0": 1.0, "intercept": 0.0, "ball": "none"}
COUNTING = {**PLAIN, "passes": 1, "replay": 0.0}
COUNTED_ROWS = 600


def write_counted(path: Path, first: int, rows: int = COUNTED_ROWS) -> None:
    table = pa.table(
        {
            "label": [1e9] * rows,
            "indices": [[number] for number in range(first, first + rows)],
            "values": [[1.0]] * rows,
        }
    )
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=100)
        return
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


def visits(run: Path) -> list[int]:
    """How often each row has been trained on."""
    return [int(visit) for visit in saved_run(run).race.lanes.groups[0].state["dual"][1:, 0]]


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_shards_that_join_after_the_last_epoch_are_visited_in_an_update(suffix: str, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    write_counted(data / f"a.{suffix}", 0)
    streampgs.train(data, run=run, epochs=3, **COUNTING, **SMALL)
    old = visits(run)
    write_counted(data / f"0.{suffix}", COUNTED_ROWS)
    report = streampgs.resume(run)
    assert visits(run) == [*old, *[1] * COUNTED_ROWS]
    assert (report.rows, report.rows_this_call, report.epochs) == (4 * COUNTED_ROWS, COUNTED_ROWS, 3.0)
    assert streampgs.resume(run).rows == report.rows, "a resume without new rows must not train"
    streampgs.resume(run, epochs=4)
    assert sum(visits(run)) == sum(old) + 3 * COUNTED_ROWS


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("no_cache", [False, True])
def test_old_rows_are_replayed_next_to_new_ones(suffix: str, no_cache: bool, tmp_path: Path) -> None:
    """A run of one epoch has cached nothing: blocks of old row groups are decoded when they are drawn."""
    data, run = tmp_path / "table", tmp_path / "run"
    write_counted(data / f"a.{suffix}", 0, 6 * COUNTED_ROWS)
    streampgs.train(data, run=run, epochs=1, no_cache=no_cache, memory="60MB", window="50kB", **PLAIN)
    write_counted(data / f"b.{suffix}", 6 * COUNTED_ROWS, COUNTED_ROWS)
    report = streampgs.resume(run)
    old, new = visits(run)[: 6 * COUNTED_ROWS], visits(run)[6 * COUNTED_ROWS :]
    assert new == [1] * COUNTED_ROWS, "of the long lineage"
    assert set(old) <= {1, 2}, "the passes draw different old rows while there are any"
    replayed = sum(old) - len(old)
    assert 2.9 * COUNTED_ROWS < replayed < 3.5 * COUNTED_ROWS
    held_out, odd = divmod(3 * COUNTED_ROWS - (report.rows_this_call - replayed), 2)
    assert (0.2 * COUNTED_ROWS < held_out < 0.3 * COUNTED_ROWS, odd) == (True, 0)


@pytest.mark.parametrize("moment", [1, 250, 601, 1_100])
def test_late_rows_join_an_epoch_in_which_there_are_more_windows(moment: int, tmp_path: Path) -> None:
    """And are visited in an update otherwise, whatever the pauses."""
    found = []
    for pauses in (0, 2):
        data, run = tmp_path / f"table-{pauses}", tmp_path / f"run-{pauses}"
        write_counted(data / "a.arrow", 0)
        streampgs.train(data, run=run, rows=moment, epochs=2, memory="60MB", window="5kB", **COUNTING)
        write_counted(data / "b.arrow", COUNTED_ROWS, 200)
        for pause in range(pauses):
            streampgs.resume(run, rows=moment + 20 * pause)
        streampgs.resume(run, rows=moment + 50)
        write_counted(data / "c.parquet", COUNTED_ROWS + 200, 77)
        report = streampgs.resume(run, epochs=2)
        assert visits(run)[:COUNTED_ROWS] == [2] * COUNTED_ROWS
        assert set(visits(run)[COUNTED_ROWS:]) <= {1, 2}
        found.append((visits(run), report.dual_sha256))
    assert found[0] == found[1]


@pytest.mark.parametrize("then", ["removed", "replaced", "repaired"])
def test_a_shard_of_which_no_row_was_used_may_change(then: str, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    write_counted(data / "a.arrow", 0)
    streampgs.train(data, run=run, epochs=1, **COUNTING, **SMALL)
    table = pa.table({"label": [1e9, 1e9], "indices": [[COUNTED_ROWS], [1]], "values": [[1.0], [float("nan")]]})
    with pa.ipc.new_file(str(data / "b.arrow"), table.schema) as writer:
        writer.write_table(table)
    for _ in range(2):
        with pytest.raises(streampgs.StreampgsError, match=r"b\.arrow.*row 1"):
            streampgs.resume(run)
    (data / "b.arrow").unlink()
    if then != "removed":
        write_counted(data / ("b.arrow" if then == "repaired" else "c.arrow"), COUNTED_ROWS, 30)
    report = streampgs.resume(run)
    assert report.rows == COUNTED_ROWS + (0 if then == "removed" else 30)
    assert report.found.lost_shards == []
    assert inspect_run(run)["arrivals"][-1]["shards"] == (1 if then == "removed" else 2)


def test_a_sliding_window_trains_on_the_new_rows_each_night(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    for number in range(3):
        write_counted(data / f"{number}.arrow", number * 100, 100)
    streampgs.train(data, run=run, epochs=1, **COUNTING, **SMALL)
    for night in range(3):
        (data / f"{night}.arrow").unlink()
        write_counted(data / f"{night + 3}.arrow", (night + 3) * 100, 100)
        with pytest.raises(streampgs.StreampgsError) as refused:
            streampgs.resume(run)
        assert "accept_removed=True" in refused.value.remedy
        assert "accept_changes" not in refused.value.remedy
        report = streampgs.resume(run, accept_removed=True)
        assert report.rows_this_call == 100
        assert [Path(name).name for name in report.found.lost_shards] == [f"{night}.arrow"]
    assert visits(run) == [1] * 600
    streampgs.resume(run, epochs=2)
    assert visits(run) == [1] * 300 + [2] * 300


@pytest.mark.parametrize("moment", [500, COUNTED_ROWS * 2])
def test_a_change_is_refused_until_it_is_accepted(moment: int, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    for number in range(3):
        write_counted(data / f"{number}.arrow", number * COUNTED_ROWS)
    streampgs.train(data, run=run, rows=moment, epochs=1, memory="60MB", window="5kB", **COUNTING)
    before = [*visits(run), *[0] * COUNTED_ROWS][: 2 * COUNTED_ROWS]
    (data / "0.arrow").unlink()
    write_counted(data / "1.arrow", 3 * COUNTED_ROWS, 100)  # replaces the old shard
    with pytest.raises(streampgs.StreampgsError, match=r"0\.arrow' is missing") as refused:
        streampgs.resume(run)
    assert "accept_changes=True" in refused.value.remedy
    notes = Notes()
    streampgs.resume(run, accept_changes=True, epochs=1, observer=notes)
    assert any("1,200 rows no longer trained on" in note for note in notes.notes), notes.notes
    after = visits(run)
    assert after[: 2 * COUNTED_ROWS] == before, "removed rows must not be trained on"
    again = after[2 * COUNTED_ROWS : 3 * COUNTED_ROWS]
    assert set(again) <= {1, 2}, "only rows of the window that could not be completed come again"
    assert again.count(2) <= 100
    assert after[3 * COUNTED_ROWS :] == [1] * 100
    streampgs.resume(run, epochs=2)
    assert visits(run)[: 2 * COUNTED_ROWS] == before
    events = [event["event"] for event in RunFolder(run).events()]
    assert events.count("changed") == 1


# Following.


class Stops(Observer):
    """Calls `act` with the rows of each checkpoint, and stops the run after a minute so that no test hangs."""

    def __init__(self, stop: StopRequest, act: Callable[[int], None]) -> None:
        self.act = act
        patience = threading.Timer(60.0, stop.ask, ["the time limit of the test"])
        patience.daemon = True
        patience.start()

    def saved(self, checkpoint: str) -> None:
        self.act(int(Path(checkpoint).stem.split("-")[1]))


def test_following_trains_on_new_shards_and_ends_when_asked(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    write_counted(data / "a.arrow", 0)
    stop = StopRequest()
    steps = {
        2 * COUNTED_ROWS: lambda: write_counted(data / "b.arrow", COUNTED_ROWS, 100),
        2 * COUNTED_ROWS + 100: lambda: (
            (data / "a.arrow").rename(data / "z.arrow") and write_counted(data / "c.parquet", COUNTED_ROWS + 100, 50)
        ),
        2 * COUNTED_ROWS + 150: lambda: stop.ask("SIGTERM"),
    }

    def act(rows: int) -> None:
        step = steps.pop(rows, None)
        if step is not None:
            step()

    report = streampgs.train(
        data,
        run=run,
        epochs=2,
        follow=True,
        poll_seconds=0.05,
        observer=Stops(stop, act),
        stop=stop,
        **COUNTING,
        **SMALL,
    )
    assert report.stopped_by == "SIGTERM"
    assert "look" not in [event.get("by") for event in RunFolder(run).events()], "a look for new shards is not a stop"
    assert not steps
    assert visits(run) == [2] * COUNTED_ROWS + [1] * 150


def test_following_drops_missing_shards_and_trains_on_replacements(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    for number in range(3):
        write_counted(data / f"{number}.arrow", number * COUNTED_ROWS)
    stop = StopRequest()

    def act(rows: int) -> None:
        if rows == 3 * COUNTED_ROWS and (data / "0.arrow").exists():
            (data / "0.arrow").unlink()
            write_counted(data / "1.arrow", 3 * COUNTED_ROWS, 70)
        if rows == 3 * COUNTED_ROWS + 70:
            stop.ask("SIGTERM")

    streampgs.train(
        data,
        run=run,
        epochs=1,
        follow=True,
        poll_seconds=0.05,
        observer=Stops(stop, act),
        stop=stop,
        **COUNTING,
        **SMALL,
    )
    assert visits(run) == [1] * (3 * COUNTED_ROWS + 70)
    streampgs.resume(run, epochs=2)
    assert visits(run) == [1] * (2 * COUNTED_ROWS) + [2] * (COUNTED_ROWS + 70)


# The history of a run.


def test_the_history_has_a_line_for_every_event(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    write_counted(data / "a.arrow", 0)
    streampgs.train(data, run=run, rows=300, epochs=1, **COUNTING, **SMALL)
    write_counted(data / "b.arrow", COUNTED_ROWS, 40)
    streampgs.resume(run, epochs=1)
    events = [event for event in RunFolder(run).events() if event["event"] != "judged"]
    shown = [(event["event"], event["rows"], event["t"], event.get("shards")) for event in events]
    assert shown == [
        ("started", 0, 0, 1),
        ("stopped", 300, 300, 1),
        ("resumed", 300, 300, 1),
        ("appended", 600, 600, 2),
        ("stopped", 640, 640, 2),
    ]
    assert [Path(name).name for name in events[3]["added_names"]] == ["b.arrow"]
    assert (events[3]["added_rows"], events[3]["table_rows"]) == (40, 640)
    head, *lines = click.unstyle(history_text(events)).splitlines()
    lines = [line for line in lines if not line.startswith(" ")]  # the others continue the line before
    assert head.split() == ["time", "rows", "steps"]
    assert [line.split(maxsplit=3)[3].split(" ")[0] for line in lines] == [
        "started",
        "stopped",
        "resumed",
        "1",
        "stopped",
    ]
    assert "1 shard with 40 rows joined" in lines[3]


def test_events_undone_by_a_kill_are_marked_as_lost(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    path = folder.history
    folder.append_event("started", 0, 0, shards=2)
    folder.append_event("resumed", 500, 500, shards=2)
    folder.append_event("appended", 500, 500, shards=3)
    folder.append_event("chosen", 900, 900, shards=3)
    with open(path, "a") as file:
        file.write('{"time": "torn')
    folder.append_event("resumed", 500, 500, shards=2)
    assert [event.get("lost", False) for event in read_events(path)] == [False, False, True, True, False]
