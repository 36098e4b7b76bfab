"""Curves as a user meets them: in inspect, in pictures and in estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs import StreamClassifier, StreamRegressor
from tests.end_to_end.commands import streampgs as command


def bent(rows: int = 4_000) -> pd.DataFrame:
    draw = np.random.default_rng(5)
    x, y = draw.gamma(2.0, size=rows), draw.integers(0, 6, rows)
    label = (np.sin(2.0 * x) + (y == 3) + 0.3 * draw.logistic(size=rows) > 0.3).astype(int)
    return pd.DataFrame({"x": x, "y": y, "label": label})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    bent().to_parquet(folder / "table.parquet")
    streampgs.train(folder / "table.parquet", run=folder / "run", numbers="curves", find_crosses="off", progress=False)
    return folder / "run"


def test_points_of_a_curve_are_what_scores_differ_by(run: Path) -> None:
    (curves,) = [streampgs.inspect(run, top=5)["curves"]]
    model = streampgs.Model.load(run)
    assert {curve["column"] for curve in curves} == {"x", "y"}
    for curve in curves:
        knots, effects = np.array(curve["points"]).T
        rows = pa.table({name: knots if name == curve["column"] else np.zeros(len(knots)) for name in ("x", "y")})
        rows = rows.set_column(1, "y", rows["y"].cast(pa.int64()))
        scores = model.decision_function(rows)
        assert np.diff(scores) == pytest.approx(np.diff(effects), abs=1e-4)
        assert np.mean(effects) == pytest.approx(0.0, abs=1e-9)
        assert curve["range"] == pytest.approx(np.ptp(effects))


def test_curves_are_printed_with_the_largest_weights(run: Path) -> None:
    printed = command("inspect", str(run), "--top", "2").out
    lines = printed.splitlines()
    place = lines.index(next(line for line in lines if line.startswith("curve of")))
    assert [line.split()[0] for line in lines[place + 1 : place + 5]] == ["x", "adds", "y", "adds"] or [
        line.split()[0] for line in lines[place + 1 : place + 5]
    ] == ["y", "adds", "x", "adds"]
    assert any("near" in line for line in lines)


def test_curves_are_drawn(run: Path, tmp_path: Path) -> None:
    streampgs.inspect(run, curves=tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_of_what_has_no_curves_are_refused(run: Path, tmp_path: Path) -> None:
    table = run.parent / "table.parquet"
    streampgs.train(table, run=tmp_path / "run", numbers="linear", find_crosses="off", epochs=1, progress=False)
    for target, file, found in (
        (tmp_path / "run", "c.png", "without curves"),
        (table, "c.png", "not a run"),
        (run, "c.txt", "c.txt"),
    ):
        with pytest.raises(streampgs.StreampgsError, match=found):
            streampgs.inspect(target, curves=tmp_path / file)


def loss(model: Any, rows: pd.DataFrame) -> float:
    chances = model.predict_proba(rows[["x", "y"]])[np.arange(len(rows)), rows["label"]]
    return float(-np.log(chances).mean())


def test_estimators_take_curves_for_tables() -> None:
    rows = bent()
    train, test = rows[:3_000], rows[3_000:]
    losses = {}
    for numbers in ("linear", "curves", "auto"):
        model = StreamClassifier(numbers=numbers).fit(train[["x", "y"]], train["label"])
        losses[numbers] = loss(model, test)
    assert losses["auto"] == losses["curves"] < 0.8 * losses["linear"]


def test_estimators_find_crosses_in_tables() -> None:
    draw = np.random.default_rng(6)
    rows = pd.DataFrame({"a": draw.normal(size=3_000), "b": draw.normal(size=3_000)})
    labels = rows["a"] * rows["b"] + 0.1 * draw.normal(size=3_000)
    plain, crossed = (
        StreamRegressor(find_crosses=choice).fit(rows[:2_000], labels[:2_000]) for choice in ("off", "auto")
    )
    assert plain.score(rows[2_000:], labels[2_000:]) < 0.1
    assert crossed.score(rows[2_000:], labels[2_000:]) > 0.7


def test_arrays_have_no_columns_that_could_have_curves() -> None:
    with pytest.raises(ValueError, match="numbers=… with rows that have no named columns"):
        StreamClassifier(numbers="curves").fit(np.zeros((10, 2)), np.arange(10) % 2)


def test_a_run_continues_with_curves_when_shards_join(tmp_path: Path) -> None:
    rows = bent(6_000)
    (tmp_path / "table").mkdir()
    rows[:4_000].to_parquet(tmp_path / "table" / "first.parquet")
    streampgs.train(tmp_path / "table", run=tmp_path / "run", progress=False, find_crosses="off")
    later = rows[4_000:].assign(z=np.arange(2_000.0))
    pq.write_table(pa.Table.from_pandas(later, preserve_index=False), tmp_path / "table" / "second.parquet")
    streampgs.resume(tmp_path / "run", progress=False)
    model = streampgs.Model.load(tmp_path / "run")
    assert model.encoding is not None
    assert [column.name for column in model.encoding.all_columns if column.kind == "curve"] == [
        "curve of x",
        "curve of y",
        "curve of z",
    ]
    assert streampgs.evaluate(tmp_path / "run", tmp_path / "table" / "second.parquet")["log_loss"] < 0.5
