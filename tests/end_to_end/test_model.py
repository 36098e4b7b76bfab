"""Weights, predictions and metrics agree with each other and with the definitions of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import log_loss, roc_auc_score

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict
from tests.end_to_end.conftest import Tables


def rows_in(folder: Path) -> tuple[Any, NDArray[np.float64]]:
    """Features and labels of a dataset, by pyarrow alone."""
    tables = [pa.ipc.open_file(str(path)).read_all() for path in sorted(folder.glob("*.arrow"))]
    table = pa.concat_tables(tables).combine_chunks()
    labels = table["label"].to_numpy().astype(float)
    if "features" in table.column_names:
        return np.array(table["features"].to_pylist()), labels
    indices, values = table["indices"].chunk(0), table["values"].chunk(0)
    matrix = sparse.csr_matrix(
        (values.flatten().to_numpy(), indices.flatten().to_numpy(), indices.offsets.to_numpy()),
        shape=(len(labels), 47_236),
    )
    return matrix, labels


@pytest.fixture(scope="module")
def sparse_run(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "sparse"
    streampgs.train(tables.path("sparse", "arrow"), run=run, epochs=3)
    return run


def test_evaluate_agrees_with_scikit_learn(sparse_run: Path, tables: Tables) -> None:
    model = streampgs.Model.load(sparse_run)
    rows, labels = rows_in(tables.test_path("sparse"))
    scores = model.decision_function(rows)
    result = evaluate(model, [str(tables.test_path("sparse"))])
    assert result["rows"] == 1_000
    assert result["accuracy"] == pytest.approx(np.mean(model.predict(rows) == labels), abs=1e-12)
    assert result["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-4)
    assert result["loss"] == pytest.approx(log_loss(labels, model.predict_proba(rows)[:, 1]), rel=1e-6)


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".csv"])
def test_predictions_of_a_file_are_those_of_the_model_in_the_order_of_the_rows(
    ending: str, sparse_run: Path, tables: Tables, tmp_path: Path
) -> None:
    model = streampgs.Model.load(sparse_run)
    out = tmp_path / f"predictions{ending}"
    assert predict(model, [str(tables.test_path("sparse"))], out)["rows"] == 1_000
    if ending == ".parquet":
        table = pq.read_table(out)
    elif ending == ".arrow":
        table = pa.ipc.open_file(str(out)).read_all()
    else:
        from pyarrow import csv

        table = csv.read_csv(out)
    rows, _ = rows_in(tables.test_path("sparse"))
    np.testing.assert_allclose(table["score"].to_numpy(), model.decision_function(rows), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(table["prediction"].to_numpy(), model.predict(rows))
    np.testing.assert_allclose(table["probability"].to_numpy(), model.predict_proba(rows)[:, 1], rtol=1e-6)


def test_predict_skips_bad_rows_with_nulls_in_their_places(sparse_run: Path, tmp_path: Path) -> None:
    table = pa.table({"indices": [[1, 2], [3, 3], [4]], "values": [[1.0, 2.0], [1.0, 1.0], [float("nan")]]})
    pq.write_table(table, tmp_path / "rows.parquet")
    model = streampgs.Model.load(sparse_run)
    with pytest.raises(streampgs.StreampgsError, match="named twice"):
        predict(model, [str(tmp_path / "rows.parquet")], tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()
    predict(model, [str(tmp_path / "rows.parquet")], tmp_path / "out.parquet", skip_bad_rows=True)
    assert [score is None for score in pq.read_table(tmp_path / "out.parquet")["score"].to_pylist()] == [
        False,
        True,
        True,
    ]


def test_weights_count_like_copies(tables: Tables, tmp_path: Path) -> None:
    """A whole-number weight does what that many copies of the row do, to the certificate's accuracy."""
    random = np.random.default_rng(2)
    features = random.normal(size=(400, 5)).astype(np.float32)
    labels = np.where(features @ [1.0, -1.0, 0.5, 0.0, 2.0] + random.normal(size=400) > 0, 1, -1)
    weights = random.integers(0, 4, 400)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 5)
    weighted = pa.table({"label": labels, "features": lists, "w": weights})
    copies = np.repeat(np.arange(400), weights)
    pq.write_table(weighted, tmp_path / "weighted.parquet")
    pq.write_table(weighted.drop_columns("w").take(copies), tmp_path / "copied.parquet")
    # Weights multiply a row's loss and the mean is over rows, so sigma is scaled by the mean weight.
    ratio = weights.mean()
    streampgs.train(tmp_path / "weighted.parquet", run=tmp_path / "a", weight="w", sigma=0.01 * ratio, epochs=400)
    streampgs.train(tmp_path / "copied.parquet", run=tmp_path / "b", sigma=0.01, epochs=400)
    a, b = streampgs.Model.load(tmp_path / "a"), streampgs.Model.load(tmp_path / "b")
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=0.01, atol=0.005)
