"""--solver kernel works with everything that the other solvers of rows work with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run
from streampgs.model.prediction import predict
from tests.end_to_end.conftest import Tables
from tests.end_to_end.test_kernels import board

SOLVER: dict[str, Any] = {"solver": "kernel", "kernel": "rbf", "window": "500kB", "memory": "60MB", "sigma": 1e-3}


@pytest.mark.parametrize(("supports", "least"), [(4096, 0.9), (300, 0.85)])
def test_a_checkerboard_is_learned(supports: int, least: float, tmp_path: Path) -> None:
    """With a support for each row, and with few."""
    rows, test = board(tmp_path / "train" / "0.parquet", 1500, 0), board(tmp_path / "test" / "0.parquet", 1000, 1)
    own = {"solver": "kernel", "kernel": "rbf", "gamma": 4.0, "supports": supports, "ignore": "name"}
    streampgs.train(rows, run=tmp_path / "run", epochs=10, sigma=1e-5, **own)
    model = streampgs.Model.load(tmp_path / "run")
    assert model.kernel is not None
    assert model.kernel.width == min(supports, 1500)
    assert evaluate(model, [str(test)])["accuracy"] > least


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("options", [{"supports": 200}, {"supports": 1500, "sigma": (1e-3, 1e-2)}, {"threads": 2}])
def test_a_pause_changes_nothing(tables: Tables, tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    """Supports come from many windows: there are some 80 rows in each of them."""
    data, own = tables.path(kind, "parquet"), {**SOLVER, "supports": 1500, **options}
    whole = streampgs.train(data, run=tmp_path / "whole", rows=7000, **own)
    streampgs.train(data, run=tmp_path / "paused", rows=1, **own)
    for rows in (80, 777, 3000):
        streampgs.resume(tmp_path / "paused", rows=rows)
    paused = streampgs.resume(tmp_path / "paused", rows=7000, memory="90MB")
    assert paused.dual_sha256 == whole.dual_sha256
    models = [streampgs.Model.load(tmp_path / name) for name in ("whole", "paused")]
    assert np.array_equal(models[0].coef_, models[1].coef_)


def test_every_way_to_score_a_row_gives_the_same(tmp_path: Path) -> None:
    rows = board(tmp_path / "train" / "0.parquet", 1500, 0)
    run = tmp_path / "run"
    streampgs.train(rows, run=run, epochs=2, supports=300, **SOLVER)
    model, table = streampgs.Model.load(run), pq.read_table(rows)
    scores = model.decision_function(table)
    assert np.array_equal(model.decision_function(table.slice(17, 1)), scores[17:18])
    predict(model, [str(rows)], tmp_path / "scores.parquet")
    assert np.array_equal(pq.read_table(tmp_path / "scores.parquet")["score"].to_numpy(), scores)
    found = inspect_run(run, top=3)
    assert found["kernel"]["exact"]
    assert found["kernel"]["features"] == 300
    assert all(one["name"].startswith("support") for one in found["top"])


def test_tables_grow_with_new_columns_and_rows_become_supports(tmp_path: Path) -> None:
    board(tmp_path / "train" / "0.parquet", 600, 0)
    run = tmp_path / "run"
    judge = board(tmp_path / "judge" / "0.parquet", 200, 7, height=np.zeros(200))
    own = {"supports": 900, "ignore": "name", "validation": str(judge), **SOLVER}
    streampgs.train(tmp_path / "train", run=run, epochs=2, **own)
    height = np.random.default_rng(5).normal(size=500)
    board(tmp_path / "train" / "1.parquet", 500, 1, height=height)
    streampgs.resume(run, rows=1500)
    streampgs.resume(run, epochs=3)
    model = streampgs.Model.load(run)
    assert model.kernel is not None
    assert (model.features, model.kernel.width) == (3, 900)
    table = pq.read_table(tmp_path / "train" / "1.parquet")
    other = table.set_column(table.schema.get_field_index("height"), "height", pa.array(height + 1.0))
    assert not np.allclose(model.decision_function(table), model.decision_function(other))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"kernel": None}, "solver kernel without kernel|without kernel"),
        ({"kernel_features": 64}, "kernel_features with solver='kernel'"),
        ({"supports": 60_000, "window": None}, "supports"),
        ({"solver": "pgs", "supports": 100}, "supports with solver='pgs'"),
        ({"solver": "coordinate"}, "kernel with solver='coordinate'"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], found: str, tmp_path: Path) -> None:
    rows = board(tmp_path / "train" / "0.parquet", 100, 0)
    with pytest.raises(OptionError, match=found):
        streampgs.train(rows, run=tmp_path / "run", **{**SOLVER, **options})
    assert not (tmp_path / "run").exists()
