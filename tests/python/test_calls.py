"""Functions of Python on rows in memory do the same as on files, and refuse other objects in words of Python."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import streampgs
from streampgs.base.errors import DataError, OptionError, RunError
from streampgs.model.inspection import inspect_run
from streampgs.run.folder import RunFolder

ROWS = 600
OPTIONS: dict[str, Any] = {"loss": "logistic", "sigma": 1e-3, "epochs": 2, "progress": False}


def frame(rows: int = ROWS, seed: int = 0) -> pandas.DataFrame:
    """A shuffled data frame: its index is not in order."""
    random = np.random.default_rng(seed)
    size, city = 40.0 + 9.0 * random.standard_normal(rows), random.choice(["Bern", "Oslo", "Rome"], rows)
    late = size + 6.0 * (city == "Rome") + 3.0 * random.standard_normal(rows) > 42.0
    table = pandas.DataFrame({"size": size, "city": city, "late": np.where(late, "yes", "no")})
    return table.sample(frac=1.0, random_state=seed)


FRAME, OTHER = frame(), frame(seed=1)
X = np.random.default_rng(2).standard_normal((ROWS, 4))
Y = (X @ [1.0, -1.0, 0.5, 0.0] > 0.2).astype(int)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a data frame."""
    folder = tmp_path_factory.mktemp("frame") / "run"
    streampgs.train(FRAME, run=folder, label="late", **OPTIONS)
    return folder


@pytest.fixture(scope="module")
def matrix_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on an array."""
    folder = tmp_path_factory.mktemp("matrix") / "run"
    streampgs.train(X, Y, run=folder, **OPTIONS)
    return folder


def digest(report: streampgs.python.api.Report) -> str:
    assert report.dual_sha256 is not None
    return report.dual_sha256


WAYS = {
    "pandas": lambda table: (table, None),
    "polars": lambda table: (polars.from_pandas(table), None),
    "pyarrow": lambda table: (pa.Table.from_pandas(table, preserve_index=False), None),
    "batches": lambda table: (iter(pa.Table.from_pandas(table, preserve_index=False).to_batches(100)), None),
    "duckdb": lambda table: (duckdb.from_arrow(pa.Table.from_pandas(table, preserve_index=False)), None),
    "columns": lambda table: (table.to_dict("list"), None),
    "rows": lambda table: (table.to_dict("records"), None),
    "labels apart": lambda table: (table.drop(columns="late"), table["late"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_evaluate_measures_rows_in_memory_like_files(way: str, run: Path, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pandas(OTHER, preserve_index=False), tmp_path / "other.parquet")
    data, labels = WAYS[way](OTHER)
    found = streampgs.evaluate(run, data, labels)
    assert found == streampgs.evaluate(run, tmp_path / "other.parquet")
    assert found["rows"] == ROWS
    assert found["accuracy"] > 0.8
    assert streampgs.evaluate(streampgs.Model.load(run), *WAYS[way](OTHER)) == found


def test_predict_returns_what_it_was_given(run: Path, matrix_run: Path, tmp_path: Path) -> None:
    unlabelled = OTHER.drop(columns="late")
    predicted = streampgs.predict(run, unlabelled)
    assert list(predicted.columns) == ["score", "prediction", "probability"]
    assert predicted.index.equals(OTHER.index)
    assert list(predicted["prediction"]) == list(streampgs.Model.load(run).predict(OTHER))
    assert streampgs.predict(run, polars.from_pandas(unlabelled)).equals(polars.from_pandas(predicted))
    as_arrow = streampgs.predict(run, pa.Table.from_pandas(unlabelled))
    assert as_arrow.to_pandas().equals(predicted.reset_index(drop=True))
    pq.write_table(pa.Table.from_pandas(unlabelled), tmp_path / "new.parquet")
    assert streampgs.predict(run, tmp_path / "new.parquet").equals(as_arrow)
    assert np.array_equal(streampgs.predict(matrix_run, X), streampgs.Model.load(matrix_run).predict(X))
    assert np.array_equal(streampgs.predict(matrix_run, sparse.csr_array(X)), streampgs.predict(matrix_run, X))
    probabilities = streampgs.Model.load(matrix_run).predict_proba(X)[:, 1]
    assert np.array_equal(streampgs.predict(matrix_run, X, threshold=0.9), (probabilities >= 0.9).astype(int))


def test_history_and_inspect_are_those_of_the_commands(run: Path) -> None:
    assert streampgs.history(run) == RunFolder(run).events()
    assert [event["event"] for event in streampgs.history(run)] == ["started", "stopped"]
    assert streampgs.inspect(run, top=3) == inspect_run(run, 3)


@pytest.mark.parametrize("array", ["label", "weight", "offset"])
def test_arrays_give_the_same_model_as_columns(array: str, tmp_path: Path) -> None:
    values = {"label": Y, "weight": 1.0 + Y, "offset": 0.5 * X[:, 0]}
    table = pandas.DataFrame(X, columns=list("abcd")).assign(label=Y)
    columns = {} if array == "label" else {array: array}
    whole = streampgs.train(table.assign(**{array: values[array]}), run=tmp_path / "a", **columns, **OPTIONS)
    rest = table.drop(columns="label") if array == "label" else table
    apart = streampgs.train(rest, run=tmp_path / "b", **{array: values[array]}, **OPTIONS)
    assert digest(apart) == digest(whole)
    matrix = streampgs.train(sparse.csr_matrix(X), Y, run=tmp_path / "c", **OPTIONS)
    if array != "label":
        arrays = {array: values[array]}
        assert digest(streampgs.train(sparse.csr_matrix(X), Y, run=tmp_path / "d", **arrays, **OPTIONS)) != digest(
            matrix
        )


def test_validation_rows_may_be_in_memory(tmp_path: Path) -> None:
    OTHER.to_parquet(tmp_path / "other.parquet", index=False)
    options = {**OPTIONS, "sigma": (1e-2, 1e-4), "label": "late"}
    of_file = streampgs.train(FRAME, run=tmp_path / "a", validation=tmp_path / "other.parquet", **options)
    of_frame = streampgs.train(FRAME, run=tmp_path / "b", validation=OTHER, **options)
    of_pair = streampgs.train(
        FRAME, run=tmp_path / "c", validation=(OTHER.drop(columns="late"), OTHER["late"]), **options
    )
    assert of_file.judged_loss is not None
    assert of_file.judged_loss == of_frame.judged_loss == of_pair.judged_loss
    shutil.copytree(tmp_path / "b", tmp_path / "moved")
    assert streampgs.resume(tmp_path / "b", epochs=3, progress=False).judged_loss is not None


def test_rows_in_memory_join_a_run(tmp_path: Path) -> None:
    OTHER.to_parquet(tmp_path / "other.parquet", index=False)
    for name in ("a", "b"):
        streampgs.train(FRAME, run=tmp_path / name, label="late", **OPTIONS)
    of_file = streampgs.resume(tmp_path / "a", add=tmp_path / "other.parquet", progress=False)
    of_frame = streampgs.resume(tmp_path / "b", add=OTHER, progress=False)
    assert of_frame.found.new_rows == ROWS
    assert of_frame.rows == of_file.rows > 2 * ROWS
    third = frame(100, seed=2)
    again = streampgs.resume(tmp_path / "b", add=(third.drop(columns="late"), third["late"]), progress=False)
    assert again.found.new_rows == 100
    assert streampgs.inspect(tmp_path / "b")["catalog"]["rows"] == 2 * ROWS + 100


def test_a_folder_of_the_user_is_not_replaced_by_rows_in_memory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(FRAME, run=run, label="late", **OPTIONS)
    (run / "data-2").mkdir()
    (run / "data-2" / "part-00000.arrow").write_text("precious")
    (run / "data-3").symlink_to(tmp_path)
    assert streampgs.resume(run, add=OTHER, progress=False).found.new_rows == ROWS
    assert (run / "data-2" / "part-00000.arrow").read_text() == "precious"
    assert sorted(each.name for each in run.glob("data-*")) == ["data-2", "data-3", "data-4"]


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda run: streampgs.train(X, Y), r"no folder for the run\n.*run='my-run'"),
        (lambda run: streampgs.train(X, Y, run=5), "run=5 is not a folder"),
        (lambda run: streampgs.train(X, run=run / "new"), r"a matrix without labels\n.*streampgs\.train\(X, y"),
        (lambda run: streampgs.train(X, Y[1:], run=run / "new"), "599 values for column 'label' and more rows"),
        (lambda run: streampgs.train(X, Y, run=run / "new", weight=[1.0, 2.0]), "2 values for column 'weight'"),
        (lambda run: streampgs.train(X, Y, run=run / "new", validation=X), r"validation is a matrix without labels"),
        (
            lambda run: streampgs.train("*.parquet", Y, run=run / "new"),
            "an array for 'label', but the rows are in files",
        ),
        (lambda run: streampgs.train(X, Y, run=run), r"exists already\n.*streampgs\.resume\('"),
        (lambda run: streampgs.train(X, Y, run=run / "new", epoch=1), r"unknown option 'epoch'\n.*did you mean epochs"),
        (lambda run: streampgs.train(X, Y, run=run / "new", progress="loud"), "progress='loud' is unknown"),
        (lambda run: streampgs.resume(run, add=X), r"add is a matrix without labels\n.*add=\(X, y\)"),
        (lambda run: streampgs.resume(run, epochs="many"), "epochs='many' is not"),
        (lambda run: streampgs.evaluate(run, X), r"the rows in memory have no label column 'label'\n.*labels="),
        (lambda run: streampgs.evaluate(run, X[:0], Y[:0]), "the table in memory has no rows"),
        (lambda run: streampgs.train(X[:0], Y[:0], run=run / "new"), "the table in memory has no rows"),
        (lambda run: streampgs.evaluate(run, X, Y, offset=X[:, 0]), "offset for a model that was trained without"),
        (lambda run: streampgs.evaluate(run, "*.parquet", Y), "label in addition to files"),
        (lambda run: streampgs.predict(run, X, keep="x"), "keep with a matrix"),
        (lambda run: streampgs.predict(run, X, "out.xlsx"), r"out='out\.xlsx' does not end in"),
        (lambda run: streampgs.history(run / "none"), r"there is no run .*\n.*streampgs\.train\("),
        (lambda run: streampgs.Model.load(run / "none"), r"there is no run .*\n.*streampgs\.train\("),
        (lambda run: streampgs.inspect(5), "cannot read rows from a int"),
    ],
)
def test_errors_name_arguments_of_python(call: Any, found: str, matrix_run: Path) -> None:
    with pytest.raises((OptionError, DataError, RunError), match=found) as refused:
        call(matrix_run)
    assert " --" not in str(refused.value)
    assert not (matrix_run / "new").exists() or not list((matrix_run / "new").glob("checkpoint*"))
