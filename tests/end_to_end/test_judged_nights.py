"""What a night measures, reports and decides: drift, nulls, columns and counts, and the conditions of --fail-if."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
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
