"""Counts and offsets: a Poisson model agrees with scikit-learn's, and offsets reach every place where scores are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict

FEATURES = 8
NAMES = [f"x{number}" for number in range(FEATURES)]


def counts(rows: int, seed: int, rate: float = 0.2) -> pa.Table:
    """Counts in proportion to an exposure that varies by a factor of 20."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, FEATURES))
    exposure = random.uniform(0.1, 2.0, rows)
    mean = rate * exposure * np.exp(x @ np.linspace(-0.4, 0.4, FEATURES))
    columns: dict[str, Any] = {name: x[:, number] for number, name in enumerate(NAMES)}
    return pa.table({**columns, "log_exposure": np.log(exposure), "label": random.poisson(mean)})


def matrix(table: pa.Table) -> Any:
    return np.column_stack([table[name].to_numpy() for name in NAMES])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counts")
    pq.write_table(counts(20_000, 1), folder / "train.parquet", row_group_size=1_000)
    pq.write_table(counts(5_000, 2), folder / "test.parquet", row_group_size=1_000)
    return folder


@pytest.fixture(scope="module")
def run(table: Path) -> Path:
    streampgs.train(table / "train.parquet", run=table / "run", loss="poisson", offset="log_exposure", epochs=5)
    return table / "run"


def test_an_exposure_model_is_as_good_as_that_of_scikit_learn(table: Path, run: Path) -> None:
    """The held-out deviance differs by less than half a percent."""
    train, test = (pq.read_table(table / f"{name}.parquet") for name in ("train", "test"))
    exposure = np.exp(train["log_exposure"].to_numpy())
    reference = PoissonRegressor(alpha=1e-4, max_iter=1_000)
    reference.fit(matrix(train), train["label"].to_numpy() / exposure, sample_weight=exposure)
    expected = reference.predict(matrix(test)) * np.exp(test["log_exposure"].to_numpy())
    labels = test["label"].to_numpy()
    found = evaluate(streampgs.Model.load(run), [str(table / "test.parquet")])["deviance"]
    assert found == pytest.approx(mean_poisson_deviance(labels, expected), rel=0.005)
    assert found < 0.95 * mean_poisson_deviance(labels, np.full(len(labels), labels.mean()))


@pytest.mark.parametrize("rate", [0.01, 300.0])
def test_rare_events_and_large_counts_are_learned_without_tuning(rate: float, tmp_path: Path) -> None:
    pq.write_table(counts(20_000, 3, rate), tmp_path / "train.parquet", row_group_size=1_000)
    pq.write_table(counts(100_000, 4, rate), tmp_path / "test.parquet", row_group_size=10_000)
    streampgs.train(tmp_path / "train.parquet", run=tmp_path / "run", loss="poisson", offset="log_exposure", epochs=10)
    test = pq.read_table(tmp_path / "test.parquet")
    exposure, labels = np.exp(test["log_exposure"].to_numpy()), test["label"].to_numpy()
    constant = mean_poisson_deviance(labels, exposure * labels.sum() / exposure.sum())
    true = mean_poisson_deviance(labels, rate * exposure * np.exp(matrix(test) @ np.linspace(-0.4, 0.4, FEATURES)))
    found = evaluate(streampgs.Model.load(tmp_path / "run"), [str(tmp_path / "test.parquet")])["deviance"]
    assert found - true < 0.2 * (constant - true)


def test_predictions_are_expected_counts_in_files_tables_and_arrays(table: Path, run: Path) -> None:
    model, test = streampgs.Model.load(run), pq.read_table(table / "test.parquet")
    expected = model.predict(test)
    np.testing.assert_allclose(expected, np.exp(model.decision_function(test)), rtol=1e-12)
    assert predict(model, [str(table / "test.parquet")], table / "out.parquet")["rows"] == 5_000
    written = pq.read_table(table / "out.parquet")
    np.testing.assert_allclose(written["prediction"].to_numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(written["score"].to_numpy(), np.log(expected), rtol=1e-6, atol=1e-9)
    result = evaluate(model, [str(table / "test.parquet")])
    assert result["deviance"] == pytest.approx(mean_poisson_deviance(test["label"].to_numpy(), expected), rel=1e-6)
    assert result["mse"] == pytest.approx(np.mean((test["label"].to_numpy() - expected) ** 2), rel=1e-6)
    twice = test.set_column(test.column_names.index("log_exposure"), "log_exposure", [np.full(5_000, np.log(2.0))])
    once = test.set_column(test.column_names.index("log_exposure"), "log_exposure", [np.zeros(5_000)])
    np.testing.assert_allclose(model.predict(twice), 2.0 * model.predict(once), rtol=1e-12)


def test_offsets_of_classes_are_log_odds_that_are_known(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    x, known = random.normal(size=4_000), 2.0 * random.normal(size=4_000)
    labels = np.where(random.random(4_000) < 1.0 / (1.0 + np.exp(-(x + known))), 1, -1)
    data = pa.table({"label": labels, "x": x, "known": known, "nothing": np.zeros(4_000)})
    pq.write_table(data, tmp_path / "a.parquet")
    with_offset = streampgs.train(
        tmp_path / "a.parquet", run=tmp_path / "with", offset="known", ignore="nothing", epochs=3
    )
    streampgs.train(tmp_path / "a.parquet", run=tmp_path / "without", ignore=("known", "nothing"))
    model = streampgs.Model.load(tmp_path / "with")
    result = evaluate(model, [str(tmp_path / "a.parquet")])
    assert with_offset.rows == 12_000
    assert result["log_loss"] == pytest.approx(log_loss(labels, model.predict_proba(data)[:, 1]), rel=1e-6)
    assert result["log_loss"] == pytest.approx(log_loss(labels, 1.0 / (1.0 + np.exp(-(x + known)))), rel=0.01)
    without = evaluate(streampgs.Model.load(tmp_path / "without"), [str(tmp_path / "a.parquet")])
    assert result["log_loss"] < without["log_loss"] - 0.1
