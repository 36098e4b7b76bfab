"""`streampgs evaluate`: metrics of ordinary tables, by group, and for labels that the model does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest
from sklearn import metrics as sklearn_metrics

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.metrics import groups

ROWS = 3_000


def flights(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Of columns of all types that groups may have, with nulls, and labels of three kinds."""
    random = np.random.default_rng(seed)
    carrier = random.choice(["AA", "UA", "DL"], rows)
    frame = pd.DataFrame(
        {
            "distance": random.normal(500.0, 100.0, rows),
            "hour": random.integers(0, 24, rows),
            "carrier": np.where(random.random(rows) < 0.1, None, carrier),
            "night": random.random(rows) < 0.3,
            "gate": pd.Categorical(random.choice(["a", "b"], rows)),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(random.integers(0, 3, rows), "D"),
            "terminal": np.where(random.random(rows) < 0.2, np.nan, random.integers(1, 3, rows)),
            "importance": random.uniform(0.5, 2.0, rows),
        }
    )
    score = (frame["hour"] - 14) / 4 + 2.0 * (frame["carrier"] == "UA") - 2.0 + random.normal(0.0, 1.0, rows)
    frame["late"] = score > 0.0
    frame["weather"] = np.select([frame["hour"] < 8, frame["hour"] < 16], ["cold", "mild"], "warm")
    frame["delay"] = 10.0 * score
    return frame


LABELS: dict[str, dict[str, Any]] = {
    "late": {},
    "weather": {},
    "delay": {"loss": "squared"},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("flights")
    flights().to_parquet(base / "train.parquet")
    test = flights(seed=1)
    (base / "test").mkdir()
    test[:1_000].to_parquet(base / "test" / "a.parquet", row_group_size=300)
    pa.feather.write_feather(pa.Table.from_pandas(test[1_000:]), base / "test" / "b.arrow", compression="uncompressed")
    for label, options in LABELS.items():
        others = tuple({"importance", *LABELS} - {label})
        streampgs.train(
            str(base / "train.parquet"), run=base / label, label=label, weight="importance", ignore=others, epochs=2,
            **options,
        )  # fmt: skip
    return base


def of(base: Path, label: str, **options: Any) -> dict[str, Any]:
    return evaluate(streampgs.Model.load(base / label), [str(base / "test")], **options)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("by", ["carrier", "night", "hour", "gate", "day", "terminal", "late", "delay_kind"])
def test_the_metrics_of_a_group_are_those_of_its_rows_alone(base: Path, label: str, by: str, tmp_path: Path) -> None:
    """A group may come from a feature, from a label, or from a column that was ignored in training."""
    frame = flights(seed=1)
    frame["delay_kind"] = (frame["delay"] // 20).astype("Int8")
    frame.to_parquet(tmp_path / "all.parquet", row_group_size=700)
    model = streampgs.Model.load(base / label)
    found = evaluate(model, [str(tmp_path / "all.parquet")], by=by)
    assert found["by"]["column"] == by
    each = found["by"]["groups"]
    assert sum(group["rows"] for group in each) == found["rows"] == ROWS
    assert [group["rows"] for group in each] == sorted((group["rows"] for group in each), reverse=True)
    values = frame[by].astype(object).where(frame[by].notna(), None)
    assert {str(group["value"]) for group in each} == {str(groups.group_value(one)) for one in values.unique()}
    for group in each[:4]:
        rows = frame[[groups.group_value(one) == group["value"] for one in values]]
        rows.to_parquet(tmp_path / "some.parquet")
        expected = evaluate(model, [str(tmp_path / "some.parquet")])
        assert group["rows"] == expected["rows"]
        for name, value in expected.items():
            by_bins = name.endswith(("auc", "average_precision"))  # of more than some hundred rows
            if isinstance(value, float):
                assert group[name] == pytest.approx(value, rel=1e-3 if by_bins else 1e-9), name
            elif name == "confusion":
                np.testing.assert_allclose(group[name], value, rtol=1e-9)
            elif name == "per_class":
                assert [one["class"] for one in group[name]] == [one["class"] for one in value]
                for one, other in zip(group[name], value, strict=True):
                    assert one["f1"] == pytest.approx(other["f1"])
        assert group["baseline"].keys() == expected["baseline"].keys()


def test_weighted_metrics_agree_with_scikit_learn(base: Path) -> None:
    frame, found = flights(seed=1), of(base, "late")
    model = streampgs.Model.load(base / "late")
    probabilities, weights = model.predict_proba(pa.Table.from_pandas(frame))[:, 1], frame["importance"]
    chosen, labels = probabilities > 0.5, frame["late"]
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(labels, chosen, sample_weight=weights),
        "precision": sklearn_metrics.precision_score(labels, chosen, sample_weight=weights),
        "recall": sklearn_metrics.recall_score(labels, chosen, sample_weight=weights),
        "f1": sklearn_metrics.f1_score(labels, chosen, sample_weight=weights),
        "auc": sklearn_metrics.roc_auc_score(labels, probabilities, sample_weight=weights),
        "average_precision": sklearn_metrics.average_precision_score(labels, probabilities, sample_weight=weights),
        "log_loss": sklearn_metrics.log_loss(labels, probabilities, sample_weight=weights),
        "brier": sklearn_metrics.brier_score_loss(labels, probabilities, sample_weight=weights),
        "base_rate": np.average(labels, weights=weights),
        "mean_probability": np.average(probabilities, weights=weights),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert found["classes"] == [False, True]
    share = max(expected["base_rate"], 1.0 - expected["base_rate"])
    assert found["baseline"]["accuracy"] == pytest.approx(share)
    matrix = sklearn_metrics.confusion_matrix(labels, chosen, sample_weight=weights)
    np.testing.assert_allclose(found["confusion"], matrix, rtol=1e-9)
