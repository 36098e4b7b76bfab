"""However a run is interrupted, λ ends with the bits of the run without interruptions."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streampgs
from streampgs.run.commands import TrainCall
from streampgs.run.report import Observer, StopRequest
from streampgs.run.start import train as train_run
from tests.end_to_end.conftest import ROWS, Tables
from tests.end_to_end.observers import StopAfter

pytestmark = pytest.mark.timeout(300)  # readers and producers that wait for each other can hang

EPOCHS = 3
# Windows so small that a run has many, in which pauses may fall anywhere.
SMALL = {"memory": "60MB", "window": "500kB"}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sparse arrow p=2": ("sparse", "arrow", {}),
    "sparse parquet p=1.8 batches": ("sparse", "parquet", {"p": 1.8, "batch": 7, "ball": 20.0}),
    "dense arrow p=1.8": ("dense", "arrow", {"p": 1.8, "returns": "random"}),
    "dense parquet p=2": ("dense", "parquet", {"loss": "hinge", "returns": "average"}),
    "regression": ("regression", "arrow", {"loss": "squared", "sigma": 1e-3}),
}


@pytest.fixture(scope="module")
def unpaused(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bytes]]:
    """For each case the digest of λ and the returned weights of a run without a pause."""
    base = tmp_path_factory.mktemp("unpaused")
    results = {}
    for number, (name, (kind, file_format, options)) in enumerate(CASES.items()):
        report = streampgs.train(
            tables.path(kind, file_format), run=base / str(number), epochs=EPOCHS, **SMALL, **options
        )
        results[name] = (str(report.dual_sha256), numbers_of(base / str(number)))
    return results


def numbers_of(run: Path) -> bytes:
    model = streampgs.Model.load(run)
    return model.coef_.tobytes() + np.asarray(model.intercept_).tobytes()


pauses = st.lists(
    st.tuples(
        st.sampled_from(["rows", "stop", "cache deleted"]),
        st.integers(1, ROWS),
        st.sampled_from(["60MB", "512MB"]),
        st.sampled_from([1e-6, 30.0]),
    ),
    max_size=6,
)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(interruptions=pauses)
def test_any_sequence_of_pauses_gives_the_same_bits(
    name: str,
    interruptions: list[tuple[str, int, str, float]],
    tables: Tables,
    unpaused: dict[str, tuple[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    kind, file_format, options = CASES[name]
    run = tmp_path_factory.mktemp("run") / "run"
    rows = 1
    report = streampgs.train(tables.path(kind, file_format), run=run, rows=rows, **SMALL, **options)
    for what, number, memory, cadence in interruptions:
        if what == "rows":
            rows = report.rows + number
            report = streampgs.resume(run, rows=rows, epochs=EPOCHS, memory=memory, checkpoint_seconds=cadence)
        elif what == "stop":
            stop = StopRequest()
            observer = StopAfter(stop, 1 + number % 5)
            report = streampgs.resume(
                run, epochs=EPOCHS, observer=observer, stop=stop, memory=memory, checkpoint_seconds=1e-6
            )
        else:
            shutil.rmtree(run / "cache", ignore_errors=True)
    report = streampgs.resume(run, epochs=EPOCHS)
    assert (report.dual_sha256, numbers_of(run)) == unpaused[name]
    # A step takes whole batches, so a row limit may overshoot by less than one; epochs are exact.
    assert report.rows == EPOCHS * ROWS


@pytest.mark.parametrize(
    ("signals", "code"),
    [(["SIGINT"], 130), (["SIGTERM"], 143), (["SIGKILL"], -9), (["SIGINT", "SIGINT"], 130)],
    ids=str,
)
def test_real_signals(signals: list[str], code: int, tables: Tables, tmp_path: Path) -> None:
    """A second interrupt ends the process at once."""
    data, run = tables.path("sparse", "parquet"), tmp_path / "run"
    words = ["--window", "500kB", "--memory", "60MB", "--epochs", "5000", "--checkpoint-every", "0.05s", "--quiet"]
    command = [sys.executable, "-m", "streampgs", "train", str(data), "--run", str(run), *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(run.glob("checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    for one in signals:
        process.send_signal(getattr(signal, one))
    process.communicate(timeout=60)
    assert process.returncode == code
    rows = streampgs.Model.load(run).rows + 1
    quiet = streampgs.train(data, run=tmp_path / "quiet", rows=rows, epochs=5000, **SMALL)
    resumed = streampgs.resume(run, rows=rows)
    assert (resumed.rows, resumed.dual_sha256) == (rows, quiet.dual_sha256)


def test_the_cost_of_a_resume_is_one_window(tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume fills the window of the cursor and none before it."""
    from streampgs.reading import loader

    data = tables.path("sparse", "arrow")
    streampgs.train(data, run=tmp_path / "run", rows=2 * ROWS + 100, **SMALL)
    starts = []
    original = loader.WindowFiller.fill

    def fill(self: Any, plan: Any, memory: Any, meanwhile: Any) -> Any:
        starts.append((plan.start.epoch, plan.start.position))
        return original(self, plan, memory, meanwhile)

    monkeypatch.setattr(loader.WindowFiller, "fill", fill)
    streampgs.resume(tmp_path / "run", rows=2 * ROWS + 101)
    assert starts[0] == (2, 0)
    assert len(starts) <= 3  # that one, and those read ahead


def test_errors_in_the_middle_keep_the_progress(tables: Tables, tmp_path: Path) -> None:
    """A shard that disappears while training pauses the run at the last good row."""
    data = tmp_path / "table"
    shutil.copytree(tables.path("sparse", "arrow"), data)
    victim = data / "part-00003.arrow"

    class Remove(Observer):
        def choices(self, choices: dict[str, str]) -> None:
            victim.rename(tmp_path / "away")

    run = tmp_path / "run"
    with pytest.raises(streampgs.StreampgsError, match=r"part-00003\.arrow"):
        train_by_api(data, run, Remove())
    (tmp_path / "away").rename(victim)
    report = streampgs.resume(run, epochs=1)
    assert report.rows == ROWS
    expected = streampgs.train(data, run=tmp_path / "quiet", epochs=1, **SMALL)
    assert report.dual_sha256 == expected.dual_sha256


def test_a_shard_without_rows_may_disappear_in_the_middle_of_an_epoch(tables: Tables, tmp_path: Path) -> None:
    data, run, quiet = tmp_path / "table", tmp_path / "run", tmp_path / "quiet"
    shutil.copytree(tables.path("sparse", "parquet"), data)
    without_rows = data / "part-none.parquet"
    some = pq.read_table(next(data.iterdir()))
    with pq.ParquetWriter(without_rows, some.schema) as writer:
        writer.write_table(some.slice(0, 0))
    assert pq.ParquetFile(without_rows).num_row_groups == 1
    expected = streampgs.train(data, run=quiet, epochs=1, **SMALL)
    streampgs.train(data, run=run, rows=10, **SMALL)
    without_rows.unlink()
    assert streampgs.resume(run, epochs=1).dual_sha256 == expected.dual_sha256


def train_by_api(data: Path, run: Path, observer: Observer) -> None:
    from streampgs.options.commands import Limits, ModelOptions, Resources

    # So small a number of open files that the shard has to be opened again.
    resources = Resources(memory=60_000_000, window=500_000)
    import streampgs.reading.reused as open_files

    kept = open_files._OPEN_FILES
    open_files._OPEN_FILES = 1
    try:
        train_run([str(data)], run, TrainCall(ModelOptions(), limits=Limits(epochs=1), resources=resources), observer)
    finally:
        open_files._OPEN_FILES = kept
