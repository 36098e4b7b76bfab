"""The memory budget on small machines, and runs that do not fit into memory."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import RunError
from streampgs.data.budget import Forecast
from streampgs.data.row_form import RowForm
from streampgs.encoding.encoding import Encoding
from streampgs.options.commands import DEFAULT_MEMORY, SMALLEST_MEMORY, ModelOptions, Resources
from streampgs.run import fitting
from streampgs.run.fitting import refuse_too_large, with_default_memory, with_memory_to_decode
from streampgs.run.folder import RunFolder
from streampgs.run.memory import Bound, rss_bytes

MB = 10**6
ROWS = 2_000


def group(limit: int, free: int | None = None) -> Bound:
    return Bound("the control group (container)", limit, limit if free is None else free)


# The default of --memory.


@pytest.mark.parametrize(
    ("limit", "memory"), [(64_000, 512), (2_048, 512), (2_000, 500), (400, 100), (100, SMALLEST_MEMORY / MB)]
)
def test_the_default_is_at_most_a_quarter_of_the_limit(limit, memory):
    notes: list[str] = []
    found = with_default_memory(Resources(), notes.append, bound=group(limit * MB))
    assert found.memory == memory * MB
    assert len(notes) == (found.memory < DEFAULT_MEMORY)


def test_a_given_budget_and_a_recorded_window_do_not_depend_on_the_machine():
    given = Resources(memory=300 * MB)
    assert with_default_memory(given, pytest.fail, bound=group(400 * MB)) is given
    assert with_default_memory(Resources(), pytest.fail, 300 * MB, group(400 * MB)).memory == 300 * MB


def test_a_table_whose_row_groups_take_much_to_decode_gets_more_than_the_default():
    notes: list[str] = []
    used = Resources(memory=DEFAULT_MEMORY)
    assert with_memory_to_decode(Resources(), used, 200 * MB, pytest.fail) is used
    assert with_memory_to_decode(used, used, 900 * MB, pytest.fail) is used  # it was given
    found = with_memory_to_decode(Resources(), used, 900 * MB, notes.append)
    assert (found.memory, len(notes)) == (DEFAULT_MEMORY + 900 * MB, 1)


def test_a_run_in_a_small_container_has_a_small_window(tmp_path, monkeypatch):
    table = pa.table({"x": np.arange(ROWS) % 7.0, "label": np.arange(ROWS) % 2})
    pq.write_table(table, tmp_path / "data.parquet")
    windows = {}
    for limit in (64_000, 2_048, 400):
        monkeypatch.setattr(fitting, "tightest", lambda limit=limit: group(limit * MB))
        streampgs.train(tmp_path / "data.parquet", run=tmp_path / str(limit), sigma=1e-3, epochs=1)
        windows[limit] = RunFolder(tmp_path / str(limit)).run_record().sizes.window_bytes
    assert windows[64_000] == windows[2_048] > windows[400]
    # The window of the large machine is recorded: it needs as much memory on the small one, which is there.
    assert streampgs.resume(tmp_path / "64000", epochs=2).rows == 2 * ROWS


def test_training_uses_the_memory_that_decoding_needs_and_tells_the_size_of_the_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fitting, "memory_to_decode", lambda size: DEFAULT_MEMORY + size)
    table = pa.table({"x": np.arange(ROWS) % 7.0, "label": np.arange(ROWS) % 2})
    pq.write_table(table, tmp_path / "data.parquet")
    streampgs.train(tmp_path / "data.parquet", run=tmp_path / "run", sigma=1e-3, epochs=2)
    assert "note: decoding a row group takes" in capsys.readouterr().err
    told = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert re.search(r"1 of 1 shard: decoded once, into [^\"]*cache \(about [\d.]+ [kM]?B\)", told), told


# Too large.


def forecast(model: int = 0, windows: int = 0) -> Forecast:
    return Forecast(rss_bytes(), windows, 0, 0, model)


def refusal(bound: Bound, found: Forecast, models: int = 1, resumed: bool = False, **given: Any) -> str:
    encoding: Encoding | None = given.pop("encoding", None)
    form = RowForm(ModelOptions(**given), encoding, "sparse")
    with pytest.raises(RunError) as refused:
        refuse_too_large(found, form, Resources(), models, resumed, 10, [bound])
    assert refused.value.remedy
    return str(refused.value)


def test_a_run_that_fits_is_not_refused():
    form = RowForm(ModelOptions(), None, "sparse")
    refuse_too_large(forecast(1_000 * MB), form, Resources(), 1, False, 10, [group(64_000 * MB)])
    refuse_too_large(forecast(1_000 * MB), form, Resources(), 1, False, 10, [])


def test_the_numbers_and_the_name_of_the_bound_are_in_the_error():
    message = refusal(group(64_000 * MB, 300 * MB), forecast(1_000 * MB))
    assert "1000MB for the model" in message
    assert "the control group (container), with 64000MB, has 300MB left" in message
    assert "10MB left" in refusal(group(10 * MB), forecast())  # the process alone is too large


def test_the_remedy_fits_the_cause():
    small, large = group(400 * MB), forecast(model=10_000 * MB)
    assert "--memory 3" in refusal(group(64_000 * MB, 300 * MB), forecast(windows=480 * MB))
    numbers = tuple(map(float, range(867)))
    assert "is 'delay' a number? Then predict it with --loss squared" in refusal(
        small, large, label="delay", classes=numbers, loss="logistic"
    )
    assert "fewer classes than 867" in refusal(small, large, classes=tuple(f"c{n:03}" for n in range(867)))
    assert "a known --sigma (8 models are trained now)" in refusal(small, large, models=8)
    assert "a --feature-count below 1,000,000" in refusal(small, large, feature_count=10**6)
    assert "--feature-count N if index 9 of a row is wrong" in refusal(small, large)
    assert "resume it where there is more memory" in refusal(small, large, resumed=True)


def test_a_model_beyond_the_address_space_is_refused_before_the_first_row(tmp_path):
    """In a process of its own, with `ulimit -v`; afterwards the folder can be used for a smaller model."""
    ids = np.random.default_rng(1).integers(0, 10**9, (ROWS, 60))
    texts = [" ".join(map(str, row)) for row in ids.tolist()]
    pl.DataFrame({"text": texts, "delay": ids[:, 0] % 800}).write_parquet(tmp_path / "data.parquet")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "streampgs", "train", "data.parquet", "--run", "run", "--label", "delay"]

    def limited(*more: str) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (4_000 * MB, 4_000 * MB))

        return subprocess.run(
            [*command, "--text", "text", "--sigma", "1e-3", "--epochs", "1", *more],
            cwd=tmp_path, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    refused = limited("--classes", "auto")
    assert refused.returncode == 1
    assert "ulimit -v, with 4000MB, has" in refused.stderr
    assert "--loss squared" in refused.stderr
    assert not list(Path(run).glob("checkpoint-*"))
    done = limited("--hash-bits", "27", "--loss", "squared")  # a large space takes no memory
    assert done.returncode == 0, done.stderr
