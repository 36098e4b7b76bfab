"""What a night measures, reports and decides: drift, nulls, columns and counts, and the conditions of --fail-if."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.run.report import StopRequest
from tests.end_to_end.observers import StopAfter

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


def test_a_model_that_finds_no_positive_row_is_rejected(tmp_path: Path) -> None:
    data, run, checked = tmp_path / "data", tmp_path / "run", tmp_path / "checked"
    arrives(data, "0", night(0))
    arrives(checked, "0", night(1))
    streampgs.train(data, run=run, **SMALL)
    before = weights_of(run)
    arrives(data, "1", night(2, 6_000, late=np.zeros(6_000, np.int64)))
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


# Columns, nulls and counts of a night, and all of it in one life of a run.


def last_line(run: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert not any(isinstance(value, list | dict) for value in line.values())
    return line


def of_nulls(rows: int = 2_000) -> pa.Array:
    return pa.nulls(rows, pa.string())


def test_nights_from_the_first_to_the_last(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    careful = ["drift", "null_share.device > 0.5", "missing_columns > 0"]

    def resumed(name: str, table: pa.Table, **options: Any) -> streampgs.run.report.Report:
        arrives(data, name, table)
        return streampgs.resume(run, on_bad_row="skip", **options)

    arrives(data, "0", night(0))
    streampgs.train(data, run=run, **SMALL)
    assert (last_line(run)["event"], last_line(run)["outcome"], last_line(run)["drift"]) == ("stopped", "trained", None)
    before = weights_of(run)

    bad = resumed("1", flipped(1), fail_if=careful)
    assert (bad.outcome, weights_of(run)) == ("rejected", before)
    assert bad.validation is not None
    assert (bad.validation["failed"], bad.validation["data"]) == (["drift"], [])
    line = last_line(run)
    assert (line["outcome"], line["failed"], line["drift"], line["rows"]) == ("rejected", "drift", True, bad.rows)
    assert line["judged_rows_loss"] > 1.3 * line["last_judged_rows_loss"]

    good = resumed("2", night(2), fail_if=careful)
    assert (good.outcome, good.found.new_rows, good.found.changed_nulls) == ("trained", 2_000, {})
    assert (last_line(run)["drift"], last_line(run)["rejected_shards"]) == (False, 1)

    arrives(data, "3", night(3, device=of_nulls()))
    lines = (run / "metrics.jsonl").read_text()
    assert streampgs.resume(run, dry_run=True).found.changed_nulls == {"device": 1.0}
    assert (run / "metrics.jsonl").read_text() == lines
    empty = streampgs.resume(run, fail_if=careful)
    assert (empty.outcome, empty.found.changed_nulls) == ("rejected", {"device": 1.0})
    assert "other shares of nulls in the new shards: 'device' 100% (before 0%)" in empty.notes
    assert last_line(run)["failed"] == "null_share.device > 0.5"

    narrow = resumed("4", night(4).drop_columns(["device"]), fail_if=careful[2:])
    assert (narrow.outcome, narrow.found.missing_columns) == ("rejected", ["device"])
    assert narrow.found.changed_nulls == {}  # it is missing

    wide = resumed("5", night(5, vip=np.arange(2_000) % 2), fail_if=careful)
    assert (wide.outcome, wide.found.new_columns) == ("trained", ["vip"])

    price = night(6)["price"].to_numpy().copy()
    price[7] = np.nan
    monday = resumed("6", night(6, price=price, vip=np.zeros(2_000)))
    assert monday.skipped_rows == {"feature not finite": 1}
    assert monday.found.changed_nulls == {}
    tuesday = resumed("7", night(7, vip=np.zeros(2_000)))
    assert (tuesday.skipped_rows, tuesday.skipped_rows_of_run) == ({}, {"feature not finite": 1})
    assert (last_line(run)["skipped_rows"], last_line(run)["rejected_shards"]) == (0, 3)

    nothing = streampgs.resume(run)
    assert nothing.update is not None
    assert (nothing.outcome, nothing.update["judged"], last_line(run)["drift"]) == ("nothing new", None, None)
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    assert [one["outcome"] for one in lines if "outcome" in one] == [
        *("trained", "rejected", "trained", "rejected", "rejected", "trained", "trained", "trained", "nothing new")
    ]


@pytest.mark.parametrize("condition", ["drift", "null_share.device > 0.5", "missing_columns > 0"])
def test_a_bad_night_that_was_paused_is_rejected_all_the_same(condition: str, tmp_path: Path) -> None:
    data, run, stop = tmp_path / "data", tmp_path / "run", StopRequest()
    arrives(data, "0", night(0))
    streampgs.train(data, run=run, window="20kB", **SMALL)
    before = weights_of(run)
    bad = {"drift": flipped(1), "null_share.device > 0.5": night(1, device=of_nulls())}
    arrives(data, "1", bad.get(condition, night(1).drop_columns(["device"])))
    paused = streampgs.resume(run, fail_if=condition, checkpoint_seconds=0, observer=StopAfter(stop), stop=stop)
    assert (paused.outcome, paused.found.new_rows) == ("paused", 2_000)
    assert streampgs.resume(run, fail_if=condition).outcome == "rejected"
    assert weights_of(run) == before
