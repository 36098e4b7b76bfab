"""What a night measures, reports and decides: drift, nulls, columns and counts, and the conditions of --fail-if."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.run.saved import saved_run
from streampgs.trial import Condition

SMALL: dict[str, Any] = {"memory": "60MB", "sigma": 1e-3, "epochs": 2, "label": "late"}


def night(seed: int, rows: int = 2_000, **changed: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    price, device = rng.normal(size=rows), rng.choice(["phone", "desk"], rows)
    late = price + (device == "phone") + rng.logistic(size=rows) > 0.5
    columns: dict[str, Any] = {"price": price, "device": device, "late": late.astype(np.int64)}
    return pa.table(columns | {name: of(columns) if callable(of) else of for name, of in changed.items()})


def arrives(data: Path, name: str, table: pa.Table) -> None:
    data.mkdir(exist_ok=True)
    pq.write_table(table, data / f"{name}.parquet")


def weights_of(run: Path) -> list[float]:
    return [float(weight) for weight in streampgs.Model.load(run).coef_.ravel()]


# Conditions.


@pytest.mark.parametrize("after", [None, math.nan, math.inf])
def test_a_metric_without_a_finite_value_after_training_fulfils_every_condition(after: float | None) -> None:
    assert Condition("precision < 0.5").holds(0.8, after)
    assert Condition("loss > 1.1 * before").holds(0.8, after)


@pytest.mark.parametrize(
    ("text", "before", "after", "holds"),
    [
        ("log_loss / before > 1.1", 0.0, 0.2, True),
        ("log_loss / before > 1.1", 0.0, 0.0, False),
        ("log_loss / before > 1.1", 0.5, 0.52, False),
        ("accuracy / before < 0.9", 0.0, 0.5, False),
        ("before / accuracy > 1.1", 0.8, 0.0, True),
        ("(log_loss - before) / before > 0.1", 0.0, 0.0, False),
        ("accuracy = 0", 0.5, 0.0, True),
    ],
)
def test_a_ratio_to_0_has_a_meaning(text: str, before: float, after: float, holds: bool) -> None:
    assert Condition(text).holds(before, after) == holds


def test_a_model_that_finds_no_positive_row_is_rejected(tmp_path: Path) -> None:
    data, run, checked = tmp_path / "data", tmp_path / "run", tmp_path / "checked"
    arrives(data, "0", night(0))
    arrives(checked, "0", night(1))
    streampgs.train(data, run=run, **SMALL)
    before = weights_of(run)
    arrives(data, "1", night(2, 20_000, late=np.zeros(20_000, np.int64)))
    report = streampgs.resume(run, validation=checked, fail_if="precision < 0.1")
    assert report.validation is not None
    assert report.validation["after"]["precision"] is None
    assert (report.outcome, weights_of(run)) == ("rejected", before)
    assert report.notes[-2].endswith(" before and without a value after training")


# Drift.


def flipped(seed: int, rows: int = 2_000) -> pa.Table:
    return night(seed, rows, late=lambda columns: 1 - columns["late"])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sigma": "auto"},
        {"epochs": 1},
        {"rows": 700},  # of the first epoch: the resume completes it
        {"window": "20kB"},
        {"solver": "sgd", "sigma": "auto"},
        {"loss": ["logistic", "hinge"]},
    ],
    ids=str,
)
def test_a_first_bad_night_is_drift_and_a_first_good_one_is_not(options: dict[str, Any], tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrives(data, "0", night(0))
    streampgs.train(data, run=run, **{**SMALL, **options})
    if "rows" in options:
        streampgs.resume(run, epochs=2)
    shutil.copytree(run, tmp_path / "other")
    arrives(data, "1", night(1))
    good = streampgs.resume(run).update
    arrives(data, "1", flipped(1))
    bad = streampgs.resume(tmp_path / "other").update
    assert good is not None
    assert bad is not None
    assert good["judged"]["drift"] is None
    assert good["judged"]["last"] == pytest.approx(good["judged"]["before"]["loss"], rel=0.2)
    drift = bad["judged"]["drift"]
    assert (drift["before"], drift["loss"]) == (good["judged"]["last"], bad["judged"]["before"]["loss"])
    assert drift["loss"] > 1.3 * drift["before"]


def test_the_loss_that_a_first_night_is_compared_with_does_not_depend_on_pauses(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arrives(data, "0", night(0))
    options = {**SMALL, "epochs": 1, "batch": 8}
    streampgs.train(data, run=tmp_path / "whole", **options)
    for stops in [(1_499,), (1_500, 1_501), (1_503, 1_504, 1_700)]:
        run = tmp_path / f"{stops}"
        streampgs.train(data, run=run, **{**options, "epochs": None, "rows": stops[0]})
        for rows in stops[1:]:
            streampgs.resume(run, rows=rows)
        streampgs.resume(run, epochs=1)
        found, expected = (saved_run(one).checkpoint.sections["mixture"] for one in (run, tmp_path / "whole"))
        assert found.values["choice"]["last"] == expected.values["choice"]["last"] != None  # noqa: E711


def test_few_rows_and_rows_without_weight_tell_nothing_about_drift(tmp_path: Path) -> None:
    for name, table in (("few", night(0, 100)), ("weightless", night(0, weight=np.arange(2_000) < 10))):
        arrives(tmp_path / name, "0", table)
        run = tmp_path / f"run-{name}"
        streampgs.train(tmp_path / name, run=run, **SMALL, **({"weight": "weight"} if name == "weightless" else {}))
        assert saved_run(run).checkpoint.sections["mixture"].values["choice"]["last"] is None


def test_after_another_sigma_the_first_bad_night_is_drift(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrives(data, "0", night(0))
    streampgs.train(data, run=run, **SMALL)
    streampgs.resume(run, sigma=1e-2, epochs="+1")
    arrives(data, "1", flipped(1))
    report = streampgs.resume(run)
    assert report.update is not None
    assert report.update["judged"]["drift"]["loss"] > 0.8


def test_with_a_new_class_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrives(data, "0", night(0, late=lambda columns: np.where(columns["price"] > 1, "very", columns["device"])))
    streampgs.train(data, run=run, **SMALL)
    arrives(data, "1", night(1, late=lambda columns: np.where(columns["price"] > 0, "new", columns["device"])))
    report = streampgs.resume(run)
    assert report.update is not None
    assert (report.update["judged"]["last"], report.update["judged"]["drift"]) == (None, None)
