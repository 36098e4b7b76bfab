"""Laws of every learner that sweeps over columns. Where an epoch ends there is a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streampgs.base.errors import OptionError
from streampgs.base.stage import Bundle
from streampgs.engine.engine import Engine
from streampgs.kernels.randomness import key_of, shuffled
from streampgs.learn.coordinate import MOST_PASSES, CoordinateOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.norms import EUCLID
from streampgs.options.solvers import SOLVERS
from tests.conformance.test_learners import damaged, filled
from tests.learn.plain_coordinate import PlainCoordinate
from tests.learn.windows import Training, Window, bits, saved, window

FEATURES, ROWS, EPOCHS = 14, 60, 2


@dataclass(frozen=True)
class Example:
    """Own options and sigma of three lanes, and how a slow twin makes a sweep over columns in this order."""

    own: tuple[tuple[Any, float], ...]
    take: Callable[[Any, NDArray[np.int64]], None]


LANES = (CoordinateOptions(0.05), 0.0), (CoordinateOptions(0.2), 0.1), (CoordinateOptions(0.01), 0.02)
EXAMPLES = {
    "coordinate": Example(LANES, lambda twin, columns: twin.window(columns, MOST_PASSES)),
    "greedy-coordinate": Example(LANES, lambda twin, columns: twin.best_step(columns)),
}
COLUMN_SOLVERS = [name for name, solver in SOLVERS.items() if solver.needs.columns]
every_learner = pytest.mark.parametrize("name", COLUMN_SOLVERS)
losses = pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])


def specs_of(name: str, layout: str = "sparse", loss: str = "logistic", beta: str = "column") -> list[LaneSpec]:
    assert name in EXAMPLES, f"add an example and a slow twin of '{name}' to EXAMPLES"
    spec = LaneSpec(name, loss, 0.0, EUCLID, 0.0, Target("label"), 0, 1, 0.1, layout, None)
    return [replace(spec, own=replace(own, beta=beta), sigma=sigma) for own, sigma in EXAMPLES[name].own]


def rows_of(layout: str = "sparse", classes: bool = True, seed: int = 0, rows: int = ROWS) -> Window:
    return window(rows, FEATURES, layout, classes=classes, weighted=True, seed=seed)


def sweep(training: Training, rows: Window, epochs: range, first: int = 0) -> None:
    """An epoch is a visit of all rows; `first`: those of the first epoch that were visited before."""
    for epoch in epochs:
        training.engine.advance(rows, first, len(rows))
        training.engine.reach_epoch(epoch)
        first = 0


def trained(name: str, rows: Window, epochs: int = EPOCHS, **more: Any) -> Training:
    training = Training(specs_of(name, **more), FEATURES)
    sweep(training, rows, range(1, epochs + 1))
    return training


@every_learner
@losses
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("beta", ["column", "global"])
def test_each_lane_agrees_with_its_slow_twin(name: str, loss: str, layout: str, beta: str) -> None:
    rows, specs = rows_of(layout, loss != "squared"), specs_of(name, layout, loss, beta)
    training, features = Training(specs, FEATURES), rows.table.columns(layout == "dense").features
    twins = [PlainCoordinate(spec, FEATURES) for spec in specs]
    for twin in twins:
        twin.add(rows.plain_rows(FEATURES, 0.1))
    for epoch in range(1, 6):
        sweep(training, rows, range(epoch, epoch + 1))
        order = shuffled(np.uint64(key_of(0, "columns", epoch)), len(features))
        for lane, twin in enumerate(twins):
            EXAMPLES[name].take(twin, features[order])
            np.testing.assert_allclose(training.weights(lane), twin.weights, rtol=1e-6, atol=1e-8)
    assert len({training.weights(lane).tobytes() for lane in range(len(specs))}) == len(specs)


@every_learner
@pytest.mark.parametrize("beta", ["column", "global"])
@pytest.mark.parametrize("pauses", [[0], [20, 0, 59], [0, 0, 0, 1]])
def test_resumed_training_has_the_bits_of_unpaused_training(name: str, beta: str, pauses: list[int]) -> None:
    """With a pause in each of the first epochs, after so many rows."""
    rows = rows_of()
    whole, resumed = trained(name, rows, 5, beta=beta), Training(specs_of(name, beta=beta), FEATURES)
    for epoch, row in enumerate(pauses, 1):
        resumed.engine.advance(rows, 0, row)
        bits(resumed)  # reading the bits changes nothing either
        resumed = resumed.again()
        sweep(resumed, rows, range(epoch, epoch + 1), row)
    sweep(resumed, rows, range(len(pauses) + 1, 6))
    assert bits(resumed) == bits(whole)


@every_learner
def test_weights_of_some_coordinates_agree_with_all_weights(name: str) -> None:
    training, chosen = trained(name, rows_of()), np.array([0, 2, FEATURES])
    for lane in range(len(training)):
        np.testing.assert_array_equal(training.weights(lane, chosen), training.weights(lane)[chosen])


@every_learner
def test_the_problem_is_in_the_unit_of_the_labels(name: str) -> None:
    """The learner sees labels that are scaled; l1 and sigma are of the labels of the table."""
    rows, specs = rows_of(classes=False), specs_of(name, loss="squared")
    scaled = Training([replace(spec, base=3.0, scale=4.0) for spec in specs], FEATURES)
    plain = Training(specs, FEATURES)
    for training in (scaled, plain):
        sweep(training, rows, range(1, 151))
    for lane in range(len(specs)):
        weights, constant = plain.predictor(lane)
        np.testing.assert_allclose(scaled.predictor(lane)[0], weights, rtol=1e-6, atol=1e-9)
        assert scaled.predictor(lane)[1] == pytest.approx(constant, rel=1e-6)


@every_learner
def test_offsets_are_added_to_the_scores(name: str) -> None:
    rows, specs = rows_of(classes=False), specs_of(name, loss="squared")
    offsets = np.random.default_rng(1).normal(size=ROWS)
    here, there = Training(specs, FEATURES), Training(specs, FEATURES)
    for training, own in ((here, replace(rows, offsets=offsets)), (there, replace(rows, labels=rows.labels - offsets))):
        sweep(training, own, range(1, EPOCHS + 1))
    for lane in range(len(specs)):
        np.testing.assert_allclose(here.weights(lane), there.weights(lane), rtol=1e-9, atol=1e-12)


@every_learner
@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_lanes_that_are_kept_or_cloned_learn_the_same_weights(name: str, epochs: int) -> None:
    rows = rows_of()
    lanes = trained(name, rows, epochs)
    kept, cloned = lanes.keeping([2, 0]), lanes.keeping([1, 1, 0])
    for training in (lanes, kept, cloned):
        sweep(training, rows, range(epochs + 1, 8))
    for training, origins in ((kept, [2, 0]), (cloned, [1, 1, 0])):
        for lane, origin in enumerate(origins):
            assert training.weights(lane).tobytes() == lanes.weights(origin).tobytes()


@every_learner
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge", "modified-huber"])
def test_the_certificate_bounds_the_distance_from_the_optimum(name: str, loss: str) -> None:
    """And no sweep increases the objective."""
    rows, specs = rows_of(classes=loss != "squared"), specs_of(name, loss=loss)
    training = Training(specs, FEATURES)
    assert all(training.certificate(lane) is None for lane in range(len(specs))), "nothing was measured yet"
    seen: list[list[tuple[float, float | None]]] = [[] for _ in specs]
    for epoch in range(1, 81):
        sweep(training, rows, range(epoch, epoch + 1))
        for lane in range(len(specs)):
            seen[lane].append((float(training.state["objective"][lane]), training.certificate(lane)))
    for known in seen:
        best = known[-1][0]
        assert all(gap is not None and value - best <= gap + 1e-12 for value, gap in known)
        assert all(after[0] <= before[0] + 1e-12 for before, after in pairwise(known))
        if name == "coordinate":
            assert known[-1][1] is not None
            assert known[-1][1] < 1e-9


# State.


@every_learner
def test_memory_is_the_size_of_the_arrays(name: str) -> None:
    training = trained(name, rows_of())
    assert training.nbytes == (FEATURES + 1) * training.bytes_per_feature()


@every_learner
def test_invalid_state_is_refused(name: str) -> None:
    section = saved(trained(name, rows_of()).lanes)
    Lanes().restore(section)
    for array, content in section.arrays.items():
        changes: list[Callable[[Any], Any]] = [lambda a: a[:-1], lambda a: a[..., np.newaxis], lambda a: a.astype("f4")]
        changes.append(lambda a: filled(a, np.nan if a.dtype == np.float64 else -1))
        for number, change in enumerate(changes):
            with pytest.raises(ValueError, match=r"array|step"):
                Lanes().restore(damaged(section, array, change))
                pytest.fail(f"change {number} of '{array}' of {content.dtype} was accepted")
    for array, words in (("released", "above 1"), ("measured", "above 1"), ("bound", "below its lower bound")):
        with pytest.raises(ValueError, match=words):
            Lanes().restore(damaged(section, f"0.{array}", lambda a: a + 2))


@every_learner
def test_invalid_specs_are_refused(name: str) -> None:
    section = saved(trained(name, rows_of()).lanes)
    spec = section.values["specs"][0]
    wrong = [{"own": {**spec["own"], own: "x"}} for own in spec["own"]] + [{"sigma": -1.0}, {"batch": 0}]
    for change in wrong:
        specs = [{**one, **change} for one in section.values["specs"]]
        with pytest.raises(ValueError, match=r"."):
            Lanes().restore(Bundle({**section.values, "specs": specs}, section.arrays))


@every_learner
def test_workers_are_refused(name: str) -> None:
    engine = Engine(Lanes(specs_of(name), FEATURES), 2)
    with pytest.raises(OptionError) as raised:
        engine.advance(rows_of(), 0, 1)
    assert "--threads 1" in raised.value.remedy
