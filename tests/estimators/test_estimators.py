"""Estimators: the same rows give the same model, however they are given; and weights count like repeated rows."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.base import clone

import streampgs
from streampgs import StreamClassifier, StreamRegressor

ROWS, FEATURES = 120, 5


def numbers(rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    chance = np.random.default_rng(seed)
    matrix = chance.normal(size=(rows, FEATURES)) * [1, 10, 0.1, 3, 1] + [0, 5, 1, -2, 0]
    labels = (matrix @ [1.0, -0.2, 3.0, 0.5, 0.0] + chance.normal(size=rows) > 1.0).astype(int)
    return matrix, labels


def mixed_table(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    chance = np.random.default_rng(3)
    colors = chance.choice(["red", "green", "blue"], rows)
    size = np.where(chance.random(rows) < 0.1, np.nan, chance.normal(100.0, 15.0, rows))
    labels = np.where((colors == "red") ^ (chance.random(rows) < 0.05), "yes", "no")
    return pd.DataFrame({"color": colors, "size": size, "on": chance.random(rows) < 0.5}), labels


def bits(model: Any) -> bytes:
    return model.coef_.tobytes() + np.asarray(model.intercept_).tobytes()


# The same rows in other containers.


def fitted_to(rows: Any, labels: Any, **options: Any) -> StreamClassifier:
    return StreamClassifier(sigma=0.01, epochs=3, **options).fit(rows, labels)


MATRIX, LABELS = numbers()
NAMES = list("abcde")
DENSE = {
    "rows of Fortran": lambda: np.asfortranarray(MATRIX),
    "lists": MATRIX.tolist,
    "pandas": lambda: pd.DataFrame(MATRIX, columns=NAMES, index=np.arange(ROWS) + 7),
    "polars": lambda: pl.DataFrame(MATRIX, schema=NAMES),
    "pyarrow": lambda: pa.table(dict(zip(NAMES, MATRIX.T, strict=True))),
    "chunks of pyarrow": lambda: pa.concat_tables(
        pa.table(dict(zip(NAMES, part.T, strict=True))) for part in np.split(MATRIX, [1, 40])
    ),
}


@pytest.mark.parametrize("kind", DENSE)
def test_dense_rows_in_any_container_give_the_same_bits(kind: str) -> None:
    model = fitted_to(DENSE[kind](), LABELS)
    assert bits(model) == bits(fitted_to(MATRIX, LABELS))
    assert (
        model.decision_function(DENSE[kind]()).tobytes()
        == fitted_to(MATRIX, LABELS).decision_function(MATRIX).tobytes()
    )


SPARSE_ROWS = sparse.random(80, 40, 0.2, "csr", rng=np.random.default_rng(1))
SPARSE_LABELS = np.asarray(SPARSE_ROWS.sum(axis=1)).ravel() > 4.0


def wide_indices() -> Any:
    rows = SPARSE_ROWS.copy()
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


def with_stored_zeros() -> Any:
    rows = SPARSE_ROWS.tocoo()
    places = np.concatenate([rows.row, [0]]), np.concatenate([rows.col, [0]])
    zero = 0.0 if SPARSE_ROWS[0, 0] == 0.0 else pytest.fail("the first cell has a number")
    return sparse.csr_matrix((np.concatenate([rows.data, [zero]]), places), shape=rows.shape)


@pytest.mark.parametrize(
    "container",
    [sparse.csc_array, sparse.coo_matrix, sparse.csr_matrix, lambda _: wide_indices(), lambda _: with_stored_zeros()],
)
def test_sparse_rows_in_any_container_give_the_same_bits(container: Any) -> None:
    model = fitted_to(container(SPARSE_ROWS), SPARSE_LABELS)
    assert bits(model) == bits(fitted_to(SPARSE_ROWS, SPARSE_LABELS))
    np.testing.assert_allclose(
        model.decision_function(container(SPARSE_ROWS)), model.decision_function(SPARSE_ROWS.toarray()), rtol=1e-9
    )


# Weights, order and repetition.


def test_the_order_of_the_rows_changes_nothing() -> None:
    order = np.random.default_rng(5).permutation(ROWS)
    assert bits(fitted_to(MATRIX[order], LABELS[order])) == bits(fitted_to(MATRIX, LABELS))


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array, lambda m: pd.DataFrame(m, columns=NAMES)])
@pytest.mark.parametrize(
    "estimator", [StreamClassifier(), StreamRegressor(), StreamClassifier(class_weight="balanced")]
)
def test_a_weight_counts_like_repeated_rows(estimator: Any, as_rows: Any) -> None:
    weights = np.random.default_rng(6).integers(0, 5, ROWS)
    repeated = np.repeat(np.arange(ROWS), weights)
    weighted = clone(estimator).fit(as_rows(MATRIX), LABELS, sample_weight=weights)
    assert bits(weighted) == bits(clone(estimator).fit(as_rows(MATRIX[repeated]), LABELS[repeated]))
    assert bits(weighted) != bits(clone(estimator).fit(as_rows(MATRIX), LABELS))


# Tables.


@pytest.mark.parametrize("container", [lambda t: t, pl.from_pandas, lambda t: pa.Table.from_pandas(t)])
def test_a_table_of_strings_and_gaps_just_works(container: Any) -> None:
    table, labels = mixed_table()
    model = StreamClassifier().fit(container(table), labels)
    assert model.score(container(table), labels) > 0.9
    assert model.predict(container(table[:3])).tolist() == model.predict(container(table)).tolist()[:3]
    assert model.feature_names_in_.tolist() == ["color", "size", "on"]
    assert bits(model) == bits(StreamClassifier().fit(table, labels))


# Weights of features.


def test_coefficients_are_in_the_units_of_the_columns() -> None:
    model = fitted_to(MATRIX, LABELS)
    expected = MATRIX @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(MATRIX), expected, rtol=1e-4, atol=1e-5)


# Labels and options.


@pytest.mark.parametrize(
    "container",
    [
        np.ndarray.tolist,
        pd.Series,
        lambda y: pd.Series(y, dtype="Int64"),
        lambda y: pd.Series(y, dtype="category"),
        pl.Series,
        pa.array,
        lambda y: pa.chunked_array([y[:7], y[7:]]),
    ],
)
def test_labels_in_any_container_give_the_same_bits(container: Any) -> None:
    for estimator in (StreamClassifier(epochs=2), StreamRegressor(epochs=2)):
        expected = bits(clone(estimator).fit(MATRIX, LABELS))
        assert bits(estimator.fit(MATRIX, container(LABELS))) == expected


# Side effects.


def test_rows_in_memory_leave_no_files_and_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted_to(MATRIX, LABELS)  # loads what every fit needs
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    threads = threading.active_count()
    table, labels = mixed_table()
    StreamClassifier().fit(table, labels).partial_fit(table, labels)
    assert threading.active_count() == threads
    assert list(tmp_path.iterdir()) == []


def test_threads_are_deterministic_and_end() -> None:
    rows, labels = numbers(60_000)
    fits = [StreamClassifier(sigma=1e-4, threads=2).fit(rows, labels) for _ in range(2)]
    assert bits(fits[0]) == bits(fits[1]) != bits(StreamClassifier(sigma=1e-4).fit(rows, labels))
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("streampgs")]


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_failed_fit_leaves_the_model_before(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted_to(MATRIX, LABELS)
    before, scores = bits(model), model.decision_function(MATRIX)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streampgs.run.models.Models.judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(model, method)(10.0 * MATRIX, LABELS)
    assert bits(model) == before
    assert (model.decision_function(MATRIX) == scores).all()


# Copies.


@pytest.mark.parametrize("rows", ["numbers", "mixed"])
def test_a_pickled_estimator_is_the_same_and_continues_the_same(rows: str, tmp_path: Path) -> None:
    table, labels = (MATRIX, LABELS) if rows == "numbers" else mixed_table()
    model = StreamClassifier().partial_fit(table, labels, np.unique(labels))
    joblib.dump(model, tmp_path / "model")
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), joblib.load(tmp_path / "model")):
        assert bits(again) == bits(model)
        assert (again.predict_proba(table) == model.predict_proba(table)).all()
        assert bits(again.partial_fit(table, labels)) == bits(copy.deepcopy(model).partial_fit(table, labels))


# More rows.


def trained_in(parts: int, rows: Any = MATRIX, model: Any = None) -> Any:
    model = StreamClassifier(sigma=0.01) if model is None else model
    for part in np.array_split(np.arange(len(LABELS)), parts):
        model.partial_fit(rows[part[0] : part[-1] + 1], LABELS[part], classes=[0, 1])
    return model


def test_partial_fit_continues_and_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streampgs.python.estimators.base._ENOUGH_ROWS", 25)
    assert bits(trained_in(4)) == bits(trained_in(4)) != bits(trained_in(3))
    once = trained_in(1)
    assert once._fitted.waiting is None
    before = bits(once)
    assert bits(once.partial_fit(MATRIX, LABELS)) != before


@pytest.mark.parametrize(
    "rows", [MATRIX, sparse.csr_array(MATRIX), pd.DataFrame(MATRIX, columns=NAMES), mixed_table(ROWS)[0]]
)
@pytest.mark.parametrize("enough", [ROWS, 10**6])
def test_the_first_rows_give_the_same_bits_in_any_number_of_calls(
    rows: Any, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streampgs.python.estimators.base._ENOUGH_ROWS", enough)
    once = trained_in(1, rows)
    for parts in (2, 7, ROWS):
        model = trained_in(parts, rows)
        assert bits(model) == bits(once)
        assert (model._fitted.waiting is None) == (enough == ROWS)
        copied = pickle.loads(pickle.dumps(model))
        assert bits(copied.partial_fit(rows, LABELS)) == bits(model.partial_fit(rows, LABELS)) != bits(once)


def test_partial_fit_after_fit_continues() -> None:
    model = fitted_to(MATRIX, LABELS)
    coef = model.coef_
    model.partial_fit(MATRIX[:1], LABELS[:1])
    assert 0.0 < np.abs(model.coef_ - coef).max() < 0.1 * np.abs(coef).max()


def test_partial_fit_takes_classes_that_the_first_rows_lack() -> None:
    model = StreamClassifier().partial_fit(MATRIX[:3], ["a", "b", "a"], classes=["a", "b", "c"])
    model.partial_fit(MATRIX[:3], ["c", "c", "b"])
    assert model.decision_function(MATRIX).shape == (ROWS, 3)
    with pytest.raises(ValueError, match="'d' is not one of the classes"):
        model.partial_fit(MATRIX[:1], ["d"])
    with pytest.raises(ValueError, match="without classes"):
        StreamClassifier().partial_fit(MATRIX, LABELS)


# Files.


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    table, labels = mixed_table(600)
    (tmp_path / "shards").mkdir()
    for number, part in enumerate(np.array_split(np.arange(600), 3)):
        pq.write_table(
            pa.Table.from_pandas(table.iloc[part].assign(bought=labels[part])), tmp_path / f"shards/{number}.parquet"
        )
    return tmp_path / "shards"


def test_shards_are_trained_on_as_a_run_that_can_be_resumed(shards: Path, tmp_path: Path) -> None:
    table, labels = mixed_table(600)
    model = StreamClassifier(epochs=2).fit(shards=str(shards), label="bought", run=tmp_path / "run")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.score(table, labels) > 0.9
    assert (model.predict(table) == streampgs.Model.load(tmp_path / "run").predict(table)).all()
    before = bits(model)
    assert bits(model.resume(epochs=4)) != before
    assert bits(model) == bits(pickle.loads(pickle.dumps(model)))
    later = pa.Table.from_pandas(table.assign(bought="yes", color="black"))
    pq.write_table(later, shards / "later.parquet")
    assert set(model.resume(epochs=9).predict(later)) == {"yes"}


@pytest.mark.parametrize("kind", ["dense", "sparse", "table"])
def test_rows_beyond_the_memory_budget_are_trained_on_from_files(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, labels = mixed_table()
    rows, meant = {"dense": (MATRIX, LABELS), "sparse": (SPARSE_ROWS, SPARSE_LABELS), "table": (table, labels)}[kind]
    weights = np.arange(len(meant)) % 2 + 0.5
    monkeypatch.setattr("streampgs.python.estimators.base.bytes_in_memory", lambda given: 10**12)
    model = StreamClassifier(epochs=5).fit(rows, meant, sample_weight=weights)
    monkeypatch.undo()
    in_memory = StreamClassifier(epochs=5).fit(rows, meant, sample_weight=weights)
    assert model.coef_.shape == in_memory.coef_.shape
    assert (model.predict(rows) == in_memory.predict(rows)).mean() > 0.8
    with pytest.raises(ValueError, match="partial_fit after a fit that trained from files"):
        model.partial_fit(rows, meant)


# Without scikit-learn.


def test_scikit_learn_is_imported_only_for_estimators() -> None:
    code = "import sys, streampgs, streampgs.python.api, streampgs.cli; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_scikit_learn_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import streampgs; streampgs.StreamClassifier"
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'scikit-learn>=1.6'" in found.stderr
