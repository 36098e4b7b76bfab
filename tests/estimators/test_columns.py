"""Columns of tables: their types are checked, they have names, and what a user should know about them is a warning."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import streampgs
from streampgs import StreamClassifier, StreamRegressor, StreamWarning
from streampgs.base.errors import DataError, InvalidInput
from streampgs.options.commands import EncodingOptions
from tests.estimators.test_estimators import LABELS, MATRIX, bits

ROWS = 600
CHANCE = np.random.default_rng(0)
TIMES = pa.array(np.arange(ROWS) * 10**9, pa.timestamp("us"))
COLUMNS: dict[str, pa.Array] = {
    "number": pa.array(CHANCE.normal(size=ROWS)),
    "integer": pa.array(CHANCE.integers(0, 10**15, ROWS)),
    "boolean": pa.array(CHANCE.random(ROWS) < 0.5),
    "string": pa.array(CHANCE.choice(["a", "b", "c"], ROWS)),
    "time": TIMES,
    "zoned": TIMES.cast(pa.timestamp("us", "UTC")),
    "duration": TIMES.cast(pa.int64()).cast(pa.duration("us")),
    "list": pa.FixedSizeListArray.from_arrays(pa.array(CHANCE.normal(size=2 * ROWS)), 2),
    "null": pa.nulls(ROWS),
}
FITTED = ["number", "boolean", "string", "time", "zoned", "list"]
CLASSES = np.arange(ROWS) % 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, streampgs.Model]:
    """A model of a run for each type of a column, next to a column of strings."""
    found = {}
    for kind in FITTED:
        run = tmp_path_factory.mktemp("runs") / kind
        table = pa.table({"x": COLUMNS[kind], "kind": COLUMNS["string"]})
        streampgs.train(table, CLASSES, run=run, epochs=1, sigma=0.1, progress=False)
        found[kind] = streampgs.Model.load(run)
    return found


@pytest.mark.parametrize("kind", FITTED)
def test_an_estimator_refuses_the_types_that_a_model_of_a_run_refuses(
    kind: str, runs: dict[str, streampgs.Model]
) -> None:
    model = StreamClassifier(epochs=1, sigma=0.1)
    model.fit(pa.table({"x": COLUMNS[kind], "kind": COLUMNS["string"]}), CLASSES)
    refused = set()
    for other, column in COLUMNS.items():
        table = pa.table({"x": column, "kind": COLUMNS["string"]})
        try:
            runs[kind].decision_function(table)
        except DataError as error:
            refused.add(other)
            for method in (model.predict, model.decision_function, lambda rows: model.partial_fit(rows, CLASSES)):
                with pytest.raises(InvalidInput) as caught:
                    method(table)
                assert str(caught.value) == str(error)
        else:
            assert np.isfinite(model.decision_function(table)).all()
    assert refused
    assert {"null", kind}.isdisjoint(refused)


def test_columns_that_are_missing_are_refused() -> None:
    pairs = pa.StructArray.from_arrays([COLUMNS["number"], COLUMNS["string"]], ["size", "kind"])
    model = StreamClassifier(epochs=1).fit(pa.table({"x": pairs}), CLASSES)
    with pytest.raises(InvalidInput, match=r"no column 'x\.kind'"):
        model.predict(pa.table({"x": pa.StructArray.from_arrays([COLUMNS["number"]], ["size"])}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pa.table({"y": pairs}))


def test_a_frame_that_is_not_collected_yet_is_collected() -> None:
    frame = pl.DataFrame({"x": MATRIX[:, 0], "kind": ["a", "b"] * (len(MATRIX) // 2)})
    model = StreamClassifier(epochs=2).fit(frame.lazy(), LABELS)
    assert bits(model) == bits(StreamClassifier(epochs=2).fit(frame, LABELS))
    assert (model.predict(frame.lazy()) == model.predict(frame)).all()


# Numbers of which a part would be lost.


# Warnings.

NUMBER = CHANCE.normal(size=ROWS)
LABEL = (NUMBER + CHANCE.normal(size=ROWS) > 0.0).astype(int)
WARNED: dict[str, tuple[Any, str]] = {
    "an id": ([f"order {number}" for number in range(ROWS)], r"its own value in column 'x'.*ignore='x'"),
    "a text": ([f"the {n} words of text {n} differ" for n in range(ROWS)], r"'x' looks like text.*text='x'"),
    "the label": (2.0 * LABEL - 1.0, r"column 'x' alone predicts 'y'.*ignore='x'"),
    "a huge number": (np.where(np.arange(ROWS) == 5, 1e9, NUMBER), "1 row has a number beyond 8 standard deviations"),
    "a large integer": (np.arange(ROWS) + 2**60, r"whole numbers of 2\^53 or more.*category='x'"),
}


@pytest.mark.parametrize("what", WARNED)
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_what_a_user_should_know_is_a_warning(what: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, words = WARNED[what]
    monkeypatch.setattr("streampgs.python.estimators.base._ENOUGH_ROWS", 550)
    frame, model = pd.DataFrame({"number": NUMBER, "x": values}), StreamClassifier(epochs=1, sigma=0.1)
    with pytest.warns(StreamWarning, match=words) as caught:
        model.fit(frame, LABEL) if way == "fit" else model.partial_fit(frame, LABEL, [0, 1])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ignoring = clone(model).set_params(ignore="x").fit(frame, LABEL)
    assert ignoring.get_feature_names_out().tolist() == ["number"]


# Names and parameters.


def test_the_parameters_are_options_of_train_with_the_same_defaults() -> None:
    train = inspect.signature(streampgs.train).parameters
    assert {each.name for each in fields(EncodingOptions)} <= set(inspect.signature(StreamClassifier).parameters)
    for estimator in (StreamClassifier, StreamRegressor):
        parameters = dict(inspect.signature(estimator).parameters)
        assert next(iter(parameters)) == "loss"
        assert [one.kind.name for one in parameters.values()][:2] == ["POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"]
        own = {"loss", "random_state", "memory"}
        kept_as_they_are = {"numbers": "linear", "find_crosses": "off"}  # coef_ has a weight for each column
        assert {name: parameters[name].default for name in kept_as_they_are} == kept_as_they_are
        for name in parameters.keys() - own - kept_as_they_are.keys():
            assert name in (estimator.__doc__ or "")
            assert parameters[name].default == train[name].default or parameters[name].default == "auto", name


@pytest.mark.parametrize(
    "options",
    [
        {"text": "x", "ngrams": (1, 2)},
        {"text": "x", "char_ngrams": (2, 3)},
        {"text": "x", "text_weights": "binary"},
        {"hash_bits": 4},
        {"hash_seed": 7},
        {"vocabulary": True},
        {"features": ["x"]},
        {"ignore": ["x"]},
        {"null_flags": True},
        {"cyclic": ["when"]},
        {"category": ["number"]},
        {"category": ["number"], "cross": [("x", "number")]},
    ],
)
def test_options_of_columns_change_the_features(options: dict[str, Any]) -> None:
    gaps = pa.array(MATRIX[:, 0], mask=np.arange(len(MATRIX)) % 7 == 0)
    words = pa.array(CHANCE.choice(["red car", "blue car", "old red cup"], len(MATRIX)))
    table = pa.table({"x": words, "number": gaps, "when": TIMES[: len(MATRIX)]})
    plain = StreamClassifier(epochs=1, sigma=0.1).fit(table, LABELS)
    other = StreamClassifier(epochs=1, sigma=0.1, **options).fit(table, LABELS)
    assert bits(other) != bits(plain)
    assert other.decision_function(table).shape == LABELS.shape
    with pytest.raises(InvalidInput, match="no named columns"):
        StreamClassifier(**options).fit(MATRIX, LABELS)
