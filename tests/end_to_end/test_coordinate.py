"""Coordinate descent from files to predictions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import OptionError
from streampgs.run.saved import saved_run

from .commands import streampgs as command

FEATURES = 12


def frame(rows: int, seed: int = 0) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(rows, FEATURES))
    y = x[:, 0] - 0.5 * x[:, 3] + 0.3 * chance.normal(size=rows)
    return pd.DataFrame({**{f"x{j}": x[:, j] for j in range(FEATURES)}, "y": y, "label": (y > 0).astype(int)})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "table").mkdir()
    for shard in range(2):
        pq.write_table(pa.Table.from_pandas(frame(400, shard)), tmp_path / "table" / f"{shard}.parquet")
    return tmp_path / "table"


OPTIONS = {"solver": "coordinate", "standardize": "off", "memory": "60MB"}


def test_a_lasso_is_that_of_scikit_learn(table: Path, tmp_path: Path) -> None:
    from sklearn.linear_model import Lasso

    run = tmp_path / "run"
    report = streampgs.train(table, run=run, label="y", ignore="label", loss="squared", l1=0.1, **OPTIONS)
    assert report.stopped_by == "converged"
    data = pd.concat([frame(400, 0), frame(400, 1)])
    x, y = data[[f"x{j}" for j in range(FEATURES)]].to_numpy(), data["y"].to_numpy()
    other = Lasso(alpha=0.05, tol=1e-10).fit(x, y)
    model = streampgs.Model.load(run)
    found = model.predict(data.drop(columns=["label", "y"]))
    np.testing.assert_allclose(np.asarray(found), other.predict(x), atol=2e-3)
    assert report.gap is not None
    assert report.gap <= 1e-4 * float(np.mean((y - y.mean()) ** 2))


def test_a_user_reads_what_the_run_does(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--ignore", "y", "--solver", "coordinate", "--l1", "0.01,0.001", "--memory", "60MB")
    told = command("train", table, "--run", run, *words).err
    assert "12 numbers" in told
    assert "all in memory" in told
    assert "train longer" not in told, "it has converged"
    assert "batch" not in told, "a step has no rows"
    events = re.split(r"\n(?=\S)", command("history", run).out.strip())[1:]  # long ones continue on indented lines
    started, chosen, ended = (" ".join(event.split()) for event in events)
    assert "solver coordinate, loss logistic" in started
    assert "l1 0.01,0.001" in started
    assert "l1 0.001" in chosen or "l1 0.01" in chosen
    assert " converged after " in ended


def test_the_best_l1_is_chosen_on_held_out_rows_and_trained_on_all(table: Path, tmp_path: Path) -> None:
    report = streampgs.train(table, run=tmp_path / "run", ignore="y", l1=(0.3, 0.01, 1e-3), **OPTIONS)
    assert report.lanes == 3
    assert report.chosen is not None
    assert report.chosen["l1"] < 0.3
    alone = streampgs.train(table, run=tmp_path / "alone", ignore="y", l1=report.chosen["l1"], **OPTIONS)
    assert report.progressive_loss == pytest.approx(alone.progressive_loss, rel=1e-3)
    assert streampgs.evaluate(tmp_path / "run", table)["accuracy"] > 0.85


def test_the_last_weights_alone_choose_the_best_l1(table: Path, tmp_path: Path) -> None:
    """Earlier ones, of models that have not converged, do not count."""
    run = tmp_path / "run"
    report = streampgs.train(
        table, run=run, ignore="y", l1=(0.3, 0.01, 1e-4), validation=table / "0.parquet", epochs=2, **OPTIONS
    )
    race = saved_run(run).race
    (mark,) = race.progress.marks
    data = frame(400, 0)
    x, y = data[[f"x{j}" for j in range(FEATURES)]].to_numpy(), 2.0 * data["label"].to_numpy() - 1.0
    losses = [
        float(np.logaddexp(0.0, -y * (x @ weights + constant)).mean())
        for weights, constant in map(race.lanes.predictor, range(3))
    ]
    np.testing.assert_allclose(mark.losses, losses, rtol=1e-6)
    assert report.chosen is not None
    assert report.chosen["l1"] == (0.3, 0.01, 1e-4)[int(np.argmin(mark.merits))]


@pytest.mark.parametrize(
    ("options", "found", "remedy"),
    [
        ({}, "without --l1", "--l1 1e-3"),
        ({"l1": 0.1, "loss": "hinge"}, "--loss hinge", "squared-hinge"),
        ({"l1": 0.1, "threads": 2}, "threads", "leave"),
        ({"l1": 0.1, "step": 0.1}, "--step", "leave it out"),
    ],
)
def test_what_has_no_meaning_is_refused(table: Path, tmp_path: Path, options: dict, found: str, remedy: str) -> None:
    with pytest.raises(OptionError) as raised:
        streampgs.train(table, run=tmp_path / "run", ignore="y", **{**OPTIONS, **options})
    assert found.replace("--", "") in str(raised.value).replace("--", "").replace("=", " ").replace("'", "")
    assert remedy.replace("--", "").split()[0] in str(raised.value)


def test_classes_that_come_later_get_models_of_all_rows(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    few = frame(300).assign(label=lambda own: np.where(own["x1"] > 0.5, "a", np.where(own["x2"] > 0.5, "b", "c")))
    pq.write_table(pa.Table.from_pandas(few), tmp_path / "table" / "0.parquet")
    options = {**OPTIONS, "classes": ("auto",), "ignore": "y", "l1": 0.01}
    streampgs.train(tmp_path / "table", run=tmp_path / "run", **options)
    more = frame(200, 5).assign(label=lambda own: np.where(own["x1"] > 0.5, "a", "d"))
    pq.write_table(pa.Table.from_pandas(more), tmp_path / "table" / "1.parquet")
    assert streampgs.resume(tmp_path / "run").stopped_by == "converged"
    streampgs.train(tmp_path / "table", run=tmp_path / "anew", **options)
    both = pd.concat([few, more]).drop(columns=["label", "y"])
    grown, anew = (streampgs.Model.load(tmp_path / run).predict(both) for run in ("run", "anew"))
    assert float(np.mean(np.asarray(grown) == np.asarray(anew))) > 0.98
