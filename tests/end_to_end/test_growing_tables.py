"""Tables that gain columns and classes during a run: old features and models stay, pauses do not change the bits."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampgs
from streampgs.base.errors import DataError
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run, strongest
from streampgs.model.prediction import predict
from streampgs.run.report import Silent, StopRequest
from streampgs.run.saved import saved_run
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.mixed_tables import replaced, write

pytestmark = pytest.mark.timeout(300)  # readers and producers that wait for each other can hang

SHARD_ROWS = 600
SMALL = {"memory": "60MB", "window": "100kB"}


def table(seed: int, rows: int = SHARD_ROWS) -> pa.Table:
    """Columns of numbers, categories, lists and text, and three label columns that depend on them."""
    chance = np.random.default_rng(seed)
    age, height = chance.normal(40, 10, rows), chance.normal(170, 10, rows)
    city, colour = chance.integers(0, 5, rows), chance.integers(0, 4, rows)
    size = chance.normal(size=(rows, 2))
    score = (age - 40) / 10 + (height - 170) / 10 + (city - 2) + 2 * (colour == 1) - 1 + size[:, 0]
    kinds = np.digitize(score, [-1.0, 1.0, 2.5])
    return pa.table(
        {
            "label": pa.array(np.where(score > 0, "yes", "no")),
            "kind": pa.array([f"k{kind}" for kind in kinds]),
            "number": pa.array(kinds),
            "age": age,
            "height": pa.array(height, mask=chance.random(rows) < 0.1),
            "city": pa.array([f"city {number}" for number in city]).dictionary_encode(),
            "colour": pa.array([f"colour {number}" for number in colour]),
            "size": pa.array(list(size), pa.list_(pa.float64(), 2)),
            "note": pa.array([f"seen in {number} {age:.0f}" for number, age in zip(city, age, strict=True)]),
        }
    )


def only(columns: tuple[str, ...], seed: int, classes: int = 4) -> pa.Table:
    found = table(seed, 2 * SHARD_ROWS)
    kept = np.flatnonzero(found["number"].to_numpy() < classes)[:SHARD_ROWS]
    return found.take(pa.array(kept)).select(list(columns))


# For each case: columns and number of classes of the first shards and of two later waves, and options of the run.
CASES: dict[str, tuple[list[tuple[tuple[str, ...], int]], dict[str, Any]]] = {
    "columns of all types": (
        [(("label", "age", "city"), 4), (("label", "age", "city", "height", "colour"), 4), (("label", "age", "note", "size"), 4)],
        {"null_flags": True},
    ),
    "dense stays dense": ([(("label", "age"), 4), (("label", "age", "height"), 4), (("label", "height", "size"), 4)], {}),
    "dense becomes sparse": ([(("label", "age", "size"), 4), (("label", "age", "colour"), 4), (("label", "height"), 4)], {}),
    "a vocabulary": ([(("label", "age", "city"), 4), (("label", "city", "colour"), 4), (("label", "age", "city"), 4)], {"vocabulary": True}),
    "classes by name": ([(("kind", "age", "city"), 3), (("kind", "age", "city"), 4), (("kind", "height", "city"), 4)], {"label": "kind"}),
    "classes by number": ([(("number", "age"), 3), (("number", "age"), 4), (("number", "age", "colour"), 4)], {"label": "number"}),
    "p below 2": ([(("kind", "age", "size"), 3), (("kind", "age", "colour"), 4), (("kind", "age"), 4)], {"label": "kind", "p": 1.5, "sigma": 1e-4}),
    "p 2, one sigma, batches": ([(("kind", "age", "city"), 3), (("kind", "age", "colour"), 4), (("kind", "age"), 4)], {"label": "kind", "sigma": 1e-4, "batch": 7}),
    "several threads": ([(("kind", "age", "city"), 3), (("kind", "age", "height"), 4), (("kind", "age"), 4)], {"label": "kind", "sigma": 1e-4, "threads": 2}),
    "the last iterate": ([(("kind", "age", "city"), 3), (("kind", "age", "height"), 4), (("kind", "age"), 4)], {"label": "kind", "returns": "last", "sigma": [1e-3, 1e-4]}),
}  # fmt: skip


def arrive(case: str, wave: int, folder: Path, file_format: str = "parquet") -> None:
    """Write the two shards of a wave."""
    columns, classes = CASES[case][0][wave]
    for number in range(2):
        name = f"part-{wave}-{number}.{'parquet' if file_format == 'parquet' else 'arrow'}"
        write(only(columns, 10 * wave + number, classes), folder / name, file_format, group_rows=200)


ENDS = (700, 1_900, 3_500)


@pytest.mark.parametrize("case", CASES)
def test_the_same_arrivals_give_the_same_bits_with_any_pauses(case: str, tmp_path: Path) -> None:
    """The cache is deleted after each additional pause."""
    chance = random.Random(7)
    options = CASES[case][1]
    digests = set()
    for attempt in range(3):
        data, run = tmp_path / f"data-{attempt}", tmp_path / f"run-{attempt}"
        arrive(case, 0, data)
        streampgs.train(data, run=run, rows=ENDS[0], **SMALL, **options)
        for wave, end in enumerate(ENDS[1:], 1):
            arrive(case, wave, data)
            for _ in range(2 * attempt):
                streampgs.resume(run, rows=chance.randrange(ENDS[wave - 1] + 1, end), checkpoint_seconds=1e-6)
                shutil.rmtree(run / "cache", ignore_errors=True)
            streampgs.resume(run, rows=end)
        digests.add(streampgs.resume(run, epochs=3).dual_sha256)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "case", ["columns of all types", "dense stays dense", "dense becomes sparse", "classes by name"]
)
def test_after_damage_an_older_checkpoint_gives_the_same_bits(case: str, tmp_path: Path) -> None:
    data, run, other = tmp_path / "data", tmp_path / "run", tmp_path / "other"
    arrive(case, 0, data)
    streampgs.train(data, run=run, rows=ENDS[0], **SMALL, **CASES[case][1])
    shutil.copytree(run, other)
    arrive(case, 1, data)
    expected = streampgs.resume(other, rows=1_300).dual_sha256
    streampgs.resume(run, rows=1_000)
    for path in sorted(run.glob("checkpoint-*"))[1:]:
        path.write_bytes(path.read_bytes()[:-1000])
    assert streampgs.Model.load(run).rows == saved_run(run).meter.rows == ENDS[0]
    assert streampgs.resume(run, rows=1_300).dual_sha256 == expected


# Columns.


class Noted(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_old_features_keep_their_numbers_and_new_columns_are_learned(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrive("columns of all types", 0, data)
    streampgs.train(data, run=run, epochs=2, **SMALL)
    before = streampgs.Model.load(run)
    old = before.encoding
    arrive("columns of all types", 1, data)
    streampgs.resume(run, epochs=10)
    after = streampgs.Model.load(run)
    assert old is not None
    assert after.encoding is not None
    assert after.features > before.features
    assert [after.name_of(f) for f in range(before.features)] == [before.name_of(f) for f in range(before.features)]
    named = {one["name"] for one in strongest(after, 20)}
    assert {"age", "height", "colour=colour 1"} <= named
    whole = write(table(99).select(["label", "age", "city", "height", "colour"]), tmp_path / "whole.parquet", "parquet")
    known = write(table(99).select(["label", "age", "city"]), tmp_path / "known.parquet", "parquet")
    assert evaluate(after, [str(whole)])["accuracy"] > evaluate(before, [str(whole)])["accuracy"] + 0.02
    assert evaluate(after, [str(known)])["rows"] == SHARD_ROWS


def test_columns_that_a_table_lacks_are_scored_as_null(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrive("dense becomes sparse", 0, data)
    streampgs.train(data, run=run, rows=500, **SMALL)
    arrive("dense becomes sparse", 1, data)
    streampgs.resume(run, epochs=2)
    model = streampgs.Model.load(run)
    lacking = table(99).select(["label", "age", "size"])
    scores = model.decision_function(lacking)
    columns = [f for f in range(model.features) if not model.name_of(f).startswith(("colour", "hashed"))]
    assert columns == [0, 1, 2]
    out = tmp_path / "out.parquet"
    predict(model, [str(write(lacking, tmp_path / "lacking.parquet", "parquet"))], out)
    assert pq.read_table(out)["score"].to_numpy() == pytest.approx(scores)
    age = (lacking["age"].to_numpy() - model.encoding.all_columns[0].centre[0]) * model.encoding.all_columns[0].scale[0]
    sizes = np.stack(lacking["size"].to_numpy())
    expected = model.intercept_ + np.column_stack([age, sizes]).astype(np.float32) @ model.coef_[:3]
    assert scores == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "kept"), [({"ignore": ["height", "col*"]}, []), ({"features": ["age", "h*"]}, ["height"])]
)
def test_column_options_of_the_start_apply_to_later_columns(
    options: dict[str, list[str]], kept: list[str], tmp_path: Path
) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    write(only(("label", "age", "city", "height", "colour"), 1).slice(0, 50), data / "part-0.parquet", "parquet")
    write(only(("label", "age", "city"), 2), data / "part-1.parquet", "parquet")
    first = tmp_path / "first"
    first.mkdir()
    streampgs.train(data, run=first / "run", rows=500, **SMALL, **options)
    columns = streampgs.Model.load(first / "run").encoding.all_columns
    assert {column.name for column in columns} - {"age", "city"} == set(kept)
    if not kept:  # patterns that match nothing yet are refused at the start
        return
    (data / "part-0.parquet").unlink()
    streampgs.train(data, run=run, rows=500, features="age", **SMALL)
    write(only(("label", "age", "city", "height"), 1), data / "part-2.parquet", "parquet")
    streampgs.resume(run, rows=700)
    assert [column.name for column in streampgs.Model.load(run).encoding.all_columns] == ["age"]


def test_a_column_of_another_type_is_refused_and_no_shard_joins(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    arrive("columns of all types", 0, data)
    streampgs.train(data, run=run, rows=500, **SMALL)
    catalog = (run / "catalog.arrows").read_bytes()
    bad = replaced(only(("label", "age", "city"), 5), "age", pa.array(["old"] * SHARD_ROWS))
    write(bad, data / "part-9.parquet", "parquet")
    with pytest.raises(DataError, match=r"part-9\.parquet': column 'age' is of type string"):
        streampgs.resume(run, epochs=1)
    assert (run / "catalog.arrows").read_bytes() == catalog
    (data / "part-9.parquet").unlink()
    assert streampgs.resume(run, epochs=2).outcome == "trained"


# Classes.


def lane_bits(run: Path) -> dict[str, bytes]:
    """The weights of each class's model in the leading candidate."""
    race = saved_run(run).race
    return {target.name: race.lanes.weights(number).tobytes() for number, target in enumerate(race.targets)}


@pytest.mark.parametrize("case", ["classes by name", "classes by number"])
def test_new_classes_do_not_change_old_models(case: str, tmp_path: Path) -> None:
    """Rows of a new class are negatives for the old models. Their bits are therefore those of a run in which the new
    rows have the label of another old class."""
    name = CASES[case][1]["label"]
    first, third = ("k0", "k3") if name == "kind" else (0, 3)
    bits = []
    for replacing in (False, True):
        data, run = tmp_path / f"data-{replacing}", tmp_path / f"run-{replacing}"
        for number in range(2):
            write(only((name, "age"), number, 3), data / f"part-0-{number}.parquet", "parquet", group_rows=200)
        streampgs.train(data, run=run, rows=700, sigma=1e-4, label=name, **SMALL)
        new = only((name, "age"), 5, 4)
        if replacing:
            labels = [first if label == third else label for label in new[name].to_pylist()]
            new = replaced(new, name, pa.array(labels))
        write(new, data / "part-1.parquet", "parquet", group_rows=200)
        streampgs.resume(run, epochs=2)
        bits.append(lane_bits(run))
    whole, without_third = bits
    assert len(whole) == 4
    assert len(without_third) == 3
    kept = [target for target in without_third if target not in ("k0", "0")]
    assert len(kept) == 2
    assert all(whole[target] == without_third[target] for target in kept)


def test_a_new_class_is_learned_and_predicted(tmp_path: Path) -> None:
    data, run, noted = tmp_path / "data", tmp_path / "run", Noted()
    labels = [np.array(["b", "c", "d"]), np.array(["b", "a", "c", "d", "aa"])]
    chance = np.random.default_rng(3)

    def shard(names: np.ndarray, rows: int = 900) -> pa.Table:
        drawn = chance.integers(0, len(names), rows)
        spots = {"b": (0, 5), "c": (5, 0), "d": (-5, 0), "a": (0, -5), "aa": (5, 5)}
        place = np.array([spots[name] for name in names[drawn]]) + chance.normal(size=(rows, 2))
        return pa.table({"label": names[drawn], "x": place[:, 0], "y": place[:, 1]})

    write(shard(labels[0]), data / "part-0.parquet", "parquet")
    streampgs.train(data, run=run, epochs=2, **SMALL)
    write(shard(labels[1]), data / "part-1.parquet", "parquet")
    streampgs.resume(run, epochs=30, observer=noted)
    model = streampgs.Model.load(run)
    assert model.classes_ is not None
    assert model.classes_.tolist() == ["b", "c", "d", "a", "aa"]
    assert model.targets == ("b", "c", "d", "a", "aa")
    test = shard(labels[1])
    found = model.predict(test)
    assert np.mean(found == test["label"].to_numpy(zero_copy_only=False)) > 0.8
    assert np.mean(found[test["label"].to_numpy(zero_copy_only=False) == "a"] == "a") > 0.8
    file = write(test, tmp_path / "test.parquet", "parquet")
    assert evaluate(model, [str(file)])["accuracy"] == pytest.approx(
        np.mean(found == test["label"].to_numpy(zero_copy_only=False))
    )
    assert any("2 new classes ('a', 'aa') in addition to 3" in note for note in noted.notes)
    shown = inspect_run(run, top=1)
    assert {one["target"] for one in shown["top"]} == {"b", "c", "d", "a", "aa"}
    steps = [int(group.state["steps"]) for group in saved_run(run).race.lanes.groups]
    assert len(steps) == 2
    assert steps[0] == model.steps > steps[1]
    done = command("inspect", run)
    assert done.code == 0, done.err


def test_tables_without_encoded_columns_may_have_new_classes(tmp_path: Path) -> None:
    """In sparse and in dense tables."""
    for kind in ("sparse", "dense"):
        data, run = tmp_path / kind, tmp_path / f"run-{kind}"
        chance = np.random.default_rng(3)

        def shard(classes: list[int], kind: str = kind, chance: Any = chance) -> pa.Table:
            labels = chance.choice(classes, 500)
            features = np.eye(8)[labels] + chance.normal(size=(500, 8)) / 10
            if kind == "dense":
                return pa.table({"label": labels, "features": pa.array(list(features), pa.list_(pa.float64(), 8))})
            return pa.table({"label": labels, "indices": [list(range(8))] * 500, "values": list(features)})

        write(shard([1, 2, 3]), data / "part-0.parquet", "parquet")
        streampgs.train(data, run=run, epochs=2, **SMALL)
        write(shard([3, 0, 5]), data / "part-1.parquet", "parquet")
        streampgs.resume(run, epochs=20)
        model = streampgs.Model.load(run)
        assert model.classes_ is not None
        assert model.classes_.tolist() == [1, 2, 3, 0, 5]
        test = write(shard([0, 1, 2, 3, 5]), tmp_path / f"{kind}.parquet", "parquet")
        assert evaluate(model, [str(test)])["accuracy"] > 0.95


@pytest.mark.parametrize("case", ["columns of all types", "dense becomes sparse", "classes by name", "p below 2"])
def test_following_gives_the_same_model_as_resuming(case: str, tmp_path: Path) -> None:
    """Following keeps its models in memory. A resume loads them from a checkpoint."""
    columns, classes = CASES[case][0][0]
    validation = write(only(columns, 99, classes), tmp_path / "validation.parquet", "parquet")
    options = {"epochs": 2, "validation": [str(validation)], **SMALL, **CASES[case][1]}
    data, run = tmp_path / "data", tmp_path / "run"
    arrive(case, 0, data)
    streampgs.train(data, run=run, **options)
    arrive(case, 1, data)
    expected = streampgs.resume(run)
    other, coming, stop = tmp_path / "other", tmp_path / "coming", StopRequest()
    arrive(case, 0, other)

    class AddShards(Silent):
        def note(self, text: str) -> None:
            if "waiting for new shards" in text:
                arrive(case, 1, coming)
                for path in coming.iterdir():
                    path.rename(other / path.name)

        def saved(self, path: str) -> None:
            if saved_run(tmp_path / "followed").meter.rows >= expected.rows:
                stop.ask("stop")

    report = streampgs.train(
        other, run=tmp_path / "followed", observer=AddShards(), stop=stop, follow=True, poll_seconds=0.02, **options
    )
    assert report.rows == expected.rows
    assert report.dual_sha256 == expected.dual_sha256
