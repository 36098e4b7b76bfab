"""Rows on standard input: no pause and no kill loses a row, and the same shards give the same bits."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streampgs
from streampgs import history
from streampgs.base.errors import DataError
from streampgs.model.inspection import inspect_run
from streampgs.options.commands import EncodingOptions, Limits, Resources, ResumeOptions
from streampgs.run import spool
from streampgs.run import start as trainer
from streampgs.run.commands import ResumeCall
from streampgs.run.report import Observer
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.conftest import ROWS, Tables
from tests.end_to_end.mixed_tables import mixed
from tests.end_to_end.streaming import SMALL, calls_until, piped, resume, train, written

pytestmark = pytest.mark.timeout(300)  # readers and producers that wait for each other can hang


def with_bad_rows(table: pa.Table) -> pa.Table:
    """The table with every 97th label missing."""
    labels = table.column("label").to_pylist()
    labels[5::97] = [None] * len(labels[5::97])
    place = table.schema.get_field_index("label")
    return table.set_column(place, "label", pa.array(labels, table.schema.field(place).type))


def table_of(tables: Tables, kind: str) -> pa.Table:
    if kind.startswith("mixed"):
        return mixed(3_000)
    paths = sorted(tables.path(kind.removesuffix(" with bad rows"), "arrow").glob("*.arrow"))
    table = pa.concat_tables(pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in paths)
    return with_bad_rows(table) if kind.endswith("bad rows") else table


CASES: dict[str, dict[str, Any]] = {
    "sparse with bad rows": {"on_bad_row": "skip", "batch": 5, "returns": "average", "replay": 0.5},
    "dense": {"p": 1.8, "replay": 3.0},
    "mixed, some rows": {
        "where": "age > 35 and city != 'city 3'",
        "label": "label = 'yes'",
        "encoding": EncodingOptions(text=("text",)),
    },
}


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of some thousand rows have several shards."""
    monkeypatch.setattr(spool, "_FIRST_ROWS", 500)


def spooled(run: Path) -> pa.Table:
    return pa.concat_tables(pa.ipc.open_file(path).read_all() for path in spool.shards_in(run / "spool"))


def trained_again(run: Path) -> str:
    """The digest of the model of the same shards, without a pause."""
    again = run.with_name("again")
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(run, again)
    for path in again.glob("checkpoint-*"):
        path.unlink()
    return str(trainer.resume(again, ResumeCall(Limits(rows=10**9), SMALL)).dual_sha256)


interruptions = st.lists(
    st.tuples(
        st.integers(1, 2_000),
        st.lists(st.integers(1, 900), min_size=1, max_size=3),
        st.booleans(),
        st.sampled_from([1e-6, 30.0]),
    ),
    max_size=4,
)


@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pauses=interruptions, cuts=st.lists(st.integers(1, 3_000), min_size=1, max_size=3))
def test_no_pause_loses_a_row_and_the_same_shards_give_the_same_bits(
    kind: str,
    pauses: list[tuple[int, list[int], bool, float]],
    cuts: list[int],
    tables: Tables,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table, run = table_of(tables, kind), tmp_path_factory.mktemp("run") / "run"
    report = train(written(table, cuts), run, Limits(rows=1), **CASES[kind])
    for number, cut, again, cadence in pauses:
        taken = report.stream_rows
        assert taken is not None
        resources = Resources(memory=100_000_000, checkpoint_seconds=cadence)
        limits = Limits(rows=report.rows + number)
        report = resume(
            written(table if again else table.slice(taken), cut), run, limits, resources=resources, skip_taken=again
        )
    report = resume(written(table, cuts), run, skip_taken=True)
    assert report.stream_rows == table.num_rows
    assert spooled(run).equals(table)
    assert report.dual_sha256 == trained_again(run)


@pytest.mark.parametrize("cuts", [[100], [1_234, 7], [ROWS]])
def test_shards_are_as_large_as_all_before_them(cuts: list[int], tables: Tables, tmp_path: Path) -> None:
    train(written(table_of(tables, "sparse"), cuts), tmp_path / "run", Limits(rows=1))
    names = [path.name for path in spool.shards_in(tmp_path / "run" / "spool")]
    assert [int(name[21:36]) - int(name[5:20]) for name in names] == [500, 500, 1_000, 2_000, 2_000]


def test_new_rows_are_trained_on_once_and_mixed_with_old_ones(tables: Tables, tmp_path: Path) -> None:
    table = table_of(tables, "sparse")
    none, some = (
        train(written(table, [500]), tmp_path / str(replay), sigma=1e-3, replay=replay) for replay in (0.0, 1.0)
    )
    assert none.rows == ROWS
    assert 1.5 * ROWS < some.rows < 2.0 * ROWS
    events = [event["event"] for event in history(tmp_path / "0.0")]
    assert [event for event in events if event != "judged"] == ["started", *["appended"] * 4, "stopped"]


def test_shards_leave_a_full_spool_at_random_and_never_before_they_were_trained_on(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_PAST", 1e-4)
    monkeypatch.setattr(spool, "_rows_wanted", lambda first: 500)
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    report = train(written(table, [500]), run, sigma=1e-3, replay=0.0)
    assert (report.rows, report.stream_rows) == (ROWS, ROWS)
    assert 1 < len(spool.shards_in(run / "spool")) < 12
    shown = inspect_run(run)
    assert shown["retired"]["shards"] > 0
    assert len(report.found.lost_shards) == shown["retired"]["shards"]
    back = resume(written(table, [500]), run, back_to=str(shown["checkpoints"][0]["rows"]), skip_taken=True)
    assert back.stream_rows == ROWS


OPTIONS = [
    "--window",
    "200kB",
    "--memory",
    "60MB",
    "--checkpoint-every",
    "0.01s",
    "--poll",
    "0.2s",
    "--quiet",
    "--json",
]


@pytest.fixture(scope="module")
def stored(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "table.arrow"
    table = table_of(tables, "sparse")
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize(("how", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
def test_a_run_stopped_by_a_signal_keeps_every_row_that_reached_the_disk(
    how: str, code: int, stored: Path, tables: Tables, tmp_path: Path
) -> None:
    run, again = tmp_path / "run", how == "SIGINT"
    with piped(stored, ["train", "-", "--run", run, *OPTIONS], pause=0.1) as (_, process):
        calls_until(lambda: len(spool.shards_in(run / "spool")) > 1 and any(run.glob("checkpoint-*")))
        acknowledged = spool.rows_in_spool(run / "spool")
        process.send_signal(getattr(signal, how))
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, err.decode()
    taken = inspect_run(run)["stream_rows"]
    assert acknowledged <= taken < ROWS
    if how != "SIGKILL":
        assert json.loads(out)["stream_rows"] == taken
    words = ["resume", run, "-", *(["--skip-taken"] if again else []), "--quiet", "--json", "--memory", "60MB"]
    with piped(stored, words, first=0 if again else taken, rows=700) as (_, process):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
    assert spooled(run).equals(table_of(tables, "sparse"))
    assert json.loads(out)["dual_sha256"] == trained_again(run)


def test_a_run_is_resumed_without_its_stream_on_the_rows_that_wait(tables: Tables, tmp_path: Path) -> None:
    data, run = written(table_of(tables, "sparse"), [500]), tmp_path / "run"
    assert train(data, run, Limits(rows=100), sigma=1e-3, replay=0.0).rows == 100
    waiting = spool.rows_in_spool(run / "spool")
    report = trainer.resume(run, ResumeCall(Limits(rows=10**9), SMALL))
    assert (report.rows, report.stopped_by) == (waiting, "end of stream")


def test_a_run_named_by_a_relative_path_is_resumed_from_another_folder(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, notes = table_of(tables, "sparse"), []

    class Noted(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    monkeypatch.chdir(tmp_path)
    train(written(table, [700]), Path("run"), Limits(rows=900))
    trainer.resume(Path("run"), ResumeCall(Limits(rows=1800), SMALL), Noted())
    monkeypatch.chdir("/")
    report = trainer.resume(tmp_path / "run", ResumeCall(Limits(rows=10**9), SMALL), Noted())
    assert report.stream_rows == table.num_rows
    assert not [note for note in notes if "copy" in note or "moved" in note]
    assert spool.rows_in_spool(tmp_path / "run" / "spool") == table.num_rows


def test_a_damaged_checkpoint_is_not_used(tables: Tables, tmp_path: Path) -> None:
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    train(written(table, [500]), run, Limits(rows=4_000))
    path = max(run.glob("checkpoint-*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    notes: list[str] = []

    class Noting(Observer):
        def note(self, message: str) -> None:
            notes.append(message)

    report = resume(written(table, [500]), run, skip_taken=True, observer=Noting())
    assert "SHA-256 does not match" in notes[0]
    assert report.dual_sha256 == trained_again(run)


def test_dictionaries_that_change_begin_a_new_shard(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).standard_normal(900)
    parts = [
        pa.record_batch({
            "label": (numbers[first : first + 300] > 0.0).astype(np.int8), "x": numbers[first : first + 300],
            "city": pa.array([f"{first}-{row % 3}" for row in range(300)]).dictionary_encode(),
        })
        for first in (0, 300, 600)
    ]  # fmt: skip
    report = train(written(pa.Table.from_batches(parts), [300]), tmp_path / "run")
    assert report.stream_rows == 900
    assert report.skipped_rows == {}


def test_a_bad_row_is_named_by_its_shard_and_may_be_skipped_later(tables: Tables, tmp_path: Path) -> None:
    table, run = with_bad_rows(table_of(tables, "sparse").slice(0, 2_000)), tmp_path / "run"
    late = pa.concat_tables([table_of(tables, "sparse").slice(0, 5_990), table.slice(0, 10)])
    with pytest.raises(DataError, match=r"rows-0{11}4000-0{11}6000.arrow'.*: no label"):
        train(written(late, [300]), run)
    assert inspect_run(run)["stream_rows"] == 6_000
    report = trainer.resume(run, ResumeCall(Limits(rows=10**9), SMALL, changes=ResumeOptions(on_bad_row="skip")))
    assert (report.stream_rows, report.skipped_rows) == (6_000, {"label null": 1})


def test_a_producer_that_dies_in_a_batch_is_reported_after_complete_batches_are_saved(
    tables: Tables, tmp_path: Path
) -> None:
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    whole = written(table.slice(0, 3_000), [300], ends=False)
    more = written(table.slice(0, 3_300), [300], ends=False)
    with pytest.raises(DataError, match="middle of a record batch, after row 3,000"):
        train(more[: (len(whole) + len(more)) // 2], run)
    assert inspect_run(run)["stream_rows"] == 3_000
    assert resume(written(table.slice(3_000), [300]), run).stream_rows == ROWS


def test_a_stream_without_its_end_mark_is_reported(tables: Tables, tmp_path: Path) -> None:
    notes: list[str] = []

    class Noting(Observer):
        def note(self, message: str) -> None:
            notes.append(message)

    data = written(table_of(tables, "sparse"), [500], ends=False)
    assert train(data, tmp_path / "run", observer=Noting()).stream_rows == ROWS
    assert any("without Arrow's end mark" in note for note in notes)


def test_concatenated_streams_are_one_stream(tables: Tables, tmp_path: Path) -> None:
    table = table_of(tables, "sparse")
    data = written(table.slice(0, 1_234), [100]) + written(table.slice(1_234), [999])
    train(data, tmp_path / "run")
    assert spooled(tmp_path / "run").equals(table)
    other = written(table.slice(0, 100), [100]) + written(table.rename_columns(["a", "b", "c"]), [100])
    with pytest.raises(DataError, match="after row 100 of the stream another one begins"):
        train(other, tmp_path / "other")


def arrow_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_other_formats_on_standard_input_are_refused_by_name(tables: Tables, tmp_path: Path) -> None:
    table = table_of(tables, "sparse").slice(0, 10)
    cases = {
        "standard input is empty": b"",
        "an Arrow file, not a stream": arrow_file(table),
        "not an Arrow stream: it begins with b'label,x": b"label,x\n1,2\n",
        "it begins with b'ab'": b"ab",
        "not a complete Arrow stream": written(table, [10])[:100],
        "the stream has no rows": written(table.slice(0, 0), [10]),
        "gzip": b"\x1f\x8b\x08" + bytes(100),
    }
    for message, data in cases.items():
        with pytest.raises(DataError, match=message):
            train(data, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_terminal_as_standard_input_is_refused(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "streampgs", "train", "-", "--run", str(tmp_path / "run")]
    done = subprocess.run(words, stdin=follower, capture_output=True, text=True, timeout=60, check=False)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 2
    assert "terminal" in done.stderr
    assert "producer |" in done.stderr


def test_options_that_do_not_apply_to_streams_are_refused(tables: Tables, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(written(table_of(tables, "sparse"), [500]), run, Limits(rows=100))
    data, of_files = tables.path("sparse", "arrow"), tmp_path / "of-files"
    streampgs.train(data, run=of_files, rows=100)
    cases = {
        ("train", "-", "--run", "new", "--epochs", "2"): "--epochs",
        ("train", "-", "--run", "new", "--no-cache"): "cache",
        ("train", "-", data, "--run", "new"): "next to other data",
        ("train", "-", "--run", "new", "--follow"): "--follow",
        ("train", data, "--run", "new", "--spool", "1GB"): "--spool without a stream",
        ("train", "-", "--run", "new", "--replay", "-1"): "--replay",
        ("train", "-", "--run", "new", "--window", "300MB"): "--window",
        ("resume", run, "--skip-taken"): "producer |",
        ("resume", run, "-", "--epochs", "2"): "--epochs",
        ("resume", of_files, "-"): "on shards",
        ("resume", of_files, "--skip-taken"): "--skip-taken",
    }
    for words, message in cases.items():
        done = command(*(tmp_path / word if word == "new" else word for word in words))
        assert done.code == 2, words
        assert message in done.err
    assert not (tmp_path / "new").exists()


def test_a_stream_shorter_than_the_rows_taken_is_refused(tables: Tables, tmp_path: Path) -> None:
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    taken = train(written(table, [500]), run, Limits(rows=3_000)).stream_rows
    assert taken is not None
    with pytest.raises(DataError, match=f"after 600 rows; {taken:,} were taken"):
        resume(written(table.slice(0, 600), [500]), run, skip_taken=True)
    with pytest.raises(DataError, match="are not those of the rows before"):
        resume(written(table.drop_columns(["label"]), [500]), run)


def test_every_command_works_with_a_model_of_a_stream(tables: Tables, tmp_path: Path) -> None:
    run = tmp_path / "run"
    table = mixed(3_000)
    train(written(table, [500]), run, validation=())
    test = tmp_path / "test.arrow"
    test.write_bytes(arrow_file(mixed(1_000, seed=1)))
    done = command("evaluate", run, test, "--json")
    assert done.json["accuracy"] > 0.8
    assert command("predict", run, test, "--out", tmp_path / "out.csv").code == 0
    shown = command("inspect", run, "--top", 3)
    assert "3,000 rows were taken from the stream" in shown.out + shown.err
    model = streampgs.Model.load(run)
    assert model.predict(mixed(10)).shape == (10,)


def test_memory_stays_below_the_forecast(tmp_path: Path) -> None:
    from streampgs.packing.synth import write_dataset

    write_dataset(tmp_path / "table", rows=300_000, kind="sparse", shards=1)
    (path,) = (tmp_path / "table").glob("*.arrow")
    words = ["train", "-", "--run", tmp_path / "run", "--memory", "80MB", "--quiet", "--json"]
    with piped(path, words, rows=5_000) as (_, process):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
    report = json.loads(out)
    assert report["peak_rss_mb"] < report["forecast_rss_mb"]
    assert report["stream_rows"] == 300_000


def test_a_batch_beyond_the_budget_is_refused_with_advice(tables: Tables, tmp_path: Path) -> None:
    table = pa.concat_tables([table_of(tables, "sparse")] * 10).combine_chunks()
    with pytest.raises(DataError, match="smaller batches"):
        train(written(table, [10**6]), tmp_path / "run", resources=Resources(memory=50_000_000))


def test_a_stream_is_judged_on_validation_data(tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_FIRST_ROWS", ROWS)  # the search for sigma ends with the first shard
    data = written(table_of(tables, "sparse"), [500])
    report = train(data, tmp_path / "run", validation=(str(tables.test_path("sparse")),))
    assert report.judged_accuracy is not None
    assert report.judged_accuracy > 0.6


def test_the_output_shows_how_to_continue_a_stream(tables: Tables, tmp_path: Path) -> None:
    path, run = tmp_path / "table.arrow", tmp_path / "run"
    path.write_bytes(arrow_file(table_of(tables, "sparse")))
    with piped(path, ["train", "-", "--run", run, "--rows", "2000", "--window", "200kB", "--memory", "60MB"]) as (
        _,
        trainer,
    ):
        _, err = trainer.communicate(timeout=60)
    taken = inspect_run(run)["stream_rows"]
    assert f"{taken:,} rows were taken from the stream" in err.decode()
    assert f"producer | streampgs resume {run} - --skip-taken --rows N" in err.decode()
    shown = command("inspect", run).out
    assert f"producer | streampgs resume {run} -   from row {taken:,} of the stream (counted from 0)" in shown
    for checkpoint in run.glob("checkpoint-*"):
        checkpoint.unlink()
    assert f"producer | streampgs resume {run} -" in command("inspect", run).err
