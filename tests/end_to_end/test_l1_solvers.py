"""Solvers whose weights are exactly zero work with everything that works with the default solver."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.cli.inspection_text import run_text
from streampgs.model.evaluation import evaluate

SMALL: dict[str, Any] = {"window": "60kB", "memory": "60MB"}
SOLVER: dict[str, Any] = {"solver": "truncated-gradient", **SMALL}
SOLVERS: dict[str, dict[str, Any]] = {
    "truncated-gradient": SOLVER,
    "smidas": {"solver": "smidas", **SMALL},
    "smidas, rare shrinking": {"solver": "smidas", "shrink_every": 7, **SMALL},
    "pgs": {"solver": "pgs", **SMALL},
}
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def write(path: Path, rows: int, features: int = 60, classes: int = 2, seed: int = 0) -> None:
    chance = np.random.default_rng(seed)
    truth = np.random.default_rng(9).normal(size=(classes, features)) * (np.arange(features) < 5)
    indices = np.sort(chance.integers(0, features, (rows, 6)), axis=1)
    indices[:, 1:] += np.cumsum(np.diff(indices, axis=1) == 0, axis=1)  # no index twice
    indices = np.minimum(indices, features + 5)
    values = chance.normal(size=indices.shape).astype(np.float32)
    known = np.concatenate([truth, np.zeros((classes, 6))], axis=1)
    scores = np.stack([(known[k][indices] * values).sum(axis=1) for k in range(classes)])
    labels = scores.argmax(axis=0).astype(float) if classes > 2 else np.where(scores[0] > 0.0, 1.0, -1.0)
    table = pa.table({"label": labels, "indices": indices.tolist(), "values": values.tolist()})
    path.parent.mkdir(exist_ok=True)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for shard in range(2):
        write(tmp_path / "table" / f"{shard}.arrow", 3000, seed=shard)
    return tmp_path / "table"


@every_solver
def test_most_weights_are_exactly_zero_and_the_model_predicts(table: Path, tmp_path: Path, solver: str) -> None:
    write(tmp_path / "test" / "0.arrow", 2000, seed=7)
    run = tmp_path / "run"
    numbers = {"l1": 0.01} if solver == "pgs" else {"l1": 0.05, "step": 0.02}
    report = streampgs.train(table, run=run, epochs=4, **numbers, **SOLVERS[solver])
    model, shown = streampgs.Model.load(run), streampgs.inspect(run)
    assert 0 < np.count_nonzero(model.coef_) < 0.5 * model.coef_.size
    for counts in (asdict(report), shown, shown["lanes"][0]):
        assert counts["nonzeros"] == np.count_nonzero(model.coef_)
        assert counts["zeros"] == np.count_nonzero(model.coef_ == 0.0)
    text = f"{report.nonzeros} of {model.coef_.size} weights are not zero"
    assert text in run_text(shown)
    assert text in repr(report)
    assert evaluate(model, [str(tmp_path / "test")])["accuracy"] > 0.75


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"sigma": 1e-3, "l1": 1e-3}, "sigma with"),
        ({}, "without l1"),
        ({"solver": "smidas"}, "without l1"),
        ({"solver": "smidas", "l1": 1e-3, "p": 1.5}, "p with"),
        ({"shrink_every": 3, "l1": 1e-3}, "shrink_every with"),
        ({"solver": "pgs", "step": 1e-3}, "step with"),
    ],
)
def test_options_of_another_solver_are_refused(options: Any, flag: str, table: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=flag):
        streampgs.train(table, run=tmp_path / "run", epochs=1, **{**SOLVER, **options})


@every_solver
def test_a_target_gap_needs_a_certificate(table: Path, tmp_path: Path, solver: str) -> None:
    run = tmp_path / "run"
    with pytest.raises(OptionError, match="target_gap"):
        streampgs.train(table, run=run, l1=1e-3, target_gap=0.1, **SOLVERS[solver])
    assert not run.exists()
    streampgs.train(table, run=run, l1=1e-3, epochs=1, **SOLVERS[solver])
    with pytest.raises(OptionError, match="target_gap"):
        streampgs.resume(run, target_gap=0.1)


def test_a_resume_cannot_change_an_option_of_another_solver(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(table, run=run, l1=1e-3, epochs=1, **SOLVER)
    with pytest.raises(OptionError, match="sigma with solver='truncated-gradient'"):
        streampgs.resume(run, sigma="auto", epochs=2)
