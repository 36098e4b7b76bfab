"""`streampgs predict`: the columns of its output, and that no file is lost or left half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import streampgs
from streampgs.model.prediction import predict
from tests.end_to_end.commands import streampgs as command

ROWS = 1_200
LEFTOVERS = ".streampgs-writing-*"


def people(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age, city = random.integers(18, 80, rows), random.choice(["Rome", "Oslo", "Bern"], rows)
    return pd.DataFrame(
        {
            "id": np.arange(rows) + 10_000 * seed,
            "name": [f"person {number}" if number % 7 else None for number in range(rows)],
            "age": age,
            "city": pd.Categorical(city),
            "tags": [[number, number + 1] for number in range(rows)],
            "joined": pd.Timestamp("2026-01-01") + pd.to_timedelta(random.integers(0, 9, rows), "h"),
            "buys": age + 20.0 * (city == "Rome") + random.normal(0.0, 9.0, rows) > 50.0,
        }
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("people")
    people().to_parquet(base / "train.parquet")
    streampgs.train(
        str(base / "train.parquet"), run=base / "run", label="buys", epochs=2, ignore=("id", "name", "tags", "joined")
    )
    return base


@pytest.fixture
def model(base: Path) -> streampgs.Model:
    return streampgs.Model.load(base / "run")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Files of several tools and formats; one lacks a column."""
    folder = tmp_path / "table"
    folder.mkdir()
    people(500, 1).to_parquet(folder / "a.parquet", row_group_size=130)
    pl.from_pandas(people(300, 2)).write_parquet(folder / "b.parquet")
    pl.from_pandas(people(200, 3)).write_ipc(folder / "c.arrow")
    people(100, 4).drop(columns="name").to_parquet(folder / "d.parquet")
    return folder


def read(path: Path) -> pa.Table:
    if path.suffix == ".csv":
        return csv.read_csv(path)
    return pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()


# Columns.


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_kept_columns_are_beside_the_prediction_of_their_row(
    model: streampgs.Model, table: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"out{ending}"
    assert predict(model, [str(table)], out, keep=("id", "city", "name"))["rows"] == 1_100
    found = read(out)
    assert found.column_names == ["id", "city", "name", "score", "prediction", "probability"]
    whole = pd.concat([people(500, 1), people(300, 2), people(200, 3), people(100, 4)])
    assert found["id"].to_pylist() == whole["id"].tolist()
    assert found["city"].to_pylist() == whole["city"].tolist()
    names = [name if isinstance(name, str) else None for name in whole["name"]][:1_000] + [None] * 100
    assert [name or None for name in found["name"].to_pylist()] == names
    expected = model.predict_proba(pa.Table.from_pandas(whole[["age", "city"]], preserve_index=False))[:, 1]
    np.testing.assert_allclose(found["probability"].to_numpy(), expected, rtol=1e-6)


LABELS = {
    "boolean": (np.array([False, True]), pa.bool_()),
    "integers": (np.array([0, 1]), pa.int64()),
    "small integers": (np.array([1, 2], np.int8), pa.int64()),
    "three integers": (np.array([3, 5, 9]), pa.int64()),
    "floats": (np.array([0.0, 1.0]), pa.float64()),
    "strings": (np.array(["no", "yes"]), pa.string()),
    "dictionary": (pd.Categorical(["no", "yes"]), pa.string()),
}


@pytest.mark.parametrize("name", LABELS)
def test_predictions_have_the_type_of_the_labels(name: str, tmp_path: Path) -> None:
    values, expected = LABELS[name]
    random = np.random.default_rng(3)
    chosen = random.integers(0, len(values), 600)
    frame = pd.DataFrame({"x": chosen + random.normal(0.0, 0.3, 600), "y": values[chosen]})
    frame["z"] = (chosen == 1).astype(float)
    frame.to_parquet(tmp_path / "data.parquet")
    streampgs.train(str(tmp_path / "data.parquet"), run=tmp_path / "run", label="y", epochs=2)
    model = streampgs.Model.load(tmp_path / "run")
    predict(model, [str(tmp_path / "data.parquet")], tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["prediction"]
    assert found.type == expected
    assert set(found.to_pylist()) <= set(values.tolist())
    assert np.mean(np.array(found.to_pylist()) == np.asarray(values)[chosen]) > 0.8
    assert model.predict(frame).tolist() == found.to_pylist()


# Files.


def test_a_file_is_on_disk_before_it_has_its_name(
    model: streampgs.Model, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a file with its name must not be empty."""
    done, real = [], {name: getattr(os, name) for name in ("fsync", "link")}

    def noted(name: str) -> Any:
        def call(*words: Any) -> Any:
            done.append((name, (tmp_path / "out.csv").exists()))
            return real[name](*words)

        return call

    for name in real:
        monkeypatch.setattr(os, name, noted(name))
    predict(model, [str(table)], tmp_path / "out.csv")
    assert done == [("fsync", False), ("link", False), ("fsync", True)]


def test_existing_files_are_kept_unless_forced(base: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("precious")
    refused = command("predict", base / "run", table, "--out", out)
    assert (refused.code, out.read_text()) == (2, "precious")
    assert "--force" in refused.err
    assert command("predict", base / "run", table, "--out", out, "--force").code == 0
    assert read(out).num_rows == 1_100


def test_inputs_and_files_of_the_run_are_never_overwritten(model: streampgs.Model, base: Path, table: Path) -> None:
    (table / "link.csv").symlink_to(table / "a.parquet")
    (table.parent / "hard.parquet").hardlink_to(table / "a.parquet")
    before = {path: path.read_bytes() for path in (*table.iterdir(), *base.iterdir()) if path.is_file()}
    for out, message in (
        (table / "a.parquet", "is a file of DATA"),
        (table.parent / "hard.parquet", "is a file of DATA"),
        (table / "link.csv", "is a file of DATA"),
        (base / "train.parquet", "trained on"),
        (table / "new.parquet", "would be read as a shard"),
        (table / "new.arrow", "would be read as a shard"),
        (base / "run" / "new.csv", "folder of the run"),
    ):
        with pytest.raises(streampgs.StreampgsError, match=message):
            predict(model, [str(table)], out, force=True)
    with pytest.raises(streampgs.StreampgsError, match="would be read as a shard"):
        predict(model, [f"{table}/*.parquet"], table / "new.parquet")
    with pytest.raises(streampgs.StreampgsError, match="object store"):
        predict(model, [str(table)], Path("s3://bucket/out.parquet"))
    after = {path: path.read_bytes() for path in (*table.iterdir(), *base.iterdir()) if path.is_file()}
    assert before == after


def test_two_processes_with_one_output_file(base: Path, tmp_path: Path) -> None:
    """One of them writes it, the other fails, and the file is whole."""
    people(60_000, 6).to_parquet(tmp_path / "many.parquet")
    words = [sys.executable, "-m", "streampgs", "predict", base / "run", tmp_path / "many.parquet"]
    both = [
        subprocess.Popen([*words, "--out", tmp_path / "out.parquet"], stderr=subprocess.PIPE, text=True) for _ in "12"
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    codes = sorted(code for _, code in ended)
    assert codes == [0, 2]
    assert any("exists already" in text for text, _ in ended)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 60_000
    assert not [*tmp_path.glob(LEFTOVERS)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_leaves_no_result_and_the_next_one_cleans_up(
    base: Path, model: streampgs.Model, table: Path, tmp_path: Path, number: signal.Signals
) -> None:
    people(200_000, 7)[["id", "age", "city"]].to_parquet(tmp_path / "many.parquet", row_group_size=2_000)
    folder = tmp_path / "outputs"
    folder.mkdir()
    words = [sys.executable, "-m", "streampgs", "predict", base / "run", tmp_path / "many.parquet"]
    with subprocess.Popen([*words, "--out", folder / "out.csv"], stderr=subprocess.DEVNULL) as process:
        while not [one for one in folder.iterdir() if one.stat().st_size] and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(number)
        code = process.wait(60)
    assert not (folder / "out.csv").exists()
    assert code == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    assert len([*folder.glob(LEFTOVERS)]) == (1 if number == signal.SIGKILL else 0)
    predict(model, [str(table)], folder / "other.csv")
    assert [one.name for one in folder.iterdir()] == ["other.csv"]
