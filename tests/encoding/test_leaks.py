"""Columns that alone predict the label are noted; ordinary tables have none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streampgs.data.open import open_table
from streampgs.encoding.leaks import errors_by_threshold, errors_by_value, explained_by_line, explained_by_value
from streampgs.options.commands import EncodingOptions, ModelOptions

ROWS = 4_000
CELL = st.sampled_from([-1.5, 0.0, 1.0, 2.0, float("nan")])


def notes(frame: pl.DataFrame, tmp_path: Any, label: str = "label", **given: Any) -> list[str]:
    frame.write_parquet(tmp_path / "data.parquet", row_group_size=1_000)
    opened = open_table([str(tmp_path / "data.parquet")], ModelOptions(label=label, **given), EncodingOptions())
    return [note for note in opened.notes if "alone" in note]


@pytest.fixture
def flights() -> pl.DataFrame:
    random = np.random.default_rng(1)
    hour, carrier = random.integers(0, 24, ROWS), random.choice(["UA", "DL", "AA"], ROWS)
    delay = np.round(random.normal(2.0 * hour - 20.0 + 10.0 * (carrier == "UA"), 25.0)).astype(int)
    return pl.DataFrame({"hour": hour, "carrier": carrier, "delay": delay, "late": delay > 15})


# Compared with slow, plain versions.


@given(st.lists(st.tuples(CELL, st.integers(0, 1)), min_size=1, max_size=14))
def test_the_best_threshold(rows):
    numbers, classes = np.array([x for x, _ in rows]), np.array([y for _, y in rows])
    null, known = np.isnan(numbers), ~np.isnan(numbers)
    fewest = len(rows)
    for threshold in [-np.inf, *numbers[known]]:
        for above in (0, 1):
            predicted = np.where(numbers[known] > threshold, above, 1 - above)
            fewest = min(fewest, int((predicted != classes[known]).sum()))
    of_null = min((classes[null] == 0).sum(), (classes[null] == 1).sum())
    assert errors_by_threshold(numbers, classes) == fewest + of_null


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 3)), min_size=1, max_size=25))
def test_the_class_of_the_other_rows_with_a_value(rows):
    wrong = 0
    for place, (value, own) in enumerate(rows):
        others = Counter(kind for number, (x, kind) in enumerate(rows) if x == value and number != place)
        rival = max((count for kind, count in others.items() if kind != own), default=0)
        wrong += not others[own] > rival
    assert errors_by_value(np.array([x for x, _ in rows]), np.array([y for _, y in rows])) == wrong


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), min_size=2, max_size=20))
def test_the_mean_of_the_other_rows_with_a_value(rows):
    targets = np.array([y for _, y in rows], np.float64)
    if np.ptp(targets) == 0.0:
        return
    errors = 0.0
    for place, (value, own) in enumerate(rows):
        others = [y for number, (x, y) in enumerate(rows) if x == value and number != place]
        errors += (own - (np.mean(others) if others else targets.mean())) ** 2
    share = explained_by_value(np.array([x for x, _ in rows]), targets)
    assert share == pytest.approx(1.0 - errors / ((targets - targets.mean()) ** 2).sum(), abs=1e-9)


def test_the_variance_that_a_line_explains():
    random = np.random.default_rng(2)
    x = random.normal(size=500)
    y = 3.0 * x + random.normal(size=500)
    assert explained_by_line(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2, rel=1e-12)
    assert explained_by_line(1e300 * x, 1e-300 * y) == pytest.approx(explained_by_line(x, y), rel=1e-9)
    assert explained_by_line(np.full(500, np.nan), y) == explained_by_line(np.ones(500), y) == 0.0


# Tables.


def test_a_number_from_which_the_label_was_made_is_noted(flights, tmp_path):
    [note] = notes(flights, tmp_path, "late")
    usual = max(flights["late"].mean(), 1.0 - flights["late"].mean())
    assert note.startswith("column 'delay' alone predicts 'late' in 1.0000 of the sampled rows")
    assert f"(the most frequent class: {usual:.4f})" in note
    assert note.endswith("`--ignore delay`")
    assert notes(flights.drop("delay"), tmp_path, "late") == []


def test_a_category_from_which_the_label_was_made_is_noted(flights, tmp_path):
    status = pl.when(pl.col("late")).then(pl.lit("delayed")).otherwise(pl.col("carrier"))
    [note] = notes(flights.drop("delay").with_columns(status.alias("status")), tmp_path, "late")
    assert "'status' alone" in note


def test_small_and_ordinary_tables_have_no_leaks(tmp_path):
    """One column of iris separates one of three classes."""
    datasets = pytest.importorskip("sklearn.datasets")
    for load, options in (
        (datasets.load_iris, {}),
        (datasets.load_iris, {"positive": 0.0}),
        (datasets.load_wine, {}),
        (datasets.load_breast_cancer, {}),
        (datasets.load_digits, {}),
        (datasets.load_diabetes, {}),
    ):
        table = load()
        frame = pl.DataFrame(table.data, schema=[f"x{n}" for n in range(table.data.shape[1])])
        assert notes(frame.with_columns(pl.Series("label", table.target)), tmp_path, **options) == []
