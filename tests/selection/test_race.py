"""The race: when and on which rows candidates are judged, which one is kept, and that pauses change nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streampgs.base.stage import Bundle
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import PgsOptions
from streampgs.reading.window import Window
from streampgs.selection.grid import lanes_of
from streampgs.selection.race import Mark, Race

FEATURES = 4
TIE = 0.0015
WORST = 1e300
"""Replaces a merit that is not finite."""
ONE_TARGET = [Target("label")]


def candidate(sigma: float = 1e-3, loss: str = "hinge", p: float = 2.0, **target: Any) -> LaneSpec:
    own = PgsOptions(1.0, None, "suffix")
    return LaneSpec("pgs", loss, 0.0, PNorm(p), sigma, Target("", **target), 0, 1, 0.1, "dense", own)


def window_of(x: Any, labels: Any, weights: Any = ()) -> Window:
    window = Window()
    x = np.asarray(x, np.float32)
    window.starts = np.arange(len(x)) * x.shape[1]
    window.stops = window.starts + x.shape[1]
    window.values = x.ravel()
    window.labels, window.weights = np.asarray(labels, float), np.asarray(weights, float)
    return window


class StandIn:
    """Lanes with weights chosen by a test."""

    def __init__(self, specs: Any, weights: Any) -> None:
        self.specs = list(specs)
        self.vectors = [np.asarray(vector, float) for vector in weights]
        self.kept: list[int] | None = None
        self.stopped = [False] * 64

    def __len__(self) -> int:
        return len(self.specs)

    @property
    def features(self) -> int:
        return len(self.vectors[0]) - 1

    def weights(self, lane: int, coordinates: Any = slice(None)) -> Any:
        return self.vectors[lane][coordinates]

    def diverged_places(self) -> set[int]:
        targets = len({spec.target for spec in self.specs})
        return {lane // targets for lane in range(len(self.specs)) if self.stopped[lane]}

    def keep(self, kept: Any) -> None:
        self.kept = list(kept)
        self.specs, self.vectors = [self.specs[lane] for lane in kept], [self.vectors[lane] for lane in kept]


def race_of(field: Any, targets: Any, judges_on: bool, validation: Window | None) -> Race:
    made = Race(StandIn([], []))  # type: ignore[arg-type]
    made.begin(field, targets, judges_on)
    made.read_validation = lambda: validation
    return made


def restored(made: Race) -> Race:
    """Another object with the same state, as read back from a checkpoint."""
    other = Race(made.lanes)
    other.restore(Bundle(json.loads(json.dumps(made.state().values))))
    return other


TRUTH = np.array([0.0, 1.0, -2.0, 0.5, 1.0])


def noisy_window(rows: int = 2000, seed: int = 0, classes: bool = True) -> Window:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, FEATURES))
    wished = x @ TRUTH[1:] + 0.5 * random.normal(size=rows)
    return window_of(x, np.where(wished > 0.0, 1.0, -1.0) if classes else wished)


def off_by(angle: float) -> Any:
    """Weights at an angle to the truth."""
    return TRUTH + angle * np.array([0.0, 2.0, 1.0, 0.0, 0.0]) * np.linalg.norm(TRUTH)


def judged_at(
    made: Race, lanes: StandIn, window: Window, batch: int = 1, until: int = 10_000, cuts: Any = ()
) -> list[int]:
    """Advance like the trainer, with stops at `cuts` and at marks. Return the rows of each judgement."""
    seen, rows, row = [], 0, 0
    while rows < until:
        if made.next_mark is not None and rows >= made.next_mark:
            made.lanes = lanes  # type: ignore[assignment]
            made.judge(window, row, rows, until)
            seen.append(rows)
        following = min([cut for cut in cuts if cut > rows] + [until])
        step = following - rows
        if made.next_mark is not None:
            step = min(step, -(-(made.next_mark - rows) // batch) * batch)
        rows += step
        row = rows % (len(window) - 600)  # start over, like the next window
    return seen


# Marks.


def race(count: int = 8, judges_on: bool = True, **more: Any) -> Race:
    return race_of([candidate(10.0 ** -(k / 2), **more) for k in range(count)], ONE_TARGET, judges_on, None)


def field_of(made: Race, angles: Any = None) -> StandIn:
    angles = np.linspace(0.5, 0.0, len(made.candidates)) if angles is None else angles
    return StandIn(lanes_of(made.candidates, made.targets), [off_by(angle) for angle in angles])


def test_marks_come_every_few_rows_and_then_less_often():
    made = race()
    seen = judged_at(made, field_of(made), noisy_window(), until=40_000)
    gaps = np.diff([0, *seen])
    assert seen[0] == gaps[0] == min(gaps)
    assert (gaps[1:] <= np.maximum(gaps[0], np.array(seen[:-1]) // 8)).all()
    assert race(judges_on=False).next_mark is None


@given(
    cuts=st.lists(st.integers(1, 7999), max_size=30),
    batch=st.sampled_from([1, 7, 64]),
    count=st.sampled_from([2, 3, 8]),
)
@hypothesis_settings(max_examples=25)
def test_marks_are_at_the_same_rows_wherever_calls_end(cuts, batch, count):
    cuts = sorted({cut // batch * batch for cut in cuts})
    whole, cut = race(count), race(count)
    window = noisy_window()
    plain = judged_at(whole, field_of(whole), window, batch, 8064)
    assert judged_at(cut, field_of(cut), window, batch, 8064, cuts) == plain
    assert cut.state().values == whole.state().values
    assert all(rows % batch == 0 for rows in plain)


# Which candidate is kept.


def test_at_the_end_the_leader_is_kept():
    angles = [0.4, 0.0, 0.3, 0.1]
    made = race(4)
    lanes = field_of(made, angles)
    judged_at(made, lanes, noisy_window(), until=8000)
    merits = made.progress.marks[-1].merits
    made.end(8000)
    assert (made.progress.left, lanes.kept) == ([1], [1])
    assert {int(number): fate.rows for number, fate in made.progress.dropped.items()} == {0: 8000, 2: 8000, 3: 8000}
    assert [made.progress.dropped[str(number)].merit for number in (0, 2, 3)] == [merits[k] for k in (0, 2, 3)]
    assert made.leader() == 0


def with_merits(merits: Any, candidates: Any = None) -> Race:
    field = candidates or [candidate(10.0**-k) for k in range(len(merits))]
    made = race_of(field, ONE_TARGET, True, None)
    none = [None] * len(merits)
    made.progress.marks = [Mark(1, 10, [0.0] * len(merits), list(merits), none)]
    return made


@pytest.mark.parametrize(
    ("merits", "leads"),
    [
        ([0.5, 0.4, 0.3], 2),
        ([0.3, 0.4, 0.5], 0),
        # In a tie the larger σ leads, which is the first one here.
        ([0.4 * (1 + 0.9 * TIE), 0.4, 0.6], 0),
        ([0.4 * (1 + 1.1 * TIE), 0.4, 0.6], 1),
        ([0.6, 0.4 * (1 + 0.9 * TIE), 0.4], 1),
        ([0.4, 0.4, 0.4], 0),
        ([0.0, 0.0, 0.0], 0),
        # A merit that is not finite is worse than all others and never ties.
        ([WORST, 0.4, 0.5], 1),
        ([WORST, WORST, 0.5], 2),
        ([0.5, WORST, 0.4], 2),
    ],
)
def test_the_leader_has_the_best_merit_and_in_a_tie_the_largest_sigma(merits, leads):
    assert with_merits(merits).leader() == leads
    # The same in reverse order.
    turned = [candidate(10.0**-k) for k in range(len(merits))][::-1]
    assert with_merits(merits[::-1], turned).leader() == len(merits) - 1 - leads


@pytest.mark.parametrize("marks", [0, 1])
def test_a_candidate_that_has_diverged_does_not_lead(marks):
    """With several targets, also if only one of its lanes has."""
    field = [candidate(10.0**-k) for k in range(3)]
    targets = [Target("a", 0), Target("b", 1)]
    made = race_of(field, targets, True, None)
    lanes = StandIn(lanes_of(field, targets), [TRUTH] * 6)
    made.lanes = lanes
    made.progress.marks = [Mark(1, 10, [0.0] * 3, [0.5, 0.4, 0.6], [None] * 3)] * marks
    assert made.leader() == 1
    lanes.stopped[3] = True
    assert made.leader() == (0 if marks else 2)
    lanes.stopped[0] = True
    assert made.leader() == 2


# Judgements.


def judge_once(
    field: Any,
    vectors: Any,
    window: Window,
    row: int = 0,
    targets: Any = None,
    validation: Any = None,
    rows: int = 10**6,
) -> Any:
    made = race_of(field, targets or ONE_TARGET, True, validation)
    made.lanes = StandIn(lanes_of(field, made.targets), vectors)  # type: ignore[assignment]
    made.judge(window, row, rows, rows)
    return made.progress.marks[-1]


def test_loss_and_accuracy_are_those_of_the_returned_weights_on_the_next_rows():
    window, first = noisy_window(700), 500
    window.weights = np.random.default_rng(1).uniform(0.0, 2.0, 700)
    field, vectors = [candidate(), candidate(1e-4)], [off_by(0.3), off_by(0.0)]
    mark = judge_once(field, vectors, window, first)
    x = window.values.reshape(-1, FEATURES).astype(float)[first:]
    labels, weights = window.labels[first:], window.weights[first:]
    for k, w in enumerate(vectors):
        scores = x @ w[1:] + 0.1 * w[0]
        losses = np.maximum(0.0, 1.0 - labels * scores)
        assert mark.losses[k] == pytest.approx(weights @ losses / weights.sum(), rel=1e-12)
        assert mark.accuracies[k] == pytest.approx(weights @ ((scores > 0) == (labels > 0)) / weights.sum(), rel=1e-12)
    assert mark.merits[1] < mark.merits[0]


# Which rows are judged.


def test_validation_rows_decide_which_candidate_leads():
    """The window alone would prefer another one."""
    validation, window = noisy_window(2000, seed=5), noisy_window(2000, seed=6)
    validation.labels *= -1.0
    vectors = [off_by(0.0), off_by(0.2), -off_by(0.2), -off_by(0.0)]
    for given_validation, best in ((None, 0), (validation, 3)):
        made = race_of([candidate(10.0**-k) for k in range(4)], ONE_TARGET, True, given_validation)
        judged_at(made, StandIn(lanes_of(made.candidates, ONE_TARGET), vectors), window, until=4000)
        assert made.leader() == best


@pytest.mark.parametrize("rows", [1_000, 8_000, 80_000])
def test_at_a_mark_at_most_a_quarter_of_an_epoch_is_judged(rows):
    """Judging eight models must not cost more than training them."""
    window = noisy_window(20_000)
    made = race()
    made.lanes = field_of(made)  # type: ignore[assignment]
    made.judge(window, 0, rows, rows)
    assert min(512, rows // 4) <= made.progress.marks[-1].judged <= rows // 4


# Pauses.


@given(saves=st.lists(st.integers(1, 7999), max_size=6))
@hypothesis_settings(max_examples=20)
def test_a_race_that_was_saved_and_restored_decides_the_same(saves):
    window = noisy_window(seed=8)
    angles = [0.4, 0.12, 0.3, 0.1, 0.8, 0.11, 0.05, 0.6]
    whole, saved = race(), race()
    expected = judged_at(whole, field_of(whole, angles), window, until=8000)
    lanes, seen, rows = field_of(saved, angles), [], 0
    saved.lanes = lanes  # type: ignore[assignment]
    for stop in [*sorted(set(saves)), 8000]:
        while rows < stop:
            if saved.next_mark is not None and rows >= saved.next_mark:
                saved.judge(window, rows % (len(window) - 600), rows, 8000)
                seen.append(rows)
            rows = min(stop, saved.next_mark or stop)
        saved = restored(saved)
    for made in (whole, saved):
        made.end(8000)
    assert seen == expected
    assert saved.state().values == whole.state().values
    assert saved.candidates == whole.candidates
    assert saved.targets == whole.targets
