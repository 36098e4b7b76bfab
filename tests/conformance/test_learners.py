"""Laws of every learner that trains on rows; test_column_learners.py has those of columns. A registered learner without
an example and a slow twin fails the tests.

Results are compared bit for bit, except where terms may be added in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streampgs.base.errors import OptionError
from streampgs.base.stage import Bundle
from streampgs.engine import engine
from streampgs.engine.engine import Engine
from streampgs.learn import state as states
from streampgs.learn.composite import CompositeOptions
from streampgs.learn.entropic import EntropicOptions
from streampgs.learn.fixed_steps import L1StepOptions, SgdOptions, SmidasOptions, norm_for
from streampgs.learn.kernel import KernelSolverOptions
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Group, Lanes
from streampgs.learn.learner import learner_named, merge, spread, step, warm_up
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.passes import DescentOptions, PassOptions
from streampgs.learn.pgs import OgdOptions
from streampgs.learn.pgs_options import PgsOptions
from streampgs.learn.state import COORDINATE, LANE, Merge, State
from streampgs.options.solvers import LEARNERS, SOLVERS, solver_of
from tests.learn.plain_composite import PlainComposite
from tests.learn.plain_descent import PlainOgd, PlainSgd
from tests.learn.plain_entropic import PlainEntropic
from tests.learn.plain_kernel import PlainKernel
from tests.learn.plain_passes import PlainDescent, PlainLbfgs
from tests.learn.plain_pgs import PlainPgs
from tests.learn.plain_smidas import PlainSmidas
from tests.learn.plain_truncated import PlainTruncated
from tests.learn.windows import Training, Window, bits, saved, window

FEATURES, ROWS = 9, 160


@dataclass(frozen=True)
class Example:
    """The learner's own options for three lanes, a slow twin, and a function that gives the weights of the twin."""

    own: tuple[Any, ...]
    twin: Callable[[LaneSpec, int], Any]
    weights: Callable[[Any], Any]
    norm: PNorm = EUCLID
    reason_to_refuse_workers: str = ""
    sigmas: tuple[float, ...] = (0.02, 0.02, 0.02)


EXAMPLES = {
    "pgs": Example(
        (PgsOptions(4.0, None, "suffix"), PgsOptions(1.0, 0.5, "suffix"), PgsOptions(30.0, None, "suffix")),
        PlainPgs,
        lambda twin: twin.average(),
    ),
    "entropic": Example(
        (
            EntropicOptions(4.0, 2.0, "suffix"),
            EntropicOptions(1.0, 0.5, "suffix"),
            EntropicOptions(30.0, 5.0, "suffix"),
        ),
        PlainEntropic,
        lambda twin: twin.average(),
    ),
    "pgs-l1": Example(
        (
            CompositeOptions(4.0, None, "suffix", l1=0.1),
            CompositeOptions(1.0, None, "suffix", l1=0.002),
            CompositeOptions(30.0, None, "suffix", l1=0.03, l1_steps=5.5),
        ),
        PlainComposite,
        lambda twin: twin.average(),
    ),
    "truncated-gradient": Example(
        (L1StepOptions(0.02, 0.05), L1StepOptions(0.3, 0.02), L1StepOptions(0.0, 0.1)),
        PlainTruncated,
        lambda twin: twin.weights,
    ),
    "kernel": Example(
        (KernelSolverOptions(4.0), KernelSolverOptions(1.0), KernelSolverOptions(30.0)),
        PlainKernel,
        lambda twin: twin.average(),
    ),
    "smidas": Example(
        (SmidasOptions(0.02, 0.05, 3), SmidasOptions(0.3, 0.02, 3), SmidasOptions(0.0, 0.1, 3)),
        PlainSmidas,
        lambda twin: twin.weights,
        norm_for(FEATURES),
    ),
    "gradient-descent": Example(
        tuple(DescentOptions(loss_at_zero=0.7, step=step) for step in (0.5, 0.1, 1.0)),
        PlainDescent,
        lambda twin: twin.average(),
    ),
    "l-bfgs": Example(
        (PassOptions(0.7), PassOptions(0.6), PassOptions(0.5)),
        PlainLbfgs,
        lambda twin: twin.w,
        sigmas=(0.02, 0.002, 0.2),
    ),
    "ogd": Example(
        tuple(OgdOptions(t0=0.0, ball=None, returns="average") for _ in range(3)),
        PlainOgd,
        lambda twin: twin.average(),
        sigmas=(0.2, 0.5, 2.0),
    ),
    "sgd": Example(
        (SgdOptions(0.1), SgdOptions(0.03), SgdOptions(0.2)),
        PlainSgd,
        lambda twin: twin.average(),
        sigmas=(0.02, 3.0, 0.5),
    ),
}
every_learner = pytest.mark.parametrize("name", [n for n in LEARNERS if not SOLVERS[solver_of(n)].needs.columns])
places = st.lists(st.integers(1, ROWS - 1), max_size=5)


def specs_of(name: str, batch: int = 1, layout: str = "sparse", loss: str = "logistic") -> list[LaneSpec]:
    assert name in EXAMPLES, f"add an example and a slow twin of '{name}' to EXAMPLES"
    example = EXAMPLES[name]
    return [
        LaneSpec(name, loss, 0.0, example.norm, sigma, Target("label"), 0, batch, 0.1, layout, own)
        for sigma, own in zip(example.sigmas, example.own, strict=True)
    ]


def rows_of(layout: str = "sparse", features: int = FEATURES, classes: bool = True, seed: int = 0) -> Window:
    return window(ROWS, features, layout, classes=classes, weighted=True, seed=seed)


def trained(name: str, stop: int = ROWS, rows: Window | None = None, **more: Any) -> Training:
    training = Training(specs_of(name, **more), FEATURES)
    training.advance(rows or rows_of(more.get("layout", "sparse")), 0, stop)
    return training


# Steps.


@every_learner
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("batch", [1, 7])
def test_each_lane_agrees_with_its_slow_twin(name: str, layout: str, batch: int) -> None:
    rows, specs = rows_of(layout), specs_of(name, batch, layout)
    training, example = Training(specs, FEATURES), EXAMPLES[name]
    twins = [example.twin(spec, FEATURES) for spec in specs]
    plain = rows.plain_rows(FEATURES, 0.1)
    for first in range(0, ROWS, batch):
        stop = min(first + batch, ROWS)
        training.advance(rows, first, stop)
        for twin in twins:
            twin.step(plain[first:stop])
        if first % 40 < batch or stop == ROWS:
            for lane, twin in enumerate(twins):
                np.testing.assert_allclose(training.weights(lane), example.weights(twin), rtol=1e-9, atol=1e-12)
    assert len({training.weights(lane).tobytes() for lane in range(len(specs))}) == len(specs)


@every_learner
@given(saves=places)
@hypothesis_settings(max_examples=15, deadline=None)
def test_resumed_training_has_the_bits_of_unpaused_training(name: str, saves: list[int]) -> None:
    rows, whole, resumed = rows_of(), trained(name), Training(specs_of(name), FEATURES)
    for first, stop in pairwise(sorted({0, ROWS, *saves})):
        resumed.advance(rows, first, stop)
        bits(resumed)  # reading the bits changes nothing either
        resumed = resumed.again()
    assert bits(resumed) == bits(whole)


@every_learner
def test_weights_of_some_coordinates_agree_with_all_weights(name: str) -> None:
    training, chosen = trained(name, 90), np.array([0, 2, FEATURES])
    for lane in range(len(training)):
        np.testing.assert_array_equal(training.weights(lane, chosen), training.weights(lane)[chosen])


@every_learner
def test_base_and_scale_shift_and_stretch_the_labels(name: str) -> None:
    """The slope of the squared loss depends only on score - label."""
    rows, specs = rows_of(classes=False), specs_of(name, loss="squared")
    moved = replace(rows, labels=(rows.labels - 3.0) / 4.0)
    here = Training([replace(in_labels(spec, 4.0), base=3.0, scale=4.0) for spec in specs], FEATURES)
    there = Training(specs, FEATURES)
    here.advance(rows, 0, ROWS)
    there.advance(moved, 0, ROWS)
    for lane in range(len(specs)):
        np.testing.assert_allclose(here.weights(lane), there.weights(lane), rtol=1e-9, atol=1e-12)
        weights, constant = here.predictor(lane)
        np.testing.assert_allclose(weights, 4.0 * there.weights(lane)[1:], rtol=1e-9, atol=1e-12)
        assert constant == pytest.approx(3.0 + 0.4 * there.weights(lane)[0], rel=1e-9)


def in_labels(spec: LaneSpec, scale: float) -> LaneSpec:
    """With the l1 of labels that are so much larger: a squared loss grows with their square, |w| with them."""
    l1 = getattr(spec.own, "l1", None)
    return spec if l1 is None else replace(spec, own=replace(spec.own, l1=scale * l1))


@every_learner
def test_offsets_are_added_to_the_scores(name: str) -> None:
    rows, specs = rows_of(classes=False), specs_of(name, loss="squared")
    offsets = np.random.default_rng(1).normal(size=ROWS)
    here, there = Training(specs, FEATURES), Training(specs, FEATURES)
    here.advance(replace(rows, offsets=offsets), 0, ROWS)
    there.advance(replace(rows, labels=rows.labels - offsets), 0, ROWS)
    for lane in range(len(specs)):
        np.testing.assert_allclose(here.weights(lane), there.weights(lane), rtol=1e-9, atol=1e-12)


# Lanes.


@every_learner
@pytest.mark.parametrize("stop", [0, 1, 63, 100])
def test_lanes_that_are_kept_or_cloned_learn_the_same_weights(name: str, stop: int) -> None:
    rows, lanes = rows_of(), trained(name, stop)
    kept, cloned = lanes.keeping([2, 0]), lanes.keeping([1, 1, 0])
    for training in (lanes, kept, cloned):
        training.advance(rows, stop, ROWS)
    for training, origins in ((kept, [2, 0]), (cloned, [1, 1, 0])):
        for lane, origin in enumerate(origins):
            np.testing.assert_allclose(training.weights(lane), lanes.weights(origin), rtol=1e-9, atol=1e-12)
    assert cloned.weights(0).tobytes() == cloned.weights(1).tobytes()


@every_learner
def test_lanes_that_join_learn_the_same_as_alone(name: str) -> None:
    rows, old = rows_of(), specs_of(name)
    later = [replace(spec, target=replace(spec.target, joined=1)) for spec in old[:2]]
    undisturbed, alone, both = trained(name, 50), Training(later, FEATURES), trained(name, 50)
    both.join([old[0], later[0], old[1], later[1], old[2]], [0, None, 1, None, 2])
    both = both.again()
    for training in (undisturbed, alone, both):
        training.advance(rows, 50, ROWS)
    assert [both.weights(lane).tobytes() for lane in (0, 2, 4)] == [undisturbed.weights(k).tobytes() for k in range(3)]
    assert [both.weights(lane).tobytes() for lane in (1, 3)] == [alone.weights(k).tobytes() for k in range(2)]


@every_learner
@given(at=st.integers(0, ROWS))
@hypothesis_settings(max_examples=10, deadline=None)
def test_features_that_arrive_late_give_the_bits_of_features_from_the_start(name: str, at: int) -> None:
    few, many = rows_of(), rows_of(features=3 * FEATURES)
    late, early = Training(specs_of(name), FEATURES), Training(specs_of(name), 3 * FEATURES)
    for training in (late, early):
        training.advance(few, 0, at)
    late.grow(2 * FEATURES)
    late = late.again()
    late.grow(3 * FEATURES)
    for training in (late, early):
        training.advance(many, 0, ROWS)
    assert bits(late) == bits(early)


@every_learner
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_loops_are_compiled_in_advance_for_the_arrays_of_training(
    name: str, layout: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba compiles a loop again for an array whose numbers are in another order."""
    learner, spec = learner_named(name), specs_of(name, layout=layout)[0]
    lanes, init = min(lanes, learner.widths(spec.norm)[-1]), learner.init
    rehearsed: list[dict[str, Any]] = []

    def noted(self: Any, coordinates: int) -> State:
        state = init(self, coordinates)
        rehearsed.append(types_of(state))
        return state

    monkeypatch.setattr(learner, "init", noted)
    warm_up(learner, spec, lanes)
    assert rehearsed == [types_of(init(learner([spec] * lanes), FEATURES + 1))]


def types_of(state: State) -> dict[str, Any]:
    return {name: numba.typeof(array) for name, array in state.items()}


@every_learner
def test_restarting_the_averages_keeps_the_number_of_steps(name: str) -> None:
    training = trained(name, 100)
    digest = training.again()
    digest.restart_averages()
    assert digest.steps == 100
    assert all(digest.tallies(lane).steps == 0 for lane in range(len(digest)))
    digest.advance(rows_of(), 100, ROWS)
    assert all(np.isfinite(digest.weights(lane)).all() for lane in range(len(digest)))


@every_learner
def test_memory_per_feature_is_the_size_of_the_arrays(name: str) -> None:
    training = Training(specs_of(name), 1100)
    alone, of_three = training.bytes_per_feature(), training.bytes_per_feature(3)
    assert training.nbytes == 1101 * alone == sum(wide_bytes(group, group.state) for group in training.groups)
    copies = [
        wide_bytes(group, copy)
        for group in training.groups
        for copy in states.copies_of(group.learner.fields, states.sizes_of(1101, group.learner.width), 2)
    ]
    assert sum(copies) == 1101 * (of_three - alone)


def wide_bytes(group: Group, state: State) -> int:
    """The size of the arrays that grow with the features. A copy has only the arrays that steps change."""
    fields = group.learner.fields.items()
    return sum(state[name].nbytes for name, field in fields if COORDINATE in field.axes and name in state)


# Several workers.


def sequentially(job: Callable[[int], None], count: int) -> None:
    for worker in range(count):
        job(worker)


@every_learner
def test_a_worker_counts_each_change_as_often_as_there_are_workers(name: str) -> None:
    rows, once, often = rows_of(), Training(specs_of(name), FEATURES), Training(specs_of(name), FEATURES)
    for training, copies in ((once, 1), (often, 3)):
        learner, state = training.groups[0].learner, training.state
        step(learner, state, rows, 0, 1, copies)
        learner.settle(state)
    assert (once.steps, often.steps) == (1, 3)
    for lane in range(len(once)):
        np.testing.assert_allclose(often.dual(lane), 3.0 * once.dual(lane), rtol=1e-12)


@every_learner
@pytest.mark.parametrize("workers", [2, 3])
def test_a_merge_does_what_the_fields_declare(name: str, workers: int) -> None:
    """The learner's own merge agrees with the generic one."""
    training, rows = trained(name, 65), rows_of()
    learner, state = training.groups[0].learner, training.state
    if refused(learner):
        pytest.skip(EXAMPLES[name].reason_to_refuse_workers)
    copies = states.copies_of(learner.fields, states.sizes_of(FEATURES + 1, learner.width), workers - 1)
    spread(learner, state, copies, sequentially)
    for worker, one in enumerate((state, *copies)):
        step(learner, one, rows, 66 + 20 * worker, 86 + 20 * worker, workers)
    plain = [duplicate(learner, {**state, **one}) for one in (state, *copies)]
    for one in plain:
        learner.settle(one)
    states.merge(learner.fields, plain[0], plain[1:])
    learner.settle(plain[0])
    learner.end_stretch(plain[0])
    merge(learner, state, copies, sequentially)
    for field in learner.fields:
        np.testing.assert_allclose(state[field], plain[0][field], rtol=1e-12, atol=1e-14, err_msg=field)
    for copy in copies:  # ready for the next round
        changing = {name: field for name, field in learner.fields.items() if field.merge is not Merge.SAME}
        for field, declared in changing.items():
            expected = np.zeros_like(state[field]) if declared.merge is Merge.SUM else state[field]
            np.testing.assert_array_equal(copy[field], expected, err_msg=field)


def refused(learner: Any) -> bool:
    return any(field.merge is Merge.REFUSED for field in learner.fields.values())


def duplicate(learner: Any, state: State) -> State:
    lanes = learner.width
    found: State = states.gather(learner.fields, [(state, column) for column in range(lanes)], FEATURES + 1)
    return found


@every_learner
def test_pauses_between_rounds_do_not_change_the_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_SMALLEST_SHARE", 2)
    monkeypatch.setattr(engine, "_SEEN_BEFORE", 4)
    rows, specs = rows_of(), specs_of(name)
    if refused(learner_named(name)(specs)):
        pytest.skip(EXAMPLES[name].reason_to_refuse_workers)
    whole, cut = Training(specs, FEATURES, 2), Training(specs, FEATURES, 2)
    assert whole.advance(rows, 0, ROWS) == ROWS
    row = 0
    for stop in (10, 30, 31, 77, 120, ROWS):
        if row < stop:
            row = cut.advance(rows, row, stop, ROWS)
            cut = cut.again()
    assert bits(cut) == bits(whole)
    assert whole.digest() != trained(name).digest(), "no round took place, so the test shows nothing"


# Saved state.


def damaged(section: Bundle, array: str, change: Callable[[Any], Any]) -> Bundle:
    return Bundle(section.values, {**section.arrays, array: change(section.arrays[array].copy())})


@every_learner
def test_invalid_state_is_refused(name: str) -> None:
    section = saved(trained(name, 70).lanes)
    Lanes().restore(section)
    for array, content in section.arrays.items():
        changes: list[Callable[[Any], Any]] = [lambda a: a[:-1], lambda a: a[..., np.newaxis], lambda a: a.astype("f4")]
        changes.append(lambda a: filled(a, np.nan if a.dtype == np.float64 else -1))
        for number, change in enumerate(changes):
            with pytest.raises(ValueError, match=r"array|stretch|step"):
                Lanes().restore(damaged(section, array, change))
                pytest.fail(f"change {number} of '{array}' of {content.dtype} was accepted")
        missing = {other: kept for other, kept in section.arrays.items() if other != array}
        with pytest.raises(ValueError, match="arrays"):
            Lanes().restore(Bundle(section.values, missing))
    with pytest.raises(ValueError, match="no model"):
        Lanes().restore(Bundle(section.values, {**section.arrays, "0.other": np.zeros(3)}))
    for values in ({"specs": []}, {"features": -1}, {"features": 10**12}, {"features": True}):
        with pytest.raises(ValueError, match=r"model|features|array"):
            Lanes().restore(Bundle({**section.values, **values}, section.arrays))


def filled(array: Any, number: float) -> Any:
    array.reshape(-1)[0] = number
    return array


@every_learner
def test_invalid_specs_are_refused(name: str) -> None:
    section = saved(trained(name, 3).lanes)
    spec = section.values["specs"][0]
    wrong = [{"batch": 0}, {"loss": "none"}, {"layout": "round"}, {"sigma": -1.0}, {"scale": 0.0}, {"learner": "none"}]
    wrong += [{"own": {**spec["own"], own: "x"}} for own in spec["own"]]
    for change in wrong:
        specs = [{**one, **change} for one in section.values["specs"]]
        with pytest.raises(ValueError, match=r"."):
            Lanes().restore(Bundle({**section.values, "specs": specs}, section.arrays))


# Fields.


@every_learner
def test_fields_are_declared_as_the_generic_functions_require(name: str) -> None:
    fields = learner_named(name)(specs_of(name)).fields
    assert fields["steps"].merge is Merge.MEAN
    assert all(LANE not in field.axes[:-1] for field in fields.values())


@every_learner
def test_workers_are_refused_if_a_field_cannot_be_merged(name: str) -> None:
    lanes = Lanes(specs_of(name), FEATURES)
    learner = lanes.groups[0].learner
    learner.fields = {**learner.fields, "own": states.counter(Merge.REFUSED)}
    with pytest.raises(OptionError) as raised:
        Engine(lanes, 2).advance(rows_of(), 0, 1)
    assert "'own'" in raised.value.found
    assert "--threads 1" in raised.value.remedy
