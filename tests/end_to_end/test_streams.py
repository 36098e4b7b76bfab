"""Rows on standard input: any batches and any pauses give the same bits, and no row is lost."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streampgs
from streampgs.base.errors import DataError, RunError
from streampgs.model.inspection import inspect_run
from streampgs.options.commands import EncodingOptions, Limits, ModelOptions, Resources
from streampgs.reading import mixed_window
from streampgs.run import start as trainer
from streampgs.run.report import Silent, StopRequest
from streampgs.run.seal import read_sealed
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.conftest import ROWS, Tables
from tests.end_to_end.mixed_tables import mixed
from tests.end_to_end.streaming import SMALL, calls_until, piped, resume, standard_input, train, written

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
    "sparse": {},
    "sparse with bad rows": {"on_bad_row": "skip", "batch": 5, "returns": "average", "replay": 0.5},
    "dense": {"p": 1.8, "replay": 3.0},
    "mixed": {"encoding": EncodingOptions(text=("text",)), "replay": 1.0, "threads": 2},
    "mixed, some rows": {"where": "age > 35 and city != 'city 3'", "label": "label = 'yes'", "replay": 1.0},
    "regression": {"loss": "squared", "sigma": 1e-3, "replay": 0.0},
}


@pytest.fixture(scope="module")
def unpaused(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> dict[str, streampgs.run.report.Report]:
    base = tmp_path_factory.mktemp("unpaused")
    return {
        kind: train(written(table_of(tables, kind), [1_000]), base / str(number), **options)
        for number, (kind, options) in enumerate(CASES.items())
    }


class StopAfter(Silent):
    def __init__(self, stop: StopRequest, checkpoints: int) -> None:
        self.stop = stop
        self.left = checkpoints

    def saved(self, checkpoint: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.ask("SIGTERM")


interruptions = st.lists(
    st.tuples(
        st.sampled_from(["rows", "stop"]),
        st.integers(1, 2_000),
        st.lists(st.integers(1, 900), min_size=1, max_size=3),
        st.booleans(),
        st.sampled_from([1e-6, 30.0]),
    ),
    max_size=5,
)


@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pauses=interruptions, cuts=st.lists(st.integers(1, 3_000), min_size=1, max_size=3))
def test_any_batches_and_any_pauses_give_the_same_bits(
    kind: str,
    pauses: list[tuple[str, int, list[int], bool, float]],
    cuts: list[int],
    tables: Tables,
    unpaused: dict[str, streampgs.run.report.Report],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table, run = table_of(tables, kind), tmp_path_factory.mktemp("run") / "run"
    report = train(written(table, cuts), run, Limits(rows=1), **CASES[kind])
    for what, number, cut, again, cadence in pauses:
        taken = report.stream_rows
        assert taken is not None
        data = written(table if again else table.slice(taken), cut)
        resources = Resources(memory=100_000_000, checkpoint_seconds=cadence)
        if what == "rows":
            limits = Limits(rows=report.rows + number)
            report = resume(data, run, limits, resources=resources, skip_taken=again)
        else:
            stop = StopRequest()
            observer = StopAfter(stop, 1 + number % 5)
            report = resume(data, run, observer=observer, stop=stop, skip_taken=again)
    report = resume(written(table, cuts), run, skip_taken=True)
    expected = unpaused[kind]
    assert (report.dual_sha256, report.rows) == (expected.dual_sha256, expected.rows)
    assert report.stream_rows == table.num_rows
    assert report.skipped_rows_of_run == expected.skipped_rows


def test_new_rows_are_trained_on_once_and_mixed_with_replayed_ones(
    unpaused: dict[str, streampgs.run.report.Report],
) -> None:
    assert unpaused["regression"].rows == ROWS
    # The first two windows draw from an empty reservoir, and no row appears twice in a window.
    assert 1.3 * ROWS < unpaused["sparse"].rows < 1.5 * ROWS
    assert 2.0 * ROWS < unpaused["dense"].rows < 4.0 * ROWS
    assert unpaused["sparse with bad rows"].skipped_rows == {"label null": len(range(5, ROWS, 97))}
    selected = mixed(3_000).filter((pc.field("age") > 35) & (pc.field("city").cast(pa.string()) != "city 3")).num_rows
    assert unpaused["mixed, some rows"].skipped_rows == {"left out by --where": 3_000 - selected}


@pytest.fixture(scope="module")
def stored(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "table.arrow"
    table = table_of(tables, "sparse")
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


OPTIONS = ["--window", "200kB", "--memory", "60MB", "--checkpoint-every", "0.01s", "--quiet", "--json"]


@pytest.mark.parametrize(("how", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
@pytest.mark.parametrize("again", [False, True])
def test_a_run_stopped_by_a_signal_resumes_to_the_same_bits(
    how: str, code: int, again: bool, stored: Path, unpaused: dict[str, streampgs.run.report.Report], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # The sample is as large as one window here, so training begins while rows still arrive.
    with piped(stored, ["train", "-", "--run", run, *OPTIONS], pause=0.005) as (_, process):
        calls_until(lambda: len(list(run.glob("checkpoint-*"))) > 1)
        process.send_signal(getattr(signal, how))
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, err.decode()
    taken = inspect_run(run)["stream_rows"]
    assert 0 < taken < ROWS
    if how != "SIGKILL":
        assert json.loads(out)["stream_rows"] == taken
    words = ["resume", run, "-", *(["--skip-taken"] if again else []), "--quiet", "--json", "--memory", "60MB"]
    with piped(stored, words, first=0 if again else taken, rows=700) as (_, process):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
    assert json.loads(out)["dual_sha256"] == unpaused["sparse"].dual_sha256


def test_rows_before_the_first_window_are_kept_by_a_pause(tmp_path: Path) -> None:
    """The wide column gives no feature, so many rows are sampled before there are enough for a window."""
    random = np.random.default_rng(0)
    numbers = random.standard_normal(6_000)
    table = pa.table(
        {"label": (numbers > 0.0).astype(np.int8), "x": numbers, "note": pa.array([b"." * 500] * 6_000, pa.binary())}
    )
    expected = train(written(table, [100]), tmp_path / "quiet")
    run, stop = tmp_path / "run", StopRequest()

    def pause() -> None:
        calls_until((run / "run.arrows").exists)
        time.sleep(1.0)  # all rows are read by then, and some of them are in an incomplete window
        stop.ask("SIGTERM")

    with standard_input(written(table.slice(0, 2_500), [100], ends=False), stalls=True):
        pausing = threading.Thread(target=pause)
        pausing.start()
        report = trainer.train(["-"], run, ModelOptions(), Limits(), SMALL, stop=stop)
        pausing.join()
    assert (report.rows, report.dual_sha256, report.stopped_by) == (0, None, "SIGTERM")
    taken = report.stream_rows
    assert taken == 2_500
    with pytest.raises(RunError, match="has no model yet"):
        streampgs.Model.load(run)
    with pytest.raises(RunError, match="exists already"):  # its rows may not be sent again
        train(written(table, [100]), run)
    report = resume(written(table.slice(taken), [100]), run)
    assert (report.dual_sha256, report.stream_rows) == (expected.dual_sha256, 6_000)


def test_three_checkpoints_with_their_reservoirs_are_kept(
    tables: Tables, unpaused: dict[str, streampgs.run.report.Report], tmp_path: Path
) -> None:
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    train(written(table, [500]), run, Limits(rows=4_000))
    paths = sorted(run.glob("checkpoint-*"))
    assert len(paths) == 3
    for path in paths:  # the reading thread may have been at any position
        sections = read_sealed(path)[1]["sections"]
        window = sections["worker"]["values"]["window"]
        assert sections["worker"]["values"]["cursor"]["position"] in (window["start"], window["next"])
    paths[-1].unlink()
    report = resume(written(table, [500]), run, skip_taken=True)
    assert report.dual_sha256 == unpaused["sparse"].dual_sha256
    assert len(list(run.glob("checkpoint-*"))) == 3


def test_a_damaged_checkpoint_is_not_used(
    tables: Tables, unpaused: dict[str, streampgs.run.report.Report], tmp_path: Path
) -> None:
    table, run = table_of(tables, "sparse"), tmp_path / "run"
    train(written(table, [500]), run, Limits(rows=4_000))
    path = max(run.glob("checkpoint-*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    notes: list[str] = []

    class Noting(Silent):
        def note(self, message: str) -> None:
            notes.append(message)

    report = resume(written(table, [500]), run, skip_taken=True, observer=Noting())
    assert "SHA-256 does not match" in notes[0]
    assert report.dual_sha256 == unpaused["sparse"].dual_sha256


def test_a_bad_row_is_named_by_its_number_in_the_stream(tables: Tables, tmp_path: Path) -> None:
    table, run = with_bad_rows(table_of(tables, "sparse").slice(0, 2_000)), tmp_path / "run"
    data = written(table.slice(6, 94), [100]) + written(table.slice(6, 500), [70])
    with pytest.raises(DataError, match="row 190 of the stream: no label"):
        train(data, run)
    late = pa.concat_tables([table_of(tables, "sparse").slice(0, 5_990), table.slice(0, 10)])
    with pytest.raises(DataError, match="row 5995 of the stream: no label"):
        train(written(late, [300]), run)
    taken = inspect_run(run)["stream_rows"]
    assert 0 < taken < 5_995
    report = resume(written(late.slice(taken), [300]), run, on_bad_row="skip")
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

    class Noting(Silent):
        def note(self, message: str) -> None:
            notes.append(message)

    data = written(table_of(tables, "sparse"), [500], ends=False)
    assert train(data, tmp_path / "run", observer=Noting()).stream_rows == ROWS
    assert any("without Arrow's end mark" in note for note in notes)


def test_concatenated_streams_are_one_stream(
    tables: Tables, unpaused: dict[str, streampgs.run.report.Report], tmp_path: Path
) -> None:
    table = table_of(tables, "sparse")
    data = written(table.slice(0, 1_234), [100]) + written(table.slice(1_234), [999])
    assert train(data, tmp_path / "run").dual_sha256 == unpaused["sparse"].dual_sha256
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
        ("train", "-", "--run", "new", "--sampling", "independent"): "--sampling",
        ("train", "-", "--run", "new", "--no-cache"): "cache",
        ("train", "-", data, "--run", "new"): "next to other data",
        ("train", "-", "--run", "new", "--replay", "17"): "at most 16",
        ("train", "-", "--run", "new", "--replay", "-1"): "--replay",
        ("train", "-", "--run", "new", "--window", "300MB"): "--window",
        ("resume", run): "producer |",
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
    with pytest.raises(DataError, match=f"after 600 rows; {taken:,} were taken"):
        resume(written(table.slice(0, 600), [500]), run, skip_taken=True)
    with pytest.raises(DataError, match="no column 'label'"):
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


def test_a_stream_is_judged_on_validation_data(tables: Tables, tmp_path: Path) -> None:
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


def test_a_window_ends_when_too_many_rows_were_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a condition that is hardly ever fulfilled would fill the memory with the numbers of these rows."""
    monkeypatch.setattr(mixed_window, "_MOST_LEFT_OUT", 40)
    noted = []
    finish = mixed_window.MixedWindow.finish
    monkeypatch.setattr(
        mixed_window.MixedWindow,
        "finish",
        lambda self, plan: (noted.append(len(self.bad_numbers)), finish(self, plan))[1],
    )
    options = {"where": "city = 'city 3'", "replay": 0.0, "sigma": 1e-3}
    table = mixed(3_000)
    whole = train(written(table, [700]), tmp_path / "whole", **options)
    assert max(noted) == 40
    assert whole.rows + sum(whole.skipped_rows.values()) == whole.stream_rows == 3_000
    train(written(table, [301]), tmp_path / "paused", Limits(rows=whole.rows // 2), **options)
    again = resume(written(table, [99]), tmp_path / "paused", skip_taken=True)
    assert (again.dual_sha256, again.skipped_rows_of_run) == (whole.dual_sha256, whole.skipped_rows)
