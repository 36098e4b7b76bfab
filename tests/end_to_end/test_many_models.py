"""Several models in one run: searches for σ, grids, classes, label columns and validation. Pauses do not change bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.prediction import predict
from streampgs.options.commands import ModelOptions
from streampgs.run.report import Report
from streampgs.run.saved import saved_run
from tests.end_to_end.conftest import ROWS, Tables

SMALL = {"memory": "60MB", "window": "500kB"}


def results_of(run: Path, report: Report) -> dict[str, Any]:
    """The results of a run that pauses must not change."""
    model = streampgs.Model.load(run)
    race = saved_run(run).race.state().values
    return {
        "digest": report.dual_sha256,
        "chosen": report.chosen,
        "judged": (report.judged_loss, report.judged_accuracy),
        "progressive": (report.progressive_loss, report.progressive_accuracy),
        "gap": report.gap,
        "rows": report.rows,
        "coef": model.coef_.tobytes(),
        "intercept": np.asarray(model.intercept_).tobytes(),
        "targets": model.targets,
        "race": race,
    }


def write(folder: Path, x: NDArray[Any], columns: dict[str, Any], *, files: int = 3, arrow: bool = False) -> Path:
    """Write a dense table of some shards, and return its folder."""
    folder.mkdir()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.astype(np.float32).ravel()), x.shape[1])
    table = pa.table({**columns, "features": lists})
    for number, part in enumerate(np.array_split(np.arange(len(x)), files)):
        own = table.take(part)
        if arrow:
            with pa.ipc.new_file(str(folder / f"part-{number}.arrow"), own.schema) as writer:
                writer.write_table(own)
        else:
            pq.write_table(own, folder / f"part-{number}.parquet")
    return folder


# Searches for σ, with pauses.

# Searches over each layout and format, with batches and with several kinds of loss.
SEARCHES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sparse arrow": ("sparse", "arrow", {}),
    "sparse parquet batches": ("sparse", "parquet", {"loss": "hinge", "batch": 7}),
    "dense arrow p=1.5": ("dense", "arrow", {"p": 1.5}),
    "dense parquet losses": ("dense", "parquet", {"loss": ("hinge", "logistic")}),
    "regression": ("regression", "arrow", {"loss": "squared"}),
    "steps": ("sparse", "arrow", {"solver": "truncated-gradient", "l1": 1e-5}),
}
PAUSES = sorted({1, 511, 512, 513, *np.random.default_rng(4).integers(1, 2 * ROWS, 6).tolist()})


@pytest.fixture(scope="module")
def unpaused(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    base = tmp_path_factory.mktemp("unpaused")
    results = {}
    for number, (name, (kind, file_format, options)) in enumerate(SEARCHES.items()):
        run = base / str(number)
        report = streampgs.train(tables.path(kind, file_format), run=run, epochs=2, **SMALL, **options)
        assert report.lanes == 1, "the search must have ended"
        results[name] = results_of(run, report)
    return results


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_with_pauses_gives_the_same_bits(
    name: str, tables: Tables, unpaused: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    kind, file_format, options = SEARCHES[name]
    run = tmp_path / "run"
    streampgs.train(tables.path(kind, file_format), run=run, rows=PAUSES[0], **SMALL, **options)
    for number, rows in enumerate(PAUSES[1:]):
        memory, cadence = (("60MB", 1e-6), ("512MB", 30.0), ("60MB", 0.01))[number % 3]
        streampgs.resume(run, rows=rows, memory=memory, checkpoint_seconds=cadence)
    report = streampgs.resume(run, epochs=2)
    assert results_of(run, report) == unpaused[name]


# Grids.

GRID: dict[str, Any] = {"loss": ["hinge", "logistic"], "p": [2.0, 1.8], "sigma": [1e-4, 1e-2, 1.0], "ball": [1.0, 50.0]}


@pytest.fixture(scope="module")
def grid(tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    run = tmp_path_factory.mktemp("grid") / "run"
    return run, streampgs.train(tables.path("dense", "arrow"), run=run, epochs=1, **GRID)


def test_a_grid_with_pauses_gives_the_same_bits(grid: tuple[Path, Report], tables: Tables, tmp_path: Path) -> None:
    run = tmp_path / "run"
    streampgs.train(tables.path("dense", "arrow"), run=run, rows=511, **GRID)
    for rows in (512, 513, 1024, 3000, ROWS - 1):
        streampgs.resume(run, rows=rows)
    assert results_of(run, streampgs.resume(run, epochs=1)) == results_of(*grid)


# Classes.


def clouds(rows: int, classes: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of Gaussian clouds around the corners of a simplex, and the number of the cloud of each row."""
    random = np.random.default_rng(seed)
    numbers = random.integers(0, classes, rows)
    centres = 2.5 * np.eye(classes, classes + 2)
    return centres[numbers] + random.normal(size=(rows, classes + 2)), numbers


LABELLED = {
    "0 to 4": np.arange(5),
    "three far apart": np.array([3, 7, 20]),
    "large": np.array([1_000_001, 1_000_002, 1_000_003]),
}


@pytest.fixture(scope="module")
def classed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A run and a test table for each set of labels."""
    base = tmp_path_factory.mktemp("classes")
    results = {}
    for number, (name, labels) in enumerate(LABELLED.items()):
        x, numbers = clouds(3000, len(labels))
        data = write(base / f"data-{number}", x, {"label": labels[numbers]}, arrow=number % 2 == 0)
        x, numbers = clouds(800, len(labels), seed=1)
        test = write(base / f"test-{number}", x, {"label": labels[numbers]})
        streampgs.train(data, run=base / f"run-{number}", epochs=2)
        results[name] = base / f"run-{number}", test
    return results


@pytest.mark.parametrize("name", LABELLED)
def test_classes_are_found_and_learned(name: str, classed: dict[str, tuple[Path, Path]]) -> None:
    run, test = classed[name]
    labels, model = LABELLED[name], streampgs.Model.load(run)
    x, numbers = clouds(800, len(labels), seed=1)
    x = x.astype(np.float32)
    assert model.classes_ is not None
    assert model.classes_.tolist() == labels.tolist()
    assert model.coef_.shape == (len(labels), x.shape[1])
    found = model.predict(x)
    assert set(found.tolist()) <= set(labels.tolist())
    accuracy = np.mean(found == labels[numbers])
    assert accuracy > 0.75
    shares = model.predict_proba(x)
    assert shares.shape == (800, len(labels))
    assert (shares >= 0.0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], found)

    result = evaluate(model, [str(test)])
    assert result["rows"] == 800
    assert result["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    meant = np.where(np.arange(len(labels)) == numbers[:, np.newaxis], 1.0, -1.0)
    assert result["loss"] == pytest.approx(np.logaddexp(0.0, -meant * model.decision_function(x)).mean(), rel=1e-6)


@pytest.mark.parametrize("name", LABELLED)
def test_predictions_have_columns_for_each_class(
    name: str, classed: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    run, test = classed[name]
    labels, model = LABELLED[name], streampgs.Model.load(run)
    assert predict(model, [str(test)], tmp_path / "out.parquet")["rows"] == 800
    table = pq.read_table(tmp_path / "out.parquet")
    each = [column for label in labels for column in (f"score_{label}", f"probability_{label}")]
    assert table.column_names == ["prediction", *each]
    x = clouds(800, len(labels), seed=1)[0].astype(np.float32)
    np.testing.assert_array_equal(table["prediction"].to_numpy(), model.predict(x))
    for number, label in enumerate(labels):
        np.testing.assert_allclose(
            table[f"score_{label}"].to_numpy(), model.decision_function(x)[:, number], rtol=1e-6, atol=1e-9
        )
        np.testing.assert_allclose(
            table[f"probability_{label}"].to_numpy(), model.predict_proba(x)[:, number], rtol=1e-6
        )


# Several labels.


@pytest.fixture(scope="module")
def two_labels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("labels")
    x, numbers = clouds(2000, 3)
    columns = {"a": np.where(numbers == 0, 1, -1), "b": (numbers == 1).astype(int)}
    data = write(base / "data", x, columns)
    streampgs.train(data, run=base / "run", label=["a", "b"], sigma=1e-3, epochs=2)
    return base / "run", data


def test_each_label_has_the_model_of_a_run_on_that_label_alone(two_labels: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = two_labels
    both = streampgs.Model.load(run)
    assert both.targets == ("a", "b")
    result = evaluate(both, [str(data)])
    assert list(result["labels"]) == ["a", "b"]
    each = []
    for number, label in enumerate(("a", "b")):
        other = "b" if label == "a" else "a"
        streampgs.train(data, run=tmp_path / label, label=label, ignore=other, sigma=1e-3, epochs=2)
        alone = streampgs.Model.load(tmp_path / label)
        np.testing.assert_allclose(both.coef_[number], alone.coef_, rtol=1e-9, atol=1e-12)
        assert np.asarray(both.intercept_)[number] == pytest.approx(alone.intercept_, rel=1e-9)
        own = evaluate(alone, [str(data)])
        each.append(own)
        for name in ("loss", "accuracy", "auc"):
            assert result["labels"][label][name] == pytest.approx(own[name], rel=1e-9)
    for name in ("loss", "accuracy", "auc"):
        assert result[name] == pytest.approx(np.mean([own[name] for own in each]), rel=1e-9)


# Validation.


@pytest.fixture(scope="module")
def with_validation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("validation")
    paths = []
    for name, rows, seed in (("data", 6000, 0), ("validation", 700, 1)):
        x, numbers = clouds(rows, 2, seed)
        paths.append(write(base / name, x, {"label": 2 * numbers - 1}))
    return paths[0], paths[1]


def test_a_target_reached_only_on_training_rows_does_not_end_training(
    with_validation: tuple[Path, Path], tmp_path: Path
) -> None:
    data, _ = with_validation
    x, numbers = clouds(700, 2, 1)
    wrong = write(tmp_path / "wrong", x, {"label": 1 - 2 * numbers})
    report = streampgs.train(data, run=tmp_path / "run", validation=[wrong], target_accuracy=0.8, epochs=2)
    assert report.stopped_by == "epochs"
    assert report.judged_accuracy is not None
    assert report.judged_accuracy < 0.2
    assert report.progressive_accuracy is not None
    assert report.progressive_accuracy > 0.8


def test_a_target_ends_training_at_the_same_row_with_any_pauses(
    with_validation: tuple[Path, Path], tmp_path: Path
) -> None:
    data, validation = with_validation
    options = {"validation": (str(validation),), "target_accuracy": 0.7, "sigma": 1e-3}
    whole = streampgs.train(data, run=tmp_path / "whole", epochs=30, **options)
    assert whole.stopped_by == "target-accuracy"
    options.pop("target_accuracy")
    streampgs.train(data, run=tmp_path / "paused", rows=whole.rows // 3, **options)
    streampgs.resume(tmp_path / "paused", rows=whole.rows // 2)
    paused = streampgs.resume(tmp_path / "paused", epochs=30, target_accuracy=0.7)
    assert paused.stopped_by == "target-accuracy"
    assert (paused.rows, paused.dual_sha256) == (whole.rows, whole.dual_sha256)


def test_validation_with_pauses_gives_the_same_bits(
    with_validation: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume may start in another working directory."""
    data, validation = with_validation
    monkeypatch.chdir(validation.parent)
    streampgs.train(data, run=tmp_path / "quiet", validation=validation.name, epochs=2)
    streampgs.train(data, run=tmp_path / "run", validation=validation.name, rows=1)
    monkeypatch.chdir(tmp_path)
    for rows in (750, 751, 2500, 3000, 3001, 4000, 9000):
        streampgs.resume(tmp_path / "run", rows=rows)
    report = streampgs.resume(tmp_path / "run", epochs=2)
    assert results_of(tmp_path / "run", report) == results_of(
        tmp_path / "quiet", streampgs.resume(tmp_path / "quiet", epochs=2)
    )


# Invalid options.


@pytest.mark.parametrize(
    ("options", "found", "remedy"),
    [
        ({"loss": ["hinge", "squared"]}, "mixes losses", "one of the two"),
        ({"sigma": ["auto", 1e-3]}, "--sigma auto,0.001", "'auto' alone"),
        ({"p": [2.0, "auto"]}, "--p 2,auto", "'auto' alone"),
        ({"ball": ["auto", 1.0]}, "--ball auto,1", "'auto' alone"),
        ({"sigma": [1e-3, 0.001]}, "--sigma 0.001,0.001", "once"),
        ({"loss": ["hinge", "hinge"]}, "--loss hinge,hinge", "once"),
        ({"label": ["a", "a"]}, "--label a,a", "once"),
        ({"sigma": []}, "--sigma", "once"),
        ({"sigma": [10.0**-k for k in range(13)], "p": [2.0, 1.8, 1.5, 1.2, 1.1]}, "65 combinations", "64"),
        ({"sigma": [1e-3, -1e-3]}, "--sigma -0.001", "above 0"),
        ({"p": [2.0, 2.5]}, "--p 2.5", "2 is"),
        ({"classes": [2.0, 1.0]}, "--classes 2,1", "ascending"),
        ({"classes": 5.0}, "--classes 5", "two or more"),
        ({"classes": [3.0, 1.0, 2.0]}, "--classes 3,1,2", "ascending"),
        ({"classes": [1.0, 2.0, 2.0]}, "--classes 1,2,2", "different"),
        ({"classes": [1.0, 2.0, float("nan")]}, "--classes nan", "finite"),
        ({"classes": [1.0, 2.0, float("inf")]}, "--classes inf", "finite"),
        ({"classes": [1.0, 2.0, 3.0], "positive": 1.0}, "--classes together with --positive", "one of them"),
        ({"classes": [1.0, 2.0, 3.0], "label": ["a", "b"]}, "several labels", "one of them"),
        ({"classes": [1.0, 2.0, 3.0], "loss": "squared"}, "--classes with a --loss that does not classify", "logistic"),
    ],
    ids=str,
)
def test_invalid_options_are_refused_with_a_remedy(options: dict[str, Any], found: str, remedy: str) -> None:
    from streampgs.base.errors import OptionError

    with pytest.raises(OptionError) as refused:
        ModelOptions(**options)
    assert found in refused.value.found
    assert remedy in refused.value.remedy
