"""Kernel features work with everything that linear models work with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError, OptionError
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run
from streampgs.model.prediction import predict
from streampgs.python.estimators import StreamClassifier, StreamRegressor
from tests.end_to_end.conftest import Tables

SMALL: dict[str, Any] = {"window": "500kB", "memory": "60MB", "kernel_features": 64, "sigma": 1e-3}
RBF, POLYNOMIAL = {"kernel": "rbf", **SMALL}, {"kernel": "polynomial", **SMALL}


def checkerboard(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four by four fields: no linear model is better than a constant."""
    points = np.random.default_rng(seed).uniform(0.0, 4.0, (rows, 2))
    return points, points.astype(int).sum(axis=1) % 2


def board(path: Path, rows: int, seed: int, **more: Any) -> Path:
    points, colours = checkerboard(rows, seed)
    path.parent.mkdir(exist_ok=True, parents=True)
    columns = {"label": colours, "x": points[:, 0], "y": points[:, 1], "name": [f"n{k % 7}" for k in range(rows)]}
    pq.write_table(pa.table({**columns, **more}), path, row_group_size=500)
    return path


# Accuracy.


@pytest.mark.parametrize(("kernel", "least"), [("rbf", 0.9), ("polynomial", 0.75)])
def test_a_checkerboard_is_learned(kernel: str, least: float, tmp_path: Path) -> None:
    rows, test = board(tmp_path / "train" / "0.parquet", 6000, 0), board(tmp_path / "test" / "0.parquet", 1000, 1)
    own = {"gamma": 4.0, "kernel_features": 256} if kernel == "rbf" else {"degree": 8}
    streampgs.train(rows, run=tmp_path / "run", epochs=20, kernel=kernel, ignore="name", **own)
    model = streampgs.Model.load(tmp_path / "run")
    assert evaluate(model, [str(test)])["accuracy"] > least
    straight = {"numbers": "linear", "find_crosses": "off"}
    streampgs.train(rows, run=tmp_path / "linear", epochs=5, ignore="name", **straight)
    assert evaluate(streampgs.Model.load(tmp_path / "linear"), [str(test)])["accuracy"] < 0.6


# Pauses.


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("options", [RBF, POLYNOMIAL, {**RBF, "threads": 2, "sigma": (1e-3, 1e-2)}])
def test_a_pause_changes_nothing(tables: Tables, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    data = tables.path(kind, "parquet")
    whole = streampgs.train(data, run=tmp_path / "whole", epochs=2, **options)
    streampgs.train(data, run=tmp_path / "paused", rows=1, **options)
    for rows in (777, 5000, 6001):
        streampgs.resume(tmp_path / "paused", rows=rows)
    paused = streampgs.resume(tmp_path / "paused", epochs=2, memory="90MB")
    assert paused.dual_sha256 == whole.dual_sha256
    models = [streampgs.Model.load(tmp_path / name) for name in ("whole", "paused")]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert models[0].kernel is not None
    assert models[0].kernel.record == models[1].kernel.record  # type: ignore[union-attr]


# Results.


def test_every_way_to_score_a_row_gives_the_same(tmp_path: Path) -> None:
    rows = board(tmp_path / "train" / "0.parquet", 3000, 0)
    for kernel in (RBF, POLYNOMIAL):
        run = tmp_path / str(kernel["kernel"])
        streampgs.train(rows, run=run, epochs=2, **kernel)
        model = streampgs.Model.load(run)
        table = pq.read_table(rows)
        scores = model.decision_function(table)
        assert model.coef_.shape == (model.kernel.width,)  # type: ignore[union-attr]
        assert np.array_equal(model.decision_function(table.slice(17, 1)), scores[17:18])
        predict(model, [str(rows)], tmp_path / f"{run.name}.parquet")
        assert np.array_equal(pq.read_table(tmp_path / f"{run.name}.parquet")["score"].to_numpy(), scores)
        accuracy = np.mean((scores > 0.0) == (table["label"].to_numpy() > 0))
        assert evaluate(model, [str(rows)])["accuracy"] == pytest.approx(accuracy)


def test_inspection_names_the_kernel_and_its_products(tmp_path: Path) -> None:
    rows = board(tmp_path / "train" / "0.parquet", 2000, 0)
    streampgs.train(rows, run=tmp_path / "run", epochs=1, ignore="name", **POLYNOMIAL)
    found = inspect_run(tmp_path / "run", top=9)
    assert found["kernel"]["kernel"] == "polynomial"
    assert found["kernel"]["gamma"] == pytest.approx(0.5, rel=0.05)  # two standardized numbers
    assert found["features"] == found["kernel"]["features"] == 5
    assert {one["name"] for one in found["top"]} == {"x", "y", "x^2", "x × y", "y^2"}


@pytest.mark.parametrize("kernel", [RBF, POLYNOMIAL])
def test_tables_grow_with_new_columns_and_shards(tmp_path: Path, kernel: dict[str, Any]) -> None:
    board(tmp_path / "train" / "0.parquet", 2000, 0)
    run = tmp_path / "run"
    streampgs.train(tmp_path / "train", run=run, epochs=2, ignore="name", **kernel)
    before = streampgs.Model.load(run)
    height = np.random.default_rng(5).normal(size=1500)
    board(tmp_path / "train" / "1.parquet", 1500, 1, height=height)
    streampgs.resume(run, rows=5000)
    report = streampgs.resume(run, epochs=3)
    assert report.outcome == "trained"
    after = streampgs.Model.load(run)
    assert (before.features, after.features) == (2, 3)
    table = pq.read_table(tmp_path / "train" / "1.parquet")
    other = table.set_column(table.schema.get_field_index("height"), "height", pa.array(height + 1.0))
    assert not np.allclose(after.decision_function(table), after.decision_function(other))


def test_validation_rows_are_mapped(tmp_path: Path) -> None:
    rows, judge = board(tmp_path / "train" / "0.parquet", 3000, 0), board(tmp_path / "judge" / "0.parquet", 500, 1)
    own = {**RBF, "sigma": "auto", "gamma": 4.0, "kernel_features": 256}
    report = streampgs.train(rows, run=tmp_path / "run", epochs=6, validation=str(judge), ignore="name", **own)
    assert report.judged_accuracy is not None
    assert report.judged_accuracy > 0.75


# Estimators.


def test_estimators_take_kernels() -> None:
    points, colours = checkerboard(4000, 0)
    test, right = checkerboard(1000, 1)
    classifier = StreamClassifier(kernel="rbf", gamma=4.0, kernel_features=256, epochs=20).fit(points, colours)
    assert classifier.score(test, right) > 0.9
    regressor = StreamRegressor(kernel="polynomial", epochs=20).fit(points, points[:, 0] * points[:, 1])
    assert regressor.score(test, test[:, 0] * test[:, 1]) > 0.99


def test_partial_fit_keeps_the_kernel_of_its_first_rows() -> None:
    points, colours = checkerboard(3000, 0)
    test, _ = checkerboard(50, 1)
    estimator = StreamClassifier(kernel="rbf", gamma=4.0, kernel_features=256)
    for first in range(0, 3000, 500):
        estimator.partial_fit(points[first : first + 500], colours[first : first + 500], classes=[0, 1])
    assert estimator.score(points, colours) > 0.75
    assert estimator.decision_function(test[:1]) == pytest.approx(estimator.decision_function(test)[:1])


def test_rows_beyond_the_memory_budget_are_trained_on_from_files() -> None:
    points, colours = checkerboard(3000, 0)
    own: dict[str, Any] = {"kernel": "rbf", "gamma": 4.0, "kernel_features": 8192, "epochs": 2, "sigma": 1e-4}
    estimator = StreamClassifier(memory="60MB", **own).fit(points, colours)
    assert estimator._fitted.training is None
    assert estimator.score(points, colours) > 0.6


# Refusals.


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"gamma": 0.5}, "gamma without kernel"),
        ({"degree": 3}, "degree without kernel"),
        ({"kernel": "rbf", "degree": 3}, "degree with kernel='rbf'"),
        ({"kernel": "cosine"}, "kernel"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], found: str, tmp_path: Path) -> None:
    rows = board(tmp_path / "train" / "0.parquet", 100, 0)
    with pytest.raises(OptionError, match=found):
        streampgs.train(rows, run=tmp_path / "run", **options)


def test_rows_without_the_columns_of_the_model_are_refused(tmp_path: Path) -> None:
    points, colours = checkerboard(500, 0)
    streampgs.train(points, colours, run=tmp_path / "run", epochs=1, **RBF)
    with pytest.raises((DataError, OptionError), match="features"):
        streampgs.Model.load(tmp_path / "run").decision_function(np.ones((3, 5)))
