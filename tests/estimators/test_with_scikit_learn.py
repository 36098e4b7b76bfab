"""Estimators as parts of what scikit-learn builds from estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from streampgs import StreamClassifier
from tests.estimators.test_estimators import LABELS, MATRIX, NAMES, bits, mixed_table


def test_in_a_pipeline() -> None:
    model = make_pipeline(StandardScaler(), StreamClassifier())
    assert model.fit(MATRIX, LABELS).score(MATRIX, LABELS) > 0.8
    words = make_pipeline(TfidfVectorizer(), StreamClassifier())
    assert words.fit(["a good one", "a bad one"] * 20, [1, 0] * 20).predict(["good", "bad"]).tolist() == [1, 0]


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_behind_a_column_transformer(output: str) -> None:
    table, labels = mixed_table()
    columns = ColumnTransformer(
        [("words", OneHotEncoder(sparse_output=output == "default"), ["color"]), ("numbers", "passthrough", ["size"])]
    )
    columns.set_output(transform=output)
    model = make_pipeline(columns, StreamClassifier())
    gaps_filled = table.fillna({"size": 100.0})
    assert model.fit(gaps_filled, labels).score(gaps_filled, labels) > 0.9


def test_in_a_grid_search() -> None:
    search = GridSearchCV(
        StreamClassifier(epochs=20), {"sigma": [1e-3, 1e-2, 100.0], "loss": ["logistic", "hinge"]}, cv=3
    )
    search.fit(MATRIX, LABELS)
    assert search.best_params_["sigma"] != 100.0
    assert search.best_score_ > 0.7


def test_in_processes_of_joblib() -> None:
    search = GridSearchCV(StreamClassifier(epochs=2), {"sigma": [1e-3, 1e-2]}, cv=2)
    alone = search.fit(MATRIX, LABELS).cv_results_["mean_test_score"]
    assert (search.set_params(n_jobs=2).fit(MATRIX, LABELS).cv_results_["mean_test_score"] == alone).all()


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_calibrated(loss: str) -> None:
    model = CalibratedClassifierCV(StreamClassifier(loss=loss), cv=3).fit(MATRIX, LABELS)
    found = model.predict_proba(MATRIX)
    assert abs(found[:, 1].mean() - LABELS.mean()) < 0.05


def test_in_ensembles() -> None:
    bagging = BaggingClassifier(StreamClassifier(epochs=5), n_estimators=3, random_state=0).fit(MATRIX, LABELS)
    stacked = StackingClassifier([("a", StreamClassifier(epochs=5))], StreamClassifier(epochs=5), cv=2).fit(
        MATRIX, LABELS
    )
    assert min(bagging.score(MATRIX, LABELS), stacked.score(MATRIX, LABELS)) > 0.75


def test_weights_are_routed() -> None:
    weights = np.arange(len(LABELS)) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            StreamClassifier().set_fit_request(sample_weight=True),
        )
        model.fit(MATRIX, LABELS, sample_weight=weights)
    scaled = StandardScaler().fit_transform(MATRIX)
    assert bits(model[-1]) == bits(StreamClassifier().fit(scaled, LABELS, weights))


def test_names_of_columns_are_checked() -> None:
    frame = pd.DataFrame(MATRIX, columns=NAMES)
    model: Any = StreamClassifier().fit(frame, LABELS)
    assert (model.n_features_in_, model.feature_names_in_.tolist()) == (5, NAMES)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[NAMES[::-1]])
