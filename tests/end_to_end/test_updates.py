"""A table grows after its epochs are over: the update that follows, and the model that it returns."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.model.inspection import inspect_run
from streampgs.run.folder import RunFolder
from streampgs.run.lineages import LINEAGES
from streampgs.run.saved import saved_run
from tests.faults.run_state import state_digest

SMALL = {"memory": "60MB", "window": "100kB", "cache_limit": "40kB"}
OLD, NEW = 3_000, 900

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cosine": {"p": 1.6, "batch": 7},
    "two workers": {"threads": 2},
    "numbers": {"label": "size", "loss": "huber"},
    "several labels": {"label": ["y", "z"]},
    "classes": {"label": "city"},
    "last weights": {"returns": "last"},
    "with l1": {"l1": 1e-3},
    "entropic": {"solver": "entropic", "ball": 5},
    "truncated": {"solver": "truncated-gradient", "l1": 1e-4},
    "smidas": {"solver": "smidas", "l1": 1e-4, "shrink_every": 3},
    "sgd": {"solver": "sgd", "label": "size"},
    "ogd": {"solver": "ogd"},
    "weights and offsets": {"weight": "w", "offset": "o"},
    "cheap": {"passes": 1, "replay": 1},
}
_OF_RESUME = ("passes", "replay")


def table(rows: int, seed: int, turned: bool = False) -> pa.Table:
    """Columns of all kinds; `turned`: the label follows another law, and there is another city."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    score = x @ ([-1.0, 2.0, 0.0, 1.0, 0.5, -2.0] if turned else [1.0, -2.0, 0.5, 0.0, 0.0, 1.0])
    cities = np.array(["Oslo", "Rome", "Lima", *(["Bern"] if turned else [])])
    return pa.table(
        {
            **{f"x{number}": x[:, number] for number in range(6)},
            "y": np.where(score + rng.normal(size=rows) > 0, 1, 0),
            "z": np.where(score - 1.0 + rng.normal(size=rows) > 0, 1, 0),
            "size": score + rng.normal(size=rows),
            "city": cities[(np.abs(score + rng.normal(size=rows)) % len(cities)).astype(int)],
            "w": rng.uniform(0.5, 2.0, rows),
            "o": rng.normal(size=rows) * 0.1,
        }
    )


def put(folder: Path, name: str, rows: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / f"{name}.parquet", row_group_size=400)


def options_of(kind: str) -> dict[str, Any]:
    own = {name: value for name, value in KINDS[kind].items() if name not in _OF_RESUME}
    labels = {"y", "z", "size", "city", "w", "o"}
    used = {own.get("weight"), own.get("offset"), *np.atleast_1d(own.get("label", "y"))}
    return {"label": "y", "seed": 3, "epochs": 2, **SMALL, "ignore": sorted(labels - used), **own}


def of_resume(kind: str) -> dict[str, Any]:
    return {name: value for name, value in KINDS[kind].items() if name in _OF_RESUME}


def bits_of(run: Path) -> tuple[Any, ...]:
    model, facts = streampgs.Model.load(run), inspect_run(run)
    return (
        facts["dual_sha256"],
        np.asarray(model.coef_).tobytes(),
        np.asarray(model.intercept_).tobytes(),
        facts["update"],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_pauses_in_an_update_change_no_bit(kind: str, tmp_path: Path) -> None:
    """Two updates, the second with another law and another class."""
    chance, found = random.Random(kind), []
    for pauses in (0, 5):
        data, run = tmp_path / f"table-{pauses}", tmp_path / f"run-{pauses}"
        put(data, "old", table(OLD, 1))
        report = streampgs.train(data, run=run, **options_of(kind))
        for number in (1, 2):
            put(data, f"new-{number}", table(NEW, 10 + number, turned=number == 2))
            for _ in range(pauses):
                streampgs.resume(run, epochs=2, rows=f"+{chance.randrange(1, 2 * NEW)}", **of_resume(kind))
                shutil.rmtree(run / "cache", ignore_errors=True)
            report = streampgs.resume(run, epochs=2, **of_resume(kind))
            assert report.stopped_by == "epochs"
        streampgs.resume(run, epochs=3)
        found.append((bits_of(run), state_digest(RunFolder(run))))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["plain", "classes", "numbers"])
def test_the_model_from_before_is_returned_while_an_update_is_going_on(kind: str, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(OLD, 1))
    streampgs.train(data, run=run, **options_of(kind))
    rows = table(200, 5)
    before = streampgs.Model.load(run).decision_function(rows)
    put(data, "new", table(NEW, 11))
    for _ in range(3):
        streampgs.resume(run, epochs=2, rows="+700")
        assert inspect_run(run)["update"]["going_on"]
        np.testing.assert_array_equal(streampgs.Model.load(run).decision_function(rows), before)
    streampgs.resume(run, epochs=2)
    assert not inspect_run(run)["update"]["going_on"]
    assert not np.array_equal(streampgs.Model.load(run).decision_function(rows), before)


def test_the_returned_model_is_the_mixture_of_the_lineages(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(OLD, 1))
    streampgs.train(data, run=run, **options_of("plain"))
    for number in range(3):
        put(data, f"new-{number}", table(NEW, 20 + number, turned=True))
        streampgs.resume(run)
    saved, model = saved_run(run), streampgs.Model.load(run)
    update = inspect_run(run)["update"]
    expected = np.zeros(6)
    for name, models in zip(LINEAGES, [*saved.lineages.trained, saved.lineages.first], strict=True):
        expected += update["shrink"] * update["shares"][name] * models.weights(0)[1:]
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-12)
    assert sum(update["shares"].values()) == pytest.approx(1.0)
    assert update["shares"]["long"] < 0.5  # the newest rows follow another law


def test_each_lineage_trains_on_its_rows(tmp_path: Path) -> None:
    """Three passes over three quarters of the new rows and one over the rest; the same number of old rows next to them."""
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(OLD, 1))
    before = streampgs.train(data, run=run, **options_of("plain"))
    put(data, "new", table(NEW, 11))
    report = streampgs.resume(run)
    steps = [lanes.steps for lanes in saved_run(run).lineages.trained]
    long, recent, fresh = steps[0] - before.t, steps[1] - before.t, steps[2]
    assert recent == fresh
    assert 2.3 * NEW < fresh < 2.7 * NEW  # 3·¾ + ¼
    assert 3.0 * NEW < long < 5.0 * NEW  # once, and about as many old rows in each pass
    assert report.rows - before.rows < 8.0 * NEW


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.02, 0.3, 3.0])
def test_the_model_does_not_get_worse(share: float, seed: int, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(1_000, 100 + seed))
    streampgs.train(data, run=run, **{**options_of("plain"), "seed": seed})
    judged = table(20_000, 999)

    def loss() -> float:
        chances = streampgs.Model.load(run).predict_proba(judged)[:, 1]
        labels = judged["y"].to_numpy()
        return float(-np.mean(np.log(np.where(labels == 1, chances, 1.0 - chances))))

    before = loss()
    put(data, "new", table(int(1_000 * share), 200 + seed))
    streampgs.resume(run)
    assert loss() <= 1.01 * before  # a new run on all rows is up to .7 % worse here, too


def test_drift_is_reported(tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(OLD, 1))
    streampgs.train(data, run=run, **options_of("plain"))
    drifts = []
    for number, turned in enumerate((False, False, True)):
        put(data, f"new-{number}", table(NEW, 30 + number, turned))
        report = streampgs.resume(run)
        assert report.update is not None
        drifts.append(report.update["judged"]["drift"])
    assert drifts[0] is None
    assert drifts[1] is None
    assert drifts[2]["loss"] > 1.5 * drifts[2]["before"]
    assert any("the newest data differ" in note for note in report.notes)


@pytest.mark.parametrize(("sigma", "factor"), [("auto", OLD / (OLD + NEW)), (1e-3, 1.0)])
def test_a_sigma_that_was_found_shrinks_with_the_rows(sigma: Any, factor: float, tmp_path: Path) -> None:
    data, run = tmp_path / "table", tmp_path / "run"
    put(data, "old", table(OLD, 1))
    first = streampgs.train(data, run=run, sigma=sigma, **options_of("plain"))
    put(data, "new", table(NEW, 11))
    second = streampgs.resume(run)
    assert first.chosen is not None
    assert second.chosen is not None
    assert second.chosen["sigma"] == pytest.approx(factor * first.chosen["sigma"])
