"""Solvers that change their weights once per epoch: --solver l-bfgs and gradient-descent."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import minimize

import streampgs
from streampgs.losses import LOSSES
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run
from streampgs.run.saved import saved_run

SMALL: dict[str, Any] = {"window": "60kB", "memory": "60MB"}
SOLVERS: dict[str, dict[str, Any]] = {
    "l-bfgs": {"solver": "l-bfgs", "sigma": 1e-3, **SMALL},
    "gradient-descent": {"solver": "gradient-descent", "sigma": 1e-3, "step": 0.5, **SMALL},
}
TABLE = {0: 700, 1: 700, 2: 700}
"""Rows of each shard, by its seed."""
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def rows_of(rows: int, seed: int, classes: int = 2, features: int = 30) -> tuple[Any, Any]:
    chance = np.random.default_rng(seed)
    truth = np.random.default_rng(9).normal(size=(5, 60))[:classes, :features]
    x = (chance.normal(size=(rows, features)) * (chance.random((rows, features)) < 0.3)).astype(np.float32)
    scores = x @ truth.T + chance.normal(size=(rows, classes))
    return x, scores.argmax(axis=1).astype(float) if classes > 2 else np.where(scores[:, 0] > 0.0, 1.0, -1.0)


def write(path: Path, rows: int, seed: int = 0, classes: int = 2, features: int = 30) -> None:
    x, labels = rows_of(rows, seed, classes, features)
    places = [np.flatnonzero(row) for row in x]
    values = [row[kept] for row, kept in zip(x, places, strict=True)]
    table = pa.table({"label": labels, "indices": places, "values": values})
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=250)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for shard in range(3):
        write(tmp_path / "table" / f"{shard}.arrow", 700, seed=shard)
    return tmp_path / "table"


def excess(run: Path, rows: dict[int, int]) -> tuple[float, float]:
    """By how much the objective of the run's weights exceeds its minimum by scipy, and the minimum. `rows`: by the seed."""
    lanes = saved_run(run).race.lanes
    spec = lanes.specs[0]
    x, labels = map(np.concatenate, zip(*(rows_of(count, seed) for seed, count in rows.items()), strict=True))
    x = np.hstack([np.full((len(x), 1), spec.intercept), x])

    def objective(w: Any) -> tuple[float, Any]:
        margins = labels * (x @ w + spec.base)
        slopes = -labels / (1.0 + np.exp(margins))
        value = np.logaddexp(0.0, -margins).mean() + 0.5 * spec.sigma * (w @ w)
        return float(value), x.T @ slopes / len(x) + spec.sigma * w

    options = {"ftol": 1e-15, "gtol": 1e-10}
    least = minimize(objective, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options=options).fun
    return objective(lanes.weights(0))[0] - least, least


@pytest.mark.parametrize("threads", [1, 2])
def test_l_bfgs_reaches_the_optimum_and_stops(threads: int, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    report = streampgs.train(table, run=run, intercept=0.5, threads=threads, **SOLVERS["l-bfgs"])
    assert report.stopped_by == "converged"
    assert report.epochs < 30
    above, least = excess(run, TABLE)
    assert above <= 1e-6 * least
    assert report.gap is not None
    assert above - 1e-12 <= report.gap <= 1e-6


@every_solver
def test_the_certificate_bounds_the_excess(solver: str, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    report = streampgs.train(table, run=run, epochs=1, intercept=0.5, **SOLVERS[solver])
    for epoch in (2, 4, 7):
        report = streampgs.resume(run, epochs=epoch)
        assert report.gap is not None
        assert -1e-12 <= excess(run, TABLE)[0] <= report.gap


# Growth.


@every_solver
@pytest.mark.parametrize("after", [{"epochs": 4}, {"epochs": 4, "rows": 10**9}, {"epochs": "+1"}], ids=str)
def test_an_update_that_a_limit_interrupts_is_completed(
    solver: str, after: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    for one in run, whole:
        streampgs.train(table, run=one, epochs=4, **SOLVERS[solver])
    write(table / "3.arrow", 700, seed=3)
    more = after["epochs"] == "+1"
    expected = streampgs.resume(whole, **({"epochs": 8} if more else {}))
    assert expected.epochs == (8.0 if more else 7.0)
    assert streampgs.resume(run, rows="+1000").rows_this_call == 1_000
    report = streampgs.resume(run, **after)
    assert (report.epochs, report.dual_sha256) == (expected.epochs, expected.dual_sha256)
    assert streampgs.resume(run).outcome == "nothing new"


def test_a_table_that_grows_every_night_reaches_the_optimum_of_all_rows(tmp_path: Path) -> None:
    table, run = tmp_path / "table", tmp_path / "run"
    write(table / "0.arrow", 700, seed=0)
    write(tmp_path / "test" / "0.arrow", 4000, seed=50)
    streampgs.train(table, run=run, epochs=8, intercept=0.5, **SOLVERS["l-bfgs"])
    losses = [evaluate(streampgs.Model.load(run), [str(tmp_path / "test")])["log_loss"]]
    for night in range(1, 6):
        write(table / f"{night}.arrow", 300, seed=night)
        streampgs.resume(run)
        losses.append(evaluate(streampgs.Model.load(run), [str(tmp_path / "test")])["log_loss"])
    assert losses[-1] < losses[0]
    assert all(later <= before + 0.005 for before, later in pairwise(losses)), losses
    assert excess(run, {0: 700, 1: 300, 2: 300, 3: 300, 4: 300, 5: 300})[0] < 1e-3


# Sigma.


def test_sigma_is_found_by_cross_validation_on_a_small_table(table: Path, tmp_path: Path) -> None:
    options = {**SOLVERS["l-bfgs"], "sigma": "auto", "window": "10MB"}
    report = streampgs.train(table, run=tmp_path / "run", **options)
    write(tmp_path / "test" / "0.arrow", 4000, seed=50)
    found = evaluate(streampgs.Model.load(tmp_path / "run"), [str(tmp_path / "test")])
    assert report.chosen is not None
    assert found["log_loss"] < 0.45


def noisy(folder: Path, shards: int, rows: int = 120) -> Path:
    """Few rows with many features, and labels that are mostly noise: a small sigma learns the noise."""
    for shard in range(shards):
        x, labels = rows_of(rows, seed=shard, features=60)
        noise = np.random.default_rng(100 + shard).choice([-1.0, 1.0], rows)
        kept = np.random.default_rng(200 + shard).random(rows) < 0.4
        table = pa.table({"label": np.where(kept, labels, noise), "indices": [np.arange(60)] * rows, "values": list(x)})
        folder.mkdir(exist_ok=True)
        with pa.ipc.new_file(folder / f"{shard}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=40)
    return folder


@pytest.mark.parametrize("threads", [1, 2])
def test_a_list_is_compared_on_rows_that_are_held_out_and_then_trained_on(threads: int, tmp_path: Path) -> None:
    table, sigmas = noisy(tmp_path / "table", 3), (1e-6, 1.0)
    options = {**SOLVERS["l-bfgs"], "intercept": 0.5, "threads": threads}
    report = streampgs.train(table, run=tmp_path / "run", **{**options, "sigma": sigmas})
    assert report.chosen is not None
    assert report.chosen["sigma"] == 1.0
    assert report.stopped_by == "converged"
    assert sum("is the best of the candidates" in note for note in report.notes) == 1
    streampgs.train(table, run=tmp_path / "alone", **{**options, "sigma": 1.0})
    weights, alone = (streampgs.Model.load(tmp_path / name).coef_ for name in ("run", "alone"))
    np.testing.assert_allclose(weights, alone, atol=1e-3 * np.abs(alone).max())


def test_a_pause_changes_nothing_while_rows_are_held_out(tmp_path: Path) -> None:
    table = noisy(tmp_path / "table", 3)
    options = {**SOLVERS["l-bfgs"], "sigma": (1e-2, 1.0)}
    whole = streampgs.train(table, run=tmp_path / "whole", **options)
    streampgs.train(table, run=tmp_path / "paused", rows=1, **options)
    for rows in (37, 119, 360, 361, 725, 360 * 4, 360 * 7 + 3, 360 * 9):
        streampgs.resume(tmp_path / "paused", rows=rows)
    paused = streampgs.resume(tmp_path / "paused", epochs=100)
    assert (paused.dual_sha256, paused.chosen, paused.rows) == (whole.dual_sha256, whole.chosen, whole.rows)


# Refused.


# Divergence.


def test_a_step_that_diverges_stops_alone(table: Path, tmp_path: Path) -> None:
    options = {**SOLVERS["gradient-descent"], "loss": "squared", "epochs": 400, "validation": table}
    alone = streampgs.train(table, run=tmp_path / "alone", **{**options, "step": 0.05})
    report = streampgs.train(table, run=tmp_path / "run", **{**options, "step": (0.05, 1e3, 1e300)})
    assert report.stopped_by == alone.stopped_by
    assert report.chosen is not None
    assert report.chosen["step"] == 0.05
    found = inspect_run(tmp_path / "run")["lanes"]
    assert [lane["gap"] is None for lane in found] == [False, True, True]
    weights = streampgs.Model.load(tmp_path / "run").coef_
    np.testing.assert_allclose(weights, streampgs.Model.load(tmp_path / "alone").coef_, rtol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e12, 1e60])
def test_poisson_regression_reaches_the_optimum_from_a_hard_start(size: float, tmp_path: Path) -> None:
    """With huge counts the first directions are that many times too long, and scores leave the range of training.
    Rounding hides the optimum from the certificate then."""
    chance = np.random.default_rng(3)
    x = chance.normal(size=(500, 6)).astype(np.float32)
    labels = chance.poisson(np.exp(x[:, 0])).astype(float)
    labels, x = size * labels, x * np.float32(min(size, 1e4))
    rows = {"label": labels, "indices": [np.arange(6, dtype=np.int32)] * 500, "values": list(x)}
    with pa.ipc.new_file(tmp_path / "counts.arrow", pa.table(rows).schema) as writer:
        writer.write_table(pa.table(rows))
    options: dict[str, Any] = {
        "solver": "l-bfgs",
        "loss": "poisson",
        "intercept": 0.5,
        "sigma": 1e-3,
        "epochs": 200,
    }
    streampgs.train(tmp_path / "counts.arrow", run=tmp_path / "run", **options)
    lanes = saved_run(tmp_path / "run").race.lanes
    spec, loss = lanes.specs[0], LOSSES["poisson"]
    x = np.hstack([np.full((500, 1), spec.intercept), x])

    def objective(w: Any) -> tuple[float, Any]:
        pairs = list(zip((x @ w + spec.base).tolist(), labels.tolist(), strict=True))
        value = np.mean([loss.value(score, label, spec.shape) for score, label in pairs])
        slopes = np.array([loss.slope(score, label, spec.shape) for score, label in pairs])
        return float(value) + 0.5 * spec.sigma * float(w @ w), x.T @ slopes / 500 + spec.sigma * w

    found = lanes.weights(0)
    search = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 5000}
    least = min(
        minimize(objective, start, jac=True, method="L-BFGS-B", options=search).fun for start in (0.0 * found, found)
    )
    assert objective(found)[0] - least <= 1e-6 * objective(0.0 * found)[0]
