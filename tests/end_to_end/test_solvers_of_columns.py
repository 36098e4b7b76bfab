"""Runs with a solver of columns: pauses, lost files, growing tables, and refusals. The solver only keeps a trace of the
entries that it was given, and of their order."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import streampgs
from streampgs.base.errors import DataChanged, OptionError, RunError
from streampgs.options.commands import Limits, ModelOptions, Resources
from streampgs.options.solvers import LEARNERS, SOLVERS
from streampgs.order.columns import SWEEPS
from streampgs.run import start as command
from streampgs.run.report import Silent, StopRequest
from streampgs.run.saved import saved_run
from tests.data.tracing import TRACE
from tests.end_to_end.test_growing_tables import SHARD_ROWS, arrive

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
FEATURES = 40
ROWS = 700
BLOCK_BYTES = 9_000
"""Of 700 rows, columns make several blocks."""
SIZES: dict[str, Any] = {"solver": "trace", "window": "12kB"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOLVERS, "trace", TRACE)
    monkeypatch.setitem(LEARNERS, "trace", TRACE.path)
    monkeypatch.setattr("streampgs.run.shard_input.column_bytes_for", lambda *given: BLOCK_BYTES)


def rows_of(rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    indices = [np.sort(chance.choice(FEATURES, chance.integers(0, 9), replace=False)) for _ in range(rows)]
    values = [chance.normal(size=len(row)).astype(np.float32) for row in indices]
    labels = np.where(chance.random(rows) < 0.5, 1.0, -1.0)
    return pa.table({
        "label": labels,
        "indices": pa.array([row.tolist() for row in indices], pa.list_(pa.int32())),
        "values": pa.array([row.tolist() for row in values], pa.list_(pa.float32())),
    })  # fmt: skip


def write(path: Path, rows: int, seed: int) -> pa.Table:
    table = rows_of(rows, seed)
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=150)
    return table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(2):
        write(tmp_path / "table" / f"{number}.parquet", ROWS // 2, number)
    return tmp_path / "table"


def state_of(run: Path) -> dict[str, Any]:
    return saved_run(run).race.lanes.groups[0].state


def sums_of(tables: list[pa.Table]) -> np.ndarray[Any, Any]:
    """Σ label·value of each feature."""
    sums = np.zeros(FEATURES)
    for table in tables:
        for row in table.to_pylist():
            sums[row["indices"]] += row["label"] * np.array(row["values"])
    return sums


def train(table: Path, run: Path, **more: Any) -> Any:
    return streampgs.train(table, run=run, **{**SIZES, **more})


def trained_with_pauses(table: Path, run: Path, every: int, epochs: int) -> Any:
    report, rows = train(table, run, epochs=epochs, rows=every), every
    while report.stopped_by == "rows":
        rows += every
        report = streampgs.resume(run, epochs=epochs, rows=rows)
    return report


def columns_in(run: Path) -> list[Path]:
    return sorted((run / "cache" / "columns").iterdir())


def test_every_column_has_all_rows_and_is_visited_in_each_sweep(table: Path, tmp_path: Path) -> None:
    report = train(table, tmp_path / "run", epochs=3)
    state = state_of(tmp_path / "run")
    assert int(state["rows"]) == ROWS
    np.testing.assert_array_equal(state["visits"][1:, 0], 2 * SWEEPS)
    expected = sums_of([pq.read_table(path) for path in sorted(table.iterdir())])
    np.testing.assert_allclose(state["sums"][1:, 0], expected, rtol=1e-6, atol=1e-9)
    assert (report.epochs, report.stopped_by) == (3.0, "epochs")
    assert len(columns_in(tmp_path / "run")) > 3, "one window of rows would test nothing"


@pytest.mark.parametrize("every", [97, 230])
def test_pauses_change_no_bit(table: Path, tmp_path: Path, every: int) -> None:
    """In windows of rows, within a sweep, between sweeps and between blocks."""
    whole = train(table, tmp_path / "whole", epochs=3)
    paused = trained_with_pauses(table, tmp_path / "paused", every, 3)
    assert paused.dual_sha256 == whole.dual_sha256
    assert paused.rows == whole.rows


@pytest.mark.parametrize("harm", ["missing", "damaged", "shorter"])
@pytest.mark.parametrize("rows", [450, 900])
def test_a_lost_file_of_columns_is_made_again_with_the_same_bits(
    table: Path, tmp_path: Path, harm: str, rows: int
) -> None:
    whole, run = train(table, tmp_path / "whole", epochs=3), tmp_path / "run"
    train(table, run, epochs=3, rows=rows)
    for path in columns_in(run)[:2]:
        content = path.read_bytes()
        path.unlink()
        if harm != "missing":
            path.write_bytes(content[:-20] if harm == "shorter" else bytes([content[0] ^ 1]) + content[1:])
    report = streampgs.resume(run, epochs=3)
    assert report.dual_sha256 == whole.dual_sha256
    assert any("of columns made again, because missing or damaged" in note for note in report.notes)


def test_a_file_that_cannot_be_made_again_is_an_error(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(table, run, epochs=2)
    for path in columns_in(run):
        path.unlink()
    (table / "0.parquet").rename(table / "elsewhere")
    with pytest.raises((DataChanged, RunError)):
        streampgs.resume(run, epochs=3)


def test_the_same_memory_gives_the_same_bits_with_another_budget(table: Path, tmp_path: Path) -> None:
    whole, run = train(table, tmp_path / "whole", epochs=3), tmp_path / "run"
    train(table, run, epochs=3, rows=800, memory="60MB")
    assert streampgs.resume(run, epochs=3, memory="200MB").dual_sha256 == whole.dual_sha256


def test_a_resume_without_memory_takes_what_the_blocks_need(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streampgs.run.shard_input.column_bytes_for", lambda *given: 700_000_000)
    train(table, tmp_path / "run", epochs=2, memory="800MB")
    assert streampgs.resume(tmp_path / "run", epochs=3).epochs == 3.0
    with pytest.raises(OptionError, match=r"columns of the run(.|\n)*give that much"):
        streampgs.resume(tmp_path / "run", epochs=4, memory="600MB")


KILLED = """
import os, signal, sys
import streampgs
from streampgs.data.columns import ColumnSource
from streampgs.reading import column_files
from streampgs.run import shard_input
from streampgs.options.solvers import LEARNERS, SOLVERS
from tests.data.tracing import TRACE

table, run, block_bytes, where, count = sys.argv[1:]
SOLVERS["trace"], LEARNERS["trace"] = TRACE, TRACE.path
shard_input.column_bytes_for = lambda *given: int(block_bytes)
new_file, sweep, calls = column_files.new_file, ColumnSource._sweep, []


def die(*given):
    calls.append(given)
    if len(calls) == int(count):
        if where == "file":
            os.write(new_file(*given), b"half of a file")
        os.kill(os.getpid(), signal.SIGKILL)
    return (new_file if where == "file" else sweep)(*given)


if where == "file":
    column_files.new_file = die
else:
    ColumnSource._sweep = die
streampgs.train(table, run=run, solver="trace", window="12kB", epochs=3, checkpoint_seconds=1e-6)
"""


@pytest.mark.parametrize(("where", "count"), [("file", 1), ("file", 3), ("sweep", 1), ("sweep", 13)])
def test_a_run_that_is_killed_continues_with_the_same_bits(table: Path, tmp_path: Path, where: str, count: int) -> None:
    """While a file of columns is written, and before a sweep."""
    whole, run = train(table, tmp_path / "whole", epochs=3), tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(table), str(run), str(BLOCK_BYTES), where, str(count)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == -signal.SIGKILL
    report = streampgs.resume(run)
    assert (report.rows, report.dual_sha256) == (whole.rows, whole.dual_sha256)
    assert all(path.suffix == ".columns" for path in columns_in(run)), "half of a file is left"


FULL = """
import resource, signal, sys
import streampgs
from streampgs.base.errors import RunError
from streampgs.run import shard_input
from streampgs.options.solvers import LEARNERS, SOLVERS
from tests.data.tracing import TRACE

table, run, block_bytes, cache = sys.argv[1:]
SOLVERS["trace"], LEARNERS["trace"] = TRACE, TRACE.path
shard_input.column_bytes_for = lambda *given: int(block_bytes)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write = sys.modules["streampgs.reading.column_files"].ColumnFiles._write


def limited(*given):
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        write(*given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


sys.modules["streampgs.reading.column_files"].ColumnFiles._write = limited
try:
    streampgs.train(table, run=run, solver="trace", window="12kB", epochs=3, cache=cache)
except RunError as error:
    sys.exit(str(error))
"""


def test_a_disk_that_is_full_leaves_no_file_and_a_resume_has_the_same_bits(table: Path, tmp_path: Path) -> None:
    whole, run, cache = train(table, tmp_path / "whole", epochs=3), tmp_path / "run", tmp_path / "cache"
    command = [sys.executable, "-c", FULL, str(table), str(run), str(BLOCK_BYTES), str(cache)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert "cannot be written: File too large" in done.stderr
    assert not list((cache / "columns").iterdir())
    assert streampgs.resume(run).dual_sha256 == whole.dual_sha256


def test_runs_that_share_a_cache_share_its_files(table: Path, tmp_path: Path) -> None:
    alone = train(table, tmp_path / "alone", epochs=3)
    paused = train(table, tmp_path / "one", epochs=3, rows=450, cache=tmp_path / "cache")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "columns").iterdir()}
    other = train(table, tmp_path / "other", epochs=3, cache=tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert paused.dual_sha256 != other.dual_sha256
    assert alone.dual_sha256 == other.dual_sha256 == streampgs.resume(tmp_path / "one", epochs=3).dual_sha256


# Growth.


@pytest.mark.parametrize("at", [300, 705, 1200])
def test_new_rows_belong_to_all_columns_from_the_next_epoch_on(table: Path, tmp_path: Path, at: int) -> None:
    """They arrive in the epoch of rows, in the first of columns and in the second one."""
    run = tmp_path / "run"
    train(table, run, epochs=6, rows=at)
    write(table / "new.parquet", 200, 7)
    report = streampgs.resume(run, epochs=6)
    state = state_of(run)
    assert int(state["rows"]) == ROWS + 200
    expected = sums_of([pq.read_table(path) for path in sorted(table.iterdir())])
    np.testing.assert_allclose(state["sums"][1:, 0], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(state["visits"][1:, 0], 5 * SWEEPS)
    assert report.update is None, "there are no other models next to this one"


def test_pauses_while_the_table_grows_change_no_bit(table: Path, tmp_path: Path) -> None:
    digests = []
    for run, every in ((tmp_path / "whole", 1 << 40), (tmp_path / "paused", 61)):
        train(table, run, epochs=2)
        write(table / "new.parquet", 200, 7)
        rows, report = ROWS + SWEEPS * FEATURES, None
        while report is None or report.stopped_by == "rows":
            rows += every
            report = streampgs.resume(run, epochs=4, rows=rows)
        digests.append(report.dual_sha256)
        (table / "new.parquet").unlink()
    assert digests[0] == digests[1]


def test_one_more_epoch_of_columns_follows_new_rows(table: Path, tmp_path: Path) -> None:
    """Else the weights would not know these rows."""
    run = tmp_path / "run"
    train(table, run, epochs=2)
    for number in range(2):
        write(table / f"new{number}.parquet", 100, 7 + number)
        report = streampgs.resume(run)
        np.testing.assert_array_equal(state_of(run)["visits"][1:, 0], (2 + number) * SWEEPS)
        assert (int(state_of(run)["rows"]), report.stopped_by) == (ROWS + 100 * (number + 1), "epochs")
        assert streampgs.resume(run).outcome == "nothing new"


def test_following_gives_the_same_model_as_resuming(table: Path, tmp_path: Path) -> None:
    train(table, tmp_path / "run", epochs=2)
    write(table / "new.parquet", 200, 7)
    expected = streampgs.resume(tmp_path / "run")
    (table / "new.parquet").rename(tmp_path / "new.parquet")
    followed, stop = tmp_path / "followed", StopRequest()

    class AddShards(Silent):
        def note(self, text: str) -> None:
            if "waiting for new shards" in text:
                (tmp_path / "new.parquet").rename(table / "new.parquet")

        def saved(self, path: str) -> None:
            if saved_run(followed).meter.rows >= expected.rows:
                stop.ask("stop")

    report = train(table, followed, epochs=2, observer=AddShards(), stop=stop, follow=True, poll_seconds=0.02)
    assert (report.rows, report.dual_sha256) == (expected.rows, expected.dual_sha256)


@pytest.mark.parametrize("case", ["dense stays dense", "dense becomes sparse", "columns of all types"])
def test_columns_of_growing_tables_have_the_same_bits_with_pauses_and_without_their_files(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streampgs.run.shard_input.column_bytes_for", lambda *given: 60_000)
    digests = []
    for attempt in range(2):
        data, run = tmp_path / f"data-{attempt}", tmp_path / f"run-{attempt}"
        arrive(case, 0, data)
        train(data, run, epochs=2, memory="60MB", window="100kB")
        for wave in (1, 2):
            arrive(case, wave, data)
            done = saved_run(run).meter.rows
            for pause in (600, 1_203, 1_209) if attempt else ():
                streampgs.resume(run, rows=done + pause, epochs=2)
                shutil.rmtree(run / "cache")
            report = streampgs.resume(run, epochs=2)
        digests.append(report.dual_sha256)
        assert int(state_of(run)["rows"]) == 6 * SHARD_ROWS
    assert digests[0] == digests[1]


def test_a_compacted_table_keeps_its_columns(tmp_path: Path) -> None:
    table, run = tmp_path / "delta", tmp_path / "run"
    for seed in range(3):
        write_deltalake(str(table), rows_of(100, seed), mode="append")
    train(table, run, epochs=2)
    DeltaTable(str(table)).optimize.compact()
    assert streampgs.resume(run).rows_this_call == 0
    report = streampgs.resume(run, epochs=3)
    assert (report.rows_this_call, int(state_of(run)["rows"])) == (SWEEPS * FEATURES, 300)
    write_deltalake(str(table), rows_of(50, 9), mode="append")
    assert streampgs.resume(run).rows_this_call == 50 + SWEEPS * FEATURES


def test_rows_of_a_lost_shard_cannot_be_taken_out(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(table, run, epochs=2)
    (table / "1.parquet").unlink()
    with pytest.raises(DataChanged, match=r"cannot take their rows out of its columns(.|\n)*start a new run"):
        streampgs.resume(run, epochs=3, accept_changes=True)


# Refused.


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"no_cache": True}, "keeps the columns of the table in the cache"),
        ({"threads": 2}, "visits columns one by one"),
        ({"batch": 8}, "visits columns one by one"),
        ({"sampling": "independent"}, "visits columns one by one"),
        ({"passes": 2}, "whose epochs visit all rows"),
        ({"replay": 1.0}, "whose epochs visit all rows"),
    ],
)
def test_options_that_columns_cannot_have_are_refused(
    table: Path, tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        train(table, tmp_path / "run", epochs=2, **more)


def test_a_stream_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"stream(.|\n)*use another solver|stream(.|\n)*shards"):
        command.train(["-"], tmp_path / "run", ModelOptions(solver="trace"), Limits(rows=10), Resources())


def test_rows_that_do_not_fit_into_memory_are_refused(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(SOLVERS, "trace", TRACE)
    monkeypatch.setitem(LEARNERS, "trace", TRACE.path)
    monkeypatch.setattr("tests.data.tracing.Trace.bytes_per_row", classmethod(lambda cls, lanes: 60_000 * lanes))
    with pytest.raises(OptionError, match=r"keeps a label and scores of 700 rows(.|\n)*at least"):
        train(table, tmp_path / "run", epochs=2, memory="60MB")
