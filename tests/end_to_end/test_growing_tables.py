"""Tables that gain columns and classes during a run: old features and models stay, pauses do not change the bits."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streampgs
from streampgs.model.evaluation import evaluate
from streampgs.model.inspection import inspect_run, strongest
from streampgs.run.saved import saved_run
from tests.end_to_end.commands import streampgs as command
from tests.end_to_end.mixed_tables import write
from tests.end_to_end.observers import Notes

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


# Columns.


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


# Classes.


def test_a_new_class_is_learned_and_predicted(tmp_path: Path) -> None:
    data, run, noted = tmp_path / "data", tmp_path / "run", Notes()
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
