"""Laws of every learner that trains on columns. Rows come first, then windows of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streampgs.base.errors import OptionError
from streampgs.base.stage import Bundle
from streampgs.engine.engine import Engine
from streampgs.learn import state as states
from streampgs.learn.coordinate import MOST_PASSES
from streampgs.learn.coordinate_options import CoordinateOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.norms import EUCLID
from streampgs.options.solvers import SOLVERS
from streampgs.reading.window import Window as ColumnWindow
from tests.conformance.test_learners import damaged, filled
from tests.learn.columns import columns_of, epoch_of_columns
from tests.learn.plain_coordinate import PlainCoordinate
from tests.learn.windows import Training, Window, bits, saved, window

FEATURES, ROWS, EPOCHS = 14, 60, 2


@dataclass(frozen=True)
class Example:
    """Own options and sigma of three lanes, a slow twin, and how the twin takes a window of columns."""

    own: tuple[tuple[Any, float], ...]
    twin: Callable[[LaneSpec, int], Any]
    take: Callable[[Any, ColumnWindow], None]


LANES = (CoordinateOptions(0.05), 0.0), (CoordinateOptions(0.2), 0.1), (CoordinateOptions(0.01), 0.02)
EXAMPLES = {
    "coordinate": Example(LANES, PlainCoordinate, lambda twin, columns: twin.window(columns.columns, MOST_PASSES)),
    "greedy-coordinate": Example(LANES, PlainCoordinate, lambda twin, columns: twin.best_step(columns.columns)),
}
COLUMN_SOLVERS = [name for name, solver in SOLVERS.items() if solver.by_columns]
every_learner = pytest.mark.parametrize("name", COLUMN_SOLVERS)
losses = pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])


def specs_of(name: str, layout: str = "sparse", loss: str = "logistic", beta: str = "column") -> list[LaneSpec]:
    assert name in EXAMPLES, f"add an example and a slow twin of '{name}' to EXAMPLES"
    spec = LaneSpec(name, loss, 0.0, EUCLID, 0.0, Target("label"), 0, 1, 0.1, layout, None)
    return [replace(spec, own=replace(own, beta=beta), sigma=sigma) for own, sigma in EXAMPLES[name].own]


def rows_of(layout: str = "sparse", classes: bool = True, seed: int = 0, rows: int = ROWS) -> Window:
    return window(rows, FEATURES, layout, classes=classes, weighted=True, seed=seed)


class Course:
    """A window of rows, and then epochs of columns, as one sequence of lines."""

    def __init__(self, rows: Window, dense: bool = False, blocks: int = 1, epochs: int = EPOCHS) -> None:
        columns = columns_of(rows, dense)
        self.windows: list[Any] = [rows]
        for epoch in range(1, epochs + 1):
            self.windows += epoch_of_columns(columns, epoch, blocks, sweeps=2)
        self.ends = np.cumsum([len(one.starts) for one in self.windows]).tolist()

    def __len__(self) -> int:
        return int(self.ends[-1])

    def advance(self, training: Training, first: int, stop: int) -> None:
        begins = 0
        for one, ends in zip(self.windows, self.ends, strict=True):
            training.engine.access = "columns"  # of the source as a whole
            if first < ends and stop > begins:
                training.advance(one, max(first, begins) - begins, min(stop, ends) - begins)
            begins = ends


def trained(name: str, course: Course, stop: int | None = None, **more: Any) -> Training:
    training = Training(specs_of(name, **more), FEATURES)
    course.advance(training, 0, len(course) if stop is None else stop)
    return training


@every_learner
@losses
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("beta", ["column", "global"])
def test_each_lane_agrees_with_its_slow_twin(name: str, loss: str, layout: str, beta: str) -> None:
    rows, specs = rows_of(layout, loss != "squared"), specs_of(name, layout, loss, beta)
    course, training, example = Course(rows, layout == "dense"), Training(specs, FEATURES), EXAMPLES[name]
    twins = [example.twin(spec, FEATURES) for spec in specs]
    for one, (first, stop) in zip(course.windows, pairwise([0, *course.ends]), strict=True):
        course.advance(training, first, stop)
        for lane, twin in enumerate(twins):
            if one.access == "rows":
                twin.add(rows.plain_rows(FEATURES, 0.1))
            else:
                example.take(twin, one)
            np.testing.assert_allclose(training.weights(lane), twin.weights, rtol=1e-6, atol=1e-8)
    assert len({training.weights(lane).tobytes() for lane in range(len(specs))}) == len(specs)


@pytest.mark.parametrize(
    ("name", "blocks", "beta"),
    [*((name, 1, beta) for name in COLUMN_SOLVERS for beta in ("column", "global")), ("coordinate", 3, "column")],
)
@given(data=st.data())
@hypothesis_settings(max_examples=10, deadline=None)
def test_resumed_training_has_the_bits_of_unpaused_training(
    name: str, blocks: int, beta: str, data: st.DataObject
) -> None:
    course = Course(rows_of(), blocks=blocks, epochs=3)
    saves = data.draw(st.lists(st.integers(1, len(course) - 1), max_size=5))
    whole, resumed = trained(name, course, beta=beta), Training(specs_of(name, beta=beta), FEATURES)
    for first, stop in pairwise(sorted({0, len(course), *saves})):
        course.advance(resumed, first, stop)
        bits(resumed)  # reading the bits changes nothing either
        resumed = resumed.again()
    assert bits(resumed) == bits(whole)


@every_learner
def test_weights_of_some_coordinates_agree_with_all_weights(name: str) -> None:
    training, chosen = trained(name, Course(rows_of())), np.array([0, 2, FEATURES])
    for lane in range(len(training)):
        np.testing.assert_array_equal(training.weights(lane, chosen), training.weights(lane)[chosen])


@every_learner
def test_the_problem_is_in_the_unit_of_the_labels(name: str) -> None:
    """The learner sees labels that are scaled; l1 and sigma are of the labels of the table."""
    rows, specs = rows_of(classes=False), specs_of(name, loss="squared")
    scaled = Training([replace(spec, base=3.0, scale=4.0) for spec in specs], FEATURES)
    plain = Training(specs, FEATURES)
    course = Course(rows, epochs=30)
    for training in (scaled, plain):
        course.advance(training, 0, len(course))
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
        course = Course(own)
        course.advance(training, 0, len(course))
    for lane in range(len(specs)):
        np.testing.assert_allclose(here.weights(lane), there.weights(lane), rtol=1e-9, atol=1e-12)


@every_learner
@pytest.mark.parametrize("stop", [0, 30, 63, 100])
def test_lanes_that_are_kept_or_cloned_learn_the_same_weights(name: str, stop: int) -> None:
    course = Course(rows_of())
    lanes = trained(name, course, stop)
    kept, cloned = lanes.keeping([2, 0]), lanes.keeping([1, 1, 0])
    for training in (lanes, kept, cloned):
        course.advance(training, stop, len(course))
    for training, origins in ((kept, [2, 0]), (cloned, [1, 1, 0])):
        for lane, origin in enumerate(origins):
            np.testing.assert_allclose(training.weights(lane), lanes.weights(origin), rtol=1e-9, atol=1e-12)
    assert cloned.weights(0).tobytes() == cloned.weights(1).tobytes()


@every_learner
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge", "modified-huber"])
def test_the_certificate_bounds_the_distance_from_the_optimum(name: str, loss: str) -> None:
    """And no window increases the objective."""
    rows, specs = rows_of(classes=loss != "squared"), specs_of(name, loss=loss)
    course, training = Course(rows, epochs=40), Training(specs, FEATURES)
    seen: list[list[tuple[float, float | None]]] = [[] for _ in specs]
    for first, stop in pairwise([0, *course.ends]):
        course.advance(training, first, stop)
        for lane in range(len(specs)):
            seen[lane].append((float(training.state["objective"][lane]), training.certificate(lane)))
    for measured in seen:
        best, known = measured[-1][0], measured[1:]
        assert all(gap is not None and value - best <= gap + 1e-12 for value, gap in known)
        assert all(after[0] <= before[0] + 1e-12 for before, after in pairwise(known))
        assert measured[0][1] is None, "nothing was measured yet"
        if name == "coordinate":
            assert known[-1][1] is not None
            assert known[-1][1] < 1e-9


# State.


@every_learner
def test_memory_is_the_size_of_the_arrays(name: str) -> None:
    training = trained(name, Course(rows_of()))
    learner, state = training.groups[0].learner, training.state
    saved = states.arrays_to_save(learner.fields, state, len(training))
    by_row = [array for field, array in saved.items() if states.ROW in learner.fields[field].axes]
    # A lane that trains has copies of its scores and slopes, and of those before an extrapolation.
    assert sum(array.nbytes for array in by_row) + 4 * 8 * ROWS == ROWS * learner.bytes_per_row(len(training))
    assert training.nbytes == (FEATURES + 1) * training.bytes_per_feature()


@every_learner
def test_invalid_state_is_refused(name: str) -> None:
    section = saved(trained(name, Course(rows_of()), 90).lanes)
    Lanes().restore(section)
    for array, content in section.arrays.items():
        changes: list[Callable[[Any], Any]] = [lambda a: a[:-1], lambda a: a[..., np.newaxis], lambda a: a.astype("f4")]
        changes.append(lambda a: filled(a, np.nan if a.dtype == np.float64 else -1))
        for number, change in enumerate(changes):
            with pytest.raises(ValueError, match=r"array|step"):
                Lanes().restore(damaged(section, array, change))
                pytest.fail(f"change {number} of '{array}' of {content.dtype} was accepted")
    with pytest.raises(ValueError, match="array"):
        Lanes().restore(damaged(section, "0.rows", lambda a: a + 10**12))


FORGED = {
    "labels": (lambda a: 0.5 * a, "labels other than -1 and 1"),
    "row_weights": (lambda a: -a, "held out"),
    "weighted": (lambda a: a + 1, "above 1"),
    "released": (lambda a: a + 2, "above 1"),
    "measured": (lambda a: a + 1, "above 1"),
    "total": (lambda a: 1.1 * a, "rows that weigh"),
    "bound": (lambda a: a + 1.0, "below its lower bound"),
}


@every_learner
@pytest.mark.parametrize("array", FORGED)
@pytest.mark.parametrize("holds_out", [False, True])
def test_values_that_no_training_leaves_are_refused(name: str, array: str, holds_out: bool) -> None:
    specs = [replace(spec, own=replace(spec.own, holds_out=holds_out)) for spec in specs_of(name)]
    training, course = Training(specs, FEATURES), Course(rows_of())
    course.advance(training, 0, len(course))
    section, (change, words) = saved(training.lanes), FORGED[array]
    Lanes().restore(section)
    with pytest.raises(ValueError, match=words):
        Lanes().restore(damaged(section, f"0.{array}", change))


@every_learner
def test_rows_without_weights_have_none(name: str) -> None:
    training, course = Training(specs_of(name), FEATURES), Course(window(ROWS, FEATURES, "sparse"))
    course.advance(training, 0, len(course))
    with pytest.raises(ValueError, match="weights of rows that have none"):
        Lanes().restore(damaged(saved(training.lanes), "0.row_weights", lambda a: 2.0 * a))


@every_learner
def test_invalid_specs_are_refused(name: str) -> None:
    section = saved(trained(name, Course(rows_of()), 3).lanes)
    spec = section.values["specs"][0]
    wrong = [{"own": {**spec["own"], own: "x"}} for own in spec["own"]] + [{"sigma": -1.0}, {"batch": 0}]
    for change in wrong:
        specs = [{**one, **change} for one in section.values["specs"]]
        with pytest.raises(ValueError, match=r"."):
            Lanes().restore(Bundle({**section.values, "specs": specs}, section.arrays))


@every_learner
def test_workers_are_refused(name: str) -> None:
    engine = Engine(Lanes(specs_of(name), FEATURES), 2, "columns")
    with pytest.raises(OptionError) as raised:
        engine.advance(rows_of(), 0, 1)
    assert "--threads 1" in raised.value.remedy
