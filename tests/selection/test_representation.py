"""What becomes of columns where the user leaves it open: curves, crosses and scales where they help, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

import streampgs
from streampgs.data.feature_maps import FrequencyScale
from streampgs.run.folder import RunFolder
from streampgs.run.saved import saved_run
from streampgs.selection.crosses import found_crosses

ROWS = 6_000
Made = Callable[[np.random.Generator, dict[str, Any]], Any]


def table(scores: Made, rows: int = ROWS, regression: bool = False) -> pa.Table:
    draw = np.random.default_rng(7)
    columns: dict[str, Any] = {name: draw.normal(size=rows) for name in ("a", "b", "c")}
    kinds = draw.integers(0, 4, rows)
    columns["kind"] = [f"kind {kind}" for kind in kinds]
    found = scores(draw, {**columns, "kind": kinds})
    noise = draw.normal(size=rows) if regression else draw.logistic(size=rows)
    return pa.table({**columns, "label": found + noise if regression else (found + noise > 0.0).astype(int)})


def trained(tmp_path: Path, rows: pa.Table, **options: Any) -> tuple[Any, Any]:
    """The encoding of a run with default options, and its report."""
    pq.write_table(rows, tmp_path / "table.parquet")
    report = streampgs.train(tmp_path / "table.parquet", run=tmp_path / "run", epochs=1, progress=False, **options)
    saved = saved_run(tmp_path / "run")
    return RunFolder(tmp_path / "run").encoding(saved.record.encoding), report


def straight(draw: Any, x: dict[str, Any]) -> Any:
    return 2.0 * x["a"] - x["b"] + 0.5 * x["kind"]


def bent(draw: Any, x: dict[str, Any]) -> Any:
    return 2.0 * np.abs(x["a"]) - x["b"]


def planted(draw: Any, x: dict[str, Any]) -> Any:
    slopes = np.array([2.0, -2.0, 1.0, -1.0])
    return 2.0 * x["a"] * x["b"] + slopes[x["kind"]] * x["c"]


@pytest.mark.parametrize("regression", [False, True])
def test_a_table_without_curves_and_crosses_gets_none(tmp_path: Path, regression: bool) -> None:
    loss = {"loss": "squared"} if regression else {}
    encoding, report = trained(tmp_path, table(straight, regression=regression), **loss)
    assert [column.kind for column in encoding.columns] == ["number"] * 3 + ["category"]
    assert any("numbers are used without them" in note for note in report.notes)


@pytest.mark.parametrize("regression", [False, True])
def test_numbers_get_curves_where_they_help(tmp_path: Path, regression: bool) -> None:
    loss = {"loss": "squared"} if regression else {}
    encoding, report = trained(tmp_path, table(bent, regression=regression), **loss)
    assert [column.name for column in encoding.columns if column.kind == "curve"] == [
        f"curve of {name}" for name in "abc"
    ]
    assert any("they are used (numbers='linear' leaves them out)" in note for note in report.notes)


@pytest.mark.parametrize("regression", [False, True])
def test_planted_crosses_are_found_and_no_others(tmp_path: Path, regression: bool) -> None:
    loss = {"loss": "squared"} if regression else {}
    encoding, report = trained(tmp_path, table(planted, regression=regression), **loss)
    assert {column.name for column in encoding.columns if "×" in column.name} == {"a×b", "c×kind"}
    assert any("crosses" in note and "find_crosses='off'" in note for note in report.notes)


def test_what_the_user_chooses_is_not_changed(tmp_path: Path) -> None:
    encoding, _ = trained(tmp_path, table(planted), numbers="linear", find_crosses="off", cross="a,kind")
    assert [column.name for column in encoding.columns] == ["a", "b", "c", "kind", "a×kind"]


def test_a_cross_that_holds_at_one_time_only_is_not_used() -> None:
    """In the second half of the rows the effect has the other sign."""
    draw = np.random.default_rng(1)
    first, second = draw.integers(0, 3, (2, 4_000))
    effect = np.where(first == second, 1.0, -0.5)
    times = {"always": effect, "at first": effect * np.repeat([1.0, -1.0], 2_000)}
    found = {}
    for name, slopes in times.items():
        arrays = {"first": pa.array(first.astype(str)), "second": pa.array(second.astype(str))}
        columns = streampgs_columns(arrays)
        labels = (slopes + draw.normal(size=4_000))[np.newaxis]
        found[name] = found_crosses(columns, [arrays], np.arange(4_000), np.zeros_like(labels), labels, "squared")
    assert found == {"always": [("first", "second")], "at first": []}


def streampgs_columns(arrays: dict[str, Any]) -> Any:
    from streampgs.encoding.plan import plan_columns
    from streampgs.options.commands import EncodingOptions

    schema = pa.schema([pa.field(name, array.type) for name, array in arrays.items()])
    return plan_columns(schema, EncodingOptions(), {}, "a table").columns


def rare_and_frequent(power: float, rows: int = 8_000, values: int = 2_000) -> pa.Table:
    """Rare values have the larger effects if `power` is above 0."""
    draw = np.random.default_rng(4)
    shares = 1.0 / np.arange(1, values + 1) ** 0.8
    codes = draw.choice(values, (rows, 5), p=shares / shares.sum())
    effects = draw.normal(size=values) * (np.arange(1, values + 1) / 20.0) ** power
    labels = (effects[codes].sum(axis=1) + draw.logistic(size=rows) > 0.0).astype(int)
    indices = [sorted(set(row)) for row in codes.tolist()]
    return pa.table({"indices": pa.array(indices, pa.list_(pa.int32())), "label": labels})


def power_of(run: Path) -> float:
    found = saved_run(run).checkpoint
    from streampgs.data.feature_maps import MapStage

    maps = MapStage()
    found.restore(maps, required=False)
    return maps.map.power if isinstance(maps.map, FrequencyScale) else 0.0


@pytest.mark.parametrize(("effects", "scaled"), [(0.6, True), (-0.8, False)])
def test_features_are_scaled_by_frequency_where_it_helps(tmp_path: Path, effects: float, scaled: bool) -> None:
    pq.write_table(rare_and_frequent(effects), tmp_path / "table.parquet")
    report = streampgs.train(tmp_path / "table.parquet", run=tmp_path / "run", progress=False)
    assert (power_of(tmp_path / "run") > 0.0) == scaled
    assert any("rare features count more" in note for note in report.notes) == scaled


def test_with_a_sigma_of_the_user_nothing_is_scaled(tmp_path: Path) -> None:
    pq.write_table(rare_and_frequent(0.6), tmp_path / "table.parquet")
    streampgs.train(tmp_path / "table.parquet", run=tmp_path / "run", progress=False, sigma=1e-4)
    assert power_of(tmp_path / "run") == 0.0


@pytest.mark.parametrize("scaled", [False, True], ids=["curves and crosses", "scales"])
def test_pauses_change_nothing(tmp_path: Path, scaled: bool) -> None:
    """The runs pause between windows and inside them."""
    rows = rare_and_frequent(0.6, 12_000) if scaled else table(lambda draw, x: planted(draw, x) + bent(draw, x), 12_000)
    (tmp_path / "data").mkdir()
    for part in range(3):
        pq.write_table(rows.slice(4_000 * part, 4_000), tmp_path / "data" / f"{part}.parquet")
    small: dict[str, Any] = {"memory": "60MB", "window": "300kB", "progress": False}
    whole = streampgs.train(tmp_path / "data", run=tmp_path / "whole", epochs=2, **small)
    assert (power_of(tmp_path / "whole") > 0.0) == scaled
    streampgs.train(tmp_path / "data", run=tmp_path / "paused", epochs=2, rows=1, **small)
    for stop in range(3_000, 24_000, 3_000):
        streampgs.resume(tmp_path / "paused", rows=stop, progress=False)
    paused = streampgs.resume(tmp_path / "paused", rows=24_000, progress=False)
    assert paused.dual_sha256 == whole.dual_sha256
    models = [streampgs.Model.load(tmp_path / name) for name in ("whole", "paused")]
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()
    assert streampgs.evaluate(models[0], tmp_path / "data")["log_loss"] < 0.6


def test_with_many_classes_numbers_stay_as_they_are(tmp_path: Path) -> None:
    rows = table(bent)
    labels = np.digitize(rows["a"].to_numpy(), [-1.0, -0.5, 0.0, 0.5, 1.0])
    rows = rows.set_column(rows.column_names.index("label"), "label", pa.array(labels))
    encoding, report = trained(tmp_path, rows, classes="auto")
    assert [column.kind for column in encoding.columns] == ["number"] * 3 + ["category"]
    assert encoding.options.numbers == "linear"
    assert not any("curves" in note for note in report.notes)


def test_rows_that_cannot_be_used_decide_nothing(tmp_path: Path) -> None:
    """They are counted where they are read."""
    rows = table(bent)
    bad = np.zeros(len(rows), bool)
    bad[::100] = True
    indices = pa.array([[-1] if one else [k % 7] for k, one in enumerate(bad)], pa.list_(pa.int32()))
    values = pa.array([[1.0]] * len(rows), pa.list_(pa.float32()))
    b = np.where(np.roll(bad, 1), np.inf, rows["b"].to_numpy())
    rows = rows.set_column(1, "b", pa.array(b)).append_column("indices", indices).append_column("values", values)
    encoding, report = trained(tmp_path, rows, on_bad_row="skip")
    assert "curve of a" in encoding.first_of
    assert sum(report.skipped_rows.values()) == 120


def test_an_estimator_scales_features_as_a_run_does(tmp_path: Path) -> None:
    rows = rare_and_frequent(0.6)
    pq.write_table(rows, tmp_path / "table.parquet")
    streampgs.train(tmp_path / "table.parquet", run=tmp_path / "run", progress=False)
    of_run = streampgs.evaluate(tmp_path / "run", tmp_path / "table.parquet")["log_loss"]
    lists = rows["indices"].combine_chunks()
    entries = (np.ones(len(lists.values)), lists.values.to_numpy(), lists.offsets.to_numpy())
    matrix, labels = csr_array(entries, shape=(len(rows), 2_000)), rows["label"].to_numpy()
    model = streampgs.StreamClassifier().fit(matrix, labels)
    assert isinstance(model._fitted.training.models.maps.map, FrequencyScale)
    assert model.decision_function(matrix) == pytest.approx(matrix @ model.coef_[0] + model.intercept_[0], abs=1e-4)
    chances = model.predict_proba(matrix)[np.arange(len(labels)), labels]
    assert float(-np.log(chances).mean()) == pytest.approx(of_run, rel=0.03)
