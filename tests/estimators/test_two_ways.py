"""Rows in memory and the same rows from temporary files give the same model, up to the order of the rows."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone

from streampgs import StreamClassifier, StreamRegressor
from streampgs.base.errors import InvalidInput

ROWS = 400
CHANCE = np.random.default_rng(0)
MATRIX = CHANCE.normal(size=(ROWS, 5)) * [1.0, 10.0, 0.1, 3.0, 1.0] + [0.0, 5.0, 1.0, -2.0, 0.0]
SUMS = MATRIX @ [1.0, -0.2, 3.0, 0.5, 0.0]
GAPS = pd.DataFrame(MATRIX, columns=list("abcde")).where(CHANCE.random(MATRIX.shape) > 0.1)
KINDS: dict[str, Any] = {
    "an array": MATRIX,
    "a sparse matrix": sparse.csr_array(np.where(np.abs(MATRIX) > 1.0, MATRIX, 0.0)),
    "a frame of numbers with gaps": GAPS,
    "a frame of numbers and strings": GAPS.assign(city=CHANCE.choice(["Rome", "Oslo", "Lima"], ROWS)).iloc[:, 1:],
}
WEIGHTS = CHANCE.integers(0, 4, ROWS) * 10.0
OFFSETS = CHANCE.normal(size=ROWS)


def both_ways(estimator: Any, rows: Any, labels: Any, **given: Any) -> tuple[Any, Any]:
    in_memory = clone(estimator).fit(rows, labels, **given)
    with mock.patch("streampgs.python.estimators.base.bytes_in_memory", return_value=1 << 60):
        return in_memory, clone(estimator).fit(rows, labels, **given)


TREATMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "equal weights": ({}, {"sample_weight": np.full(ROWS, 10.0)}),
    "weights, also 0": ({}, {"sample_weight": WEIGHTS}),
    "weights of classes": ({"class_weight": {0: 20.0, 1: 60.0}}, {"sample_weight": WEIGHTS}),
    "balanced classes": ({"class_weight": "balanced"}, {}),
    "offsets": ({}, {"offset": OFFSETS}),
}


def check_alike(one: Any, other: Any, rows: Any, offset: Any = None) -> None:
    tolerance = 0.03 * float(np.abs(one.coef_).max())
    np.testing.assert_allclose(one.coef_, other.coef_, atol=tolerance)
    np.testing.assert_allclose(one.intercept_, other.intercept_, atol=tolerance)
    assert one.sigma_ == other.sigma_
    assert one.n_rows_clipped_ == other.n_rows_clipped_ == 0
    assert one.get_feature_names_out().tolist() == other.get_feature_names_out().tolist()
    found = [model.predict(rows, offset) for model in (one, other)]
    assert np.mean(np.abs(found[0] - found[1])) < 0.03


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("treatment", TREATMENTS)
def test_classifiers_of_both_ways_are_alike(kind: str, treatment: str) -> None:
    options, given = TREATMENTS[treatment]
    labels = (SUMS + CHANCE.normal(size=ROWS) > 1.0).astype(int)
    model = StreamClassifier(sigma=0.05, epochs=100, **options)
    check_alike(*both_ways(model, KINDS[kind], labels, **given), KINDS[kind], given.get("offset"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("treatment", ["equal weights", "weights, also 0", "offsets"])
def test_regressors_of_both_ways_are_alike(kind: str, treatment: str) -> None:
    given = TREATMENTS[treatment][1]
    found = both_ways(StreamRegressor(sigma=0.5, epochs=100), KINDS[kind], SUMS + OFFSETS, **given)
    check_alike(*found, KINDS[kind], given.get("offset"))


def test_a_common_factor_of_all_weights_changes_nothing() -> None:
    for way in (0, 1):
        light = both_ways(StreamRegressor(sigma=0.5, epochs=5), MATRIX, SUMS, sample_weight=np.full(ROWS, 0.5))[way]
        plain = both_ways(StreamRegressor(sigma=0.5, epochs=5), MATRIX, SUMS)[way]
        np.testing.assert_allclose(light.coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"a": np.where(np.arange(ROWS) == 7, np.inf, 1.0), "b": ["x", "y"] * (ROWS // 2)}),
        sparse.csr_array(np.where(np.arange(ROWS) == 7, 1e200, 1.0)[:, np.newaxis]),
        pa.table({"when": [b"x"] * ROWS}),
    ],
)
def test_errors_of_both_ways_are_the_same(rows: Any) -> None:
    found = []
    for size in (0, 1 << 60):
        with (
            mock.patch("streampgs.python.estimators.base.bytes_in_memory", return_value=size),
            pytest.raises(InvalidInput) as caught,
        ):
            StreamClassifier(epochs=1).fit(rows, np.arange(ROWS) % 2)
        found.append(str(caught.value))
    assert found[0] == found[1]
    assert "folder" not in found[0]


# Offsets.


def test_an_offset_is_added_to_the_scores() -> None:
    model = StreamRegressor(sigma=1e-3, epochs=50).fit(MATRIX, SUMS + 10.0 * OFFSETS, offset=10.0 * OFFSETS)
    np.testing.assert_allclose(model.predict(MATRIX, 10.0 * OFFSETS), SUMS + 10.0 * OFFSETS, atol=0.1)
    np.testing.assert_allclose(model.predict(MATRIX, 3.0), model.predict(MATRIX, 0.0) + 3.0, rtol=1e-12)


def test_an_offset_tells_rows_apart() -> None:
    rows = np.zeros((4, 1))
    model = StreamRegressor(sigma=1e-3).fit(rows, [1.0, 1.0, 1.0, 1.0], offset=[0.0, 0.0, 2.0, 4.0])
    assert model.predict(rows[:1], 0.0) == pytest.approx(-0.5, abs=0.05)


def test_a_model_with_offsets_needs_them() -> None:
    classes = SUMS > 1.0
    model = StreamClassifier(epochs=2).fit(MATRIX, classes, offset=OFFSETS)
    for method in (model.predict, model.decision_function, model.predict_proba, model.predict_log_proba):
        assert len(method(MATRIX, OFFSETS)) == ROWS
        with pytest.raises(InvalidInput, match="fitted with them"):
            method(MATRIX)
    with pytest.raises(InvalidInput, match="in some calls only"):
        model.partial_fit(MATRIX, classes)
    with pytest.raises(InvalidInput, match="offset has the shape"):
        model.predict(MATRIX, OFFSETS[:3])


def test_a_column_of_shards_is_an_offset(tmp_path: Any) -> None:
    table = pa.table({"x": MATRIX[:, 0], "shift": 10.0 * OFFSETS, "label": 2.0 * MATRIX[:, 0] + 10.0 * OFFSETS})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    model = StreamRegressor(sigma=1e-3).fit(shards=tmp_path / "a.parquet", offset="shift")
    np.testing.assert_allclose(model.predict(table), table["label"].to_numpy(), atol=0.1)
    assert model.report_.rows >= ROWS
    assert model.get_feature_names_out().tolist() == ["x"]
