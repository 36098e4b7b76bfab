"""Numbers for features: they depend on the order of the rows alone, and a model with them is the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streampgs
from streampgs.base.stage import Bundle
from streampgs.data.feature_maps import MapStage, Numbering, numbering
from streampgs.data.row_form import RowForm
from streampgs.kernels.rows import Rows
from streampgs.options.commands import ModelOptions
from streampgs.reading.window import Window
from streampgs.run import shown
from streampgs.run.models import Models
from streampgs.run.report import Observer
from streampgs.run.saved import saved_run

SPACE = 1 << 17
WIDE = st.lists(st.lists(st.integers(0, SPACE - 1), max_size=6, unique=True), max_size=12)


def rows_of(features: list[list[int]]) -> Rows:
    stops = np.cumsum([len(row) for row in features]).astype(np.int64)
    indices = np.array([feature for row in features for feature in sorted(row)], np.uint32)
    starts = np.append(0, stops)[:-1].astype(np.int64)
    return Rows(starts, stops, indices, np.ones(len(indices), np.float32), features=SPACE)


def plain_numbers(windows: list[list[list[int]]]) -> list[int]:
    """The features in the order in which rows show them."""
    return list(dict.fromkeys(feature for rows in windows for row in rows for feature in sorted(row)))


@given(windows=st.lists(WIDE, min_size=1, max_size=4))
def test_features_are_numbered_in_the_order_in_which_rows_show_them(windows: list[list[list[int]]]) -> None:
    own = Numbering(SPACE)
    for number, features in enumerate(windows):
        known = plain_numbers(windows[: number + 1])
        rows = rows_of(features)
        taken = own.taken(rows)
        assert own.listed.tolist() == known
        assert taken.features == own.width == len(known)
        assert [known[place] for place in taken.indices.tolist()] == rows.indices.tolist()
        assert own.taken(rows).indices.tolist() == taken.indices.tolist(), "opened again after a pause"


@given(taught=WIDE, judged=WIDE)
def test_rows_that_are_only_judged_teach_nothing(taught: list[list[int]], judged: list[list[int]]) -> None:
    own = Numbering(SPACE)
    own.taken(rows_of(taught))
    known = own.listed.tolist()
    mapped = own.mapped(rows_of(judged))
    assert own.listed.tolist() == known
    for number, feature in zip(mapped.indices.tolist(), rows_of(judged).indices.tolist(), strict=True):
        assert (known[number] == feature) if feature in known else (number >= own.width)


@given(windows=st.lists(WIDE, min_size=1, max_size=3), inputs=st.integers(SPACE, 4 * SPACE))
def test_a_numbering_that_was_saved_and_restored_goes_on(windows: list[list[list[int]]], inputs: int) -> None:
    own, stage = Numbering(SPACE), MapStage()
    for features in windows:
        own.taken(rows_of(features))
    own.grow(inputs)
    stage.restore(Bundle(own.state().values, {name: array.copy() for name, array in own.state().arrays.items()}))
    assert isinstance(stage.map, Numbering)
    more = rows_of([[5, 70, SPACE - 1], [9]])
    assert stage.map.taken(more).indices.tolist() == own.taken(more).indices.tolist()
    assert (stage.map.inputs, stage.map.listed.tolist()) == (own.inputs, own.listed.tolist())


@pytest.mark.parametrize(
    ("values", "features"),
    [
        ({"inputs": 4}, np.array([1, 2, 1], np.uint32)),
        ({"inputs": 4}, np.array([1, 4], np.uint32)),
        ({"inputs": 4}, np.array([1.0])),
        ({"inputs": -1}, np.empty(0, np.uint32)),
    ],
    ids=["twice", "beyond", "numbers", "negative"],
)
def test_a_damaged_numbering_is_refused(values: dict[str, Any], features: Any) -> None:
    with pytest.raises(ValueError, match=r"feature|Expected"):
        MapStage().restore(Bundle(values, {"features": features}))


def test_the_number_of_features_to_come_is_forecast_from_the_first_rows() -> None:
    random = np.random.default_rng(3)
    ids = random.permutation(SPACE)[np.minimum(random.zipf(1.4, (20_000, 5)), SPACE - 1)]
    few = rows_of([sorted(set(row)) for row in ids[:2_000].tolist()])
    found = numbering.first_numbering(RowForm(ModelOptions(), None, "sparse"), few)
    assert found is not None
    assert found.expected_width(1.0) == found.width == len(np.unique(few.indices))
    expected, shown = found.expected_width(10.0), len(np.unique(ids))
    assert 0.7 * shown <= expected <= 1.4 * shown
    assert found.expected_width(1e9) == SPACE


def test_memory_is_checked_for_the_features_to_come_before_there_is_a_model() -> None:
    random = np.random.default_rng(4)
    few = rows_of([sorted(set(row)) for row in random.integers(0, SPACE, (500, 5)).tolist()])
    window = Window(few.starts, few.stops, few.indices, few.values, np.ones(500), features=SPACE)
    models, asked = Models(RowForm(ModelOptions(sigma=1e-3), None, "sparse")), [0]
    taken = models.maps.of(models.form, window, True)
    models.prepare(taken, 5_000, 0, lambda specs, features: asked.append(features))
    assert isinstance(models.maps.map, Numbering)
    assert asked[-1] == models.maps.map.expected_width(10.0) > 5 * models.features


# Whole runs.

SMALL = {"memory": "60MB", "window": "100kB", "epochs": 3}
ROWS = 4_000


def shard(path: Path, seed: int, first: int = 0, rows: int = ROWS) -> Path:
    """Rows of a few out of 131,072 features; the later the shard, the more features."""
    random = np.random.default_rng(seed)
    chosen = [first + np.unique(np.minimum(random.zipf(1.3, 12), 20_000)) * 5 for _ in range(rows)]
    weights = np.random.default_rng(0).standard_normal(SPACE)
    labels = [1 if weights[row % SPACE].sum() > 0.0 else -1 for row in chosen]
    indices = pa.array([row.astype(np.uint32) for row in chosen], pa.list_(pa.uint32()))
    values = pa.array([np.ones(len(row), np.float32) for row in chosen], pa.list_(pa.float32()))
    pq.write_table(pa.table({"label": labels, "indices": indices, "values": values}), path)
    return path


def is_numbered(run: Path) -> bool:
    stage = MapStage()
    saved_run(run).checkpoint.restore(stage)
    return isinstance(stage.map, Numbering)


def numbered_features(run: Path) -> int:
    return saved_run(run).race.lanes.features


@pytest.mark.parametrize("options", [{"sigma": 1e-4}, {"p": 1.5, "sigma": 1e-4}, {"l1": 1e-5, "sigma": 1e-4},
                                     {"solver": "sgd"}, {"solver": "l-bfgs", "sigma": 1e-4}], ids=str)  # fmt: skip
def test_a_model_of_numbered_features_is_the_same_model(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, validation = shard(tmp_path / "data.parquet", 1), shard(tmp_path / "validation.parquet", 2, rows=500)
    models = []
    for fewest in (numbering._FEWEST_FEATURES, 1 << 40):
        monkeypatch.setattr(numbering, "_FEWEST_FEATURES", fewest)
        run = tmp_path / str(fewest)
        report = streampgs.train(data, run=run, validation=validation, progress=False, **SMALL, **options)
        models.append((streampgs.Model.load(run), report, streampgs.evaluate(run, validation)))
    (numbered, first, measured), (plain, second, expected) = models
    assert is_numbered(tmp_path / str(1 << 15))
    assert saved_run(tmp_path / str(1 << 40)).race.lanes.features > 2 * numbered_features(tmp_path / str(1 << 15))
    np.testing.assert_allclose(numbered.coef_, plain.coef_, rtol=1e-6, atol=1e-9)
    assert first.judged_loss == pytest.approx(second.judged_loss, rel=1e-6)
    assert measured["loss"] == pytest.approx(expected["loss"], rel=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_pauses_leave_no_trace_while_new_features_come(threads: int, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shard(data / "0.parquet", 1)
    options = {**SMALL, "sigma": 1e-4, "threads": threads}
    runs = []
    for pauses in ([], [1, 700, 701, 3_999, 4_001, 9_000]):
        run = tmp_path / f"run {len(pauses)}"
        streampgs.train(data, run=run, rows=pauses[0] if pauses else None, progress=False, **options)
        for rows in pauses[1:]:
            streampgs.resume(run, rows=rows, progress=False)
        streampgs.resume(run, epochs=3, progress=False)
        assert is_numbered(run)
        runs.append(run)
    shard(data / "1.parquet", 2, first=30_000)
    for rows in (13_000, 14_500):
        streampgs.resume(runs[1], rows=rows, progress=False)
    ended = [streampgs.resume(run, epochs=4, progress=False) for run in runs]
    assert ended[0].rows == ended[1].rows
    assert ended[0].dual_sha256 == ended[1].dual_sha256
    whole, paused = (streampgs.Model.load(run) for run in runs)
    assert np.array_equal(whole.coef_, paused.coef_)


def test_an_observer_sees_how_far_the_search_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_STATUS_SECONDS", 0.0)
    shares: list[float] = []

    class Watching(Observer):
        def searching(self, share: float) -> None:
            shares.append(share)

    streampgs.train(shard(tmp_path / "data.parquet", 1), run=tmp_path / "run", observer=Watching(), epochs=1)
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_model_takes_memory_for_the_features_that_rows_show(tmp_path: Path) -> None:
    table = pq.read_table(shard(tmp_path / "data.parquet", 1))
    seen = len(np.unique(table["indices"].combine_chunks().values.to_numpy()))
    streampgs.train(tmp_path / "data.parquet", run=tmp_path / "run", sigma=1e-4, progress=False, feature_count=1 << 22)
    assert saved_run(tmp_path / "run").race.lanes.features == seen
    model = streampgs.Model.load(tmp_path / "run")
    assert model.weights.size < 1 << 15
    assert model.coef_.shape == (1 << 22,)
