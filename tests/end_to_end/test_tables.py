"""Tables of ordinary columns, from file to prediction: files of other tools, all types of columns, and pauses."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streampgs
from streampgs.base.errors import DataError, StreampgsError
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.mixed_tables import mixed, replaced, without, write, write_shards

ROWS = 3_000
SMALL = {"memory": "60MB", "window": "300kB"}
TEXT = {"text": "text", "null_flags": True}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return mixed(ROWS)


@pytest.fixture(scope="module")
def shards(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same table as arrow, zstd and parquet, with the same order of rows and the same groups."""
    base = tmp_path_factory.mktemp("mixed")
    for file_format in ("arrow", "zstd", "parquet"):
        write_shards(table, base / file_format, file_format)
    return base


@pytest.fixture(scope="module")
def run(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the Parquet shards without pauses."""
    run = tmp_path_factory.mktemp("runs") / "run"
    streampgs.train(shards / "parquet", run=run, epochs=3, **SMALL, **TEXT)
    return run


def trained(data: Any, run: Path, **options: Any) -> Any:
    return streampgs.train(data, run=run, **{"epochs": 2, **SMALL, **options})


def weights_of(run: Path) -> bytes:
    return streampgs.Model.load(run).coef_.tobytes()


def same_model(data: list[Any], tmp_path: Path, **options: Any) -> str:
    """Train on each of these, check that all digests are equal, and return the digest."""
    found = {trained(one, tmp_path / f"run-{k}", **options).dual_sha256 for k, one in enumerate(data)}
    assert len(found) == 1
    return str(found.pop())


# Files written by other tools.


def test_all_formats_and_compressions_give_the_same_bits(shards: Path, tmp_path: Path) -> None:
    same_model([shards / name for name in ("arrow", "zstd", "parquet")], tmp_path, **TEXT)


def test_hive_folders_give_columns(table: pa.Table, tmp_path: Path) -> None:
    """A value in the name of a folder becomes a column: a number, a string, null, or the label."""
    for number, (label, year, place) in enumerate(
        [("yes", 2024, "a b"), ("no", 2025, "ü"), ("yes", 2026, None), ("no", 2024, "a b")]
    ):
        part = without(table.slice(500 * number, 500), "label")
        folder = "__HIVE_DEFAULT_PARTITION__" if place is None else place.replace(" ", "%20")
        write(
            part,
            tmp_path / "hive" / f"label={label}" / f"year={year}" / f"place={folder}" / "part.parquet",
            "parquet",
            500,
        )
        own = part.append_column("label", pa.array([label] * 500)).append_column("year", pa.array([year] * 500))
        own = own.append_column("place", pa.array([place] * 500, pa.string()))
        write(own, tmp_path / "own" / f"{label}-{year}-{number}.parquet", "parquet", 500)
    hive, own = sorted((tmp_path / "hive").rglob("*.parquet")), sorted((tmp_path / "own").glob("*.parquet"))
    assert len(hive) == len(own) == 4
    same_model([hive, own], tmp_path, text="text")
    model = streampgs.Model.load(tmp_path / "run-0")
    assert model.encoding is not None
    assert {"year", "place"} <= {column.name for column in model.encoding.columns}
    assert evaluate(model, [str(tmp_path / "hive")]) == evaluate(model, [str(tmp_path / "own")])


# Pauses.

pauses = st.lists(
    st.tuples(
        st.integers(1, ROWS),
        st.sampled_from(["60MB", "512MB"]),
        st.sampled_from([1e-6, 30.0]),
        st.sampled_from(["cache kept", "cache deleted"]),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(interruptions=pauses)
def test_any_sequence_of_pauses_gives_the_same_bits(
    file_format: str,
    interruptions: list[tuple[int, str, float, str]],
    shards: Path,
    run: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    paused = tmp_path_factory.mktemp("paused") / "run"
    report = streampgs.train(shards / file_format, run=paused, rows=1, **SMALL, **TEXT)
    for rows, memory, cadence, cache in interruptions:
        if cache == "cache deleted":
            shutil.rmtree(paused / "cache", ignore_errors=True)
        report = streampgs.resume(
            paused,
            rows=report.rows + rows,
            epochs=3,
            memory=memory,
            checkpoint_seconds=cadence,
        )
    report = streampgs.resume(paused, epochs=3)
    assert report.rows == 3 * ROWS
    assert weights_of(paused) == weights_of(run)
    assert report.dual_sha256 == streampgs.resume(run, epochs=3).dual_sha256


def test_later_shards_do_not_change_the_encoding(shards: Path, table: pa.Table, tmp_path: Path) -> None:
    """The new shard has other numbers and new words."""
    folder, run = tmp_path / "table", tmp_path / "run"
    shutil.copytree(shards / "parquet", folder)
    trained(folder, run, epochs=1, **TEXT)
    before = streampgs.Model.load(run).encoding
    later = replaced(table, "income", pc.multiply(table["income"], 1000.0))
    write(replaced(later, "text", pa.array(["unheard of words"] * ROWS)), folder / "part-9.parquet", "parquet")
    report = streampgs.resume(run, epochs=2)
    assert report.rows > 3 * ROWS
    after = streampgs.Model.load(run).encoding
    assert before is not None
    assert after is not None
    assert after.digest == before.digest


# Labels.


def accuracy(run: Path, data: Path) -> float:
    return float(evaluate(streampgs.Model.load(run), [str(data)])["accuracy"])


# Refusals.


def refusal(error: type[StreampgsError], data: Path | list[Path], run: Path, **options: Any) -> str:
    with pytest.raises(error) as refused:
        trained(data, run, **options)
    assert refused.value.remedy
    assert not list(run.glob("checkpoint-*"))
    return str(refused.value)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("city", lambda column: pa.array(range(len(column)))),
        ("age", lambda column: column.cast(pa.string())),
        ("joined", lambda column: column.cast(pa.int64())),
        ("tags", lambda column: pc.binary_join(column, " ")),
        ("label", lambda column: pc.equal(column, "yes")),
        ("label", None),
    ],
    ids=["string→int", "int→string", "time→int", "list→string", "label→bool", "label missing"],
)
def test_shards_with_other_columns_are_refused_by_name(
    column: str, change: Any, shards: Path, run: Path, table: pa.Table, tmp_path: Path
) -> None:
    """In training and in evaluation. Additional columns are ignored."""
    part = table.slice(0, 100)
    part = without(part, column) if change is None else replaced(part, column, change(part[column].combine_chunks()))
    other = write(part.append_column("more", pa.nulls(100)), tmp_path / "other.parquet", "parquet")
    message = refusal(DataError, [shards / "parquet", other], tmp_path / "run", **TEXT)
    assert column in message
    with pytest.raises(DataError) as refused:
        evaluate(streampgs.Model.load(run), [str(other)])
    assert f"'{column}'" in str(refused.value)
    assert "other.parquet" in str(refused.value)
    assert refused.value.remedy


# Shards that lack columns.


# Bad rows.


def test_bad_rows_are_refused_by_row_or_counted(table: pa.Table, tmp_path: Path) -> None:
    income = table["income"].to_numpy().copy()
    income[[700, 1_900]] = math.nan, math.inf
    scores = table["scores"].cast(pa.list_(pa.float32())).to_pylist()
    scores[2_500] = [1.0]
    labels = table["label"].to_pylist()
    labels[40] = None
    bad = replaced(
        replaced(replaced(table, "income", pa.array(income)), "scores", pa.array(scores)), "label", pa.array(labels)
    )
    data = write_shards(bad, tmp_path / "data")
    report = trained(data, tmp_path / "run", on_bad_row="skip", **TEXT)
    assert report.rows == 2 * (ROWS - 4)
    assert report.skipped_rows == {"feature not finite": 2, "width differs": 1, "label null": 1}
    faults = {
        "part-0": r"(row 40 of the file\): no label|row 700 of the file\): .*: nan of 'income')",  # whichever row is read first
        "part-1": r"row 900 of the file\): .*: inf of 'income'",
        "part-2": r"row 500 of the file\): another number of features than the rows before, in 'scores'",
    }
    for name, fault in faults.items():
        with pytest.raises(DataError, match=rf"{name}\.parquet.*{fault}") as refused:
            trained(data / f"{name}.parquet", tmp_path / name, **TEXT)
        assert "on_bad_row='skip'" in refused.value.remedy
    model = streampgs.Model.load(tmp_path / "run")
    assert evaluate(model, [str(data)], skip_bad_rows=True)["rows"] == ROWS - 4
    predict(model, [str(data)], tmp_path / "out.parquet", skip_bad_rows=True)
    predictions = pq.read_table(tmp_path / "out.parquet")["prediction"]
    assert [r for r, value in enumerate(predictions.to_pylist()) if value is None] == [700, 1_900, 2_500]
    assert set(predictions.to_pylist()) == {"yes", "no", None}


# Damage.


# Columns of different scales.


def test_columns_of_different_scales_do_not_cost_accuracy(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(6_000, 8))
    labels = pa.array((x @ random.normal(size=8) + random.normal(0, 0.5, 6_000) > 0).astype(np.int8))
    scales = 10.0 ** np.array([-6, 6, 0, -3, 3, -6, 6, 1])
    wild_rows = x * scales + scales * random.normal(size=8)
    tables = {
        "tame": pa.table({**{f"x{k}": x[:, k] for k in range(8)}, "label": labels}),
        "wild": pa.table({**{f"x{k}": wild_rows[:, k] for k in range(8)}, "label": labels}),
        "list": pa.table({"features": list(wild_rows), "label": labels}),
        "columns and list": pa.table({"x": wild_rows[:, 0], "l": list(wild_rows[:, 1:]), "label": labels}),
    }
    found = {}
    for name, table in tables.items():
        data = write_shards(table, tmp_path / name)
        trained(data, tmp_path / f"run-{name}")
        found[name] = accuracy(tmp_path / f"run-{name}", data)
    assert found["tame"] > 0.9
    assert all(abs(value - found["tame"]) < 0.01 for value in found.values()), found


# Predictions by column name, and the command line.


def test_every_command_works_on_a_table_of_columns(shards: Path, table: pa.Table, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out.csv"
    words = [
        "--text",
        "text",
        "--null-flags",
        "--epochs",
        "2",
        "--memory",
        "60MB",
        "--window",
        "300kB",
        "--positive",
        "yes",
    ]
    done = command("train", shards / "parquet", "--run", run, *words, "--ignore", "tags", "--json")
    assert done.code == 0, done.err
    expected = trained(shards / "parquet", tmp_path / "same", positive="yes", ignore="tags", **TEXT)
    assert done.json["dual_sha256"] == expected.dual_sha256
    assert "'yes'" in done.err  # the positive class is printed
    done = command("evaluate", run, shards / "arrow", "--json")
    assert done.json["accuracy"] > 0.8
    assert command("predict", run, shards / "parquet", "--out", out).code == 0
    lines = out.read_text().splitlines()
    assert len(lines) == ROWS + 1
    assert lines[0].replace('"', "").split(",") == ["score", "prediction", "probability"]
    assert {line.split(",")[1].strip('"') for line in lines[1:]} == {"yes", "no"}
    done = command("inspect", run, "--top", "5", "--json")
    names = [feature["name"] for feature in done.json["top"]]
    assert len(names) == 5
    assert "text: red" in names
    assert names[0] in command("inspect", run, "--top", "5").out
    done = command("inspect", shards / "parquet", "--ignore", "tags", "--text", "text", "--json")
    assert done.code == 0, done.err
    assert done.json["catalog"]["rows"] == ROWS
    assert "income" in done.json["encoding"]["columns"] + done.json["encoding"]["left out"]
