"""Each of several lanes that train on the same rows gives the model of a lane that is trained alone.

Lanes agree with the slow twin and with a solver of one lane except for rounding: the order of sums over a row depends on
the number of lanes. Runs with other calls, checkpoints or dropped lanes are compared bit for bit.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

import numpy as np
import pytest

from streampgs.kernels import pgs_loop as loops
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.pgs import Pgs

from .windows import Training, changed, settings, started, window

FEATURES = 12
ROWS = 210
CLASSES = 4
COLUMNS = 3


@dataclass(frozen=True)
class Case:
    """Lanes of one group that differ in every option in which such lanes can differ."""

    common: LaneSpec
    count: int
    ball: bool = False
    weighted: bool = False

    def __str__(self) -> str:
        s = self.common
        return f"{self.count}-{s.loss}-{s.norm.p}-{s.layout}-{s.own.returns}-batch{s.batch}"

    @property
    def classifies(self) -> bool:
        return self.common.loss in ("hinge", "logistic")

    def lanes(self) -> list[LaneSpec]:
        made = []
        for k in range(self.count):
            lane = changed(
                self.common,
                sigma=0.01 * 3.0 ** (k % 4) * 1.01**k,
                t0=(1.0, 30.0, 4.0)[k % 3],
                shape=0.1 + 0.8 * k / self.count if self.common.loss == "quantile" else 0.0,
                ball=(None, 0.4, 1.1)[k % 3] if self.ball else None,
            )
            if not self.classifies:
                lane = changed(lane, column=k % COLUMNS)
            elif k % 2:
                lane = changed(lane, positive=float(k % CLASSES))
            else:
                lane = changed(lane, column=1 + k // 2 % 2)
            made.append(lane)
        return made

    def rows(self, features=FEATURES, visits=None):
        """Labels of classifiers: the number of a class, then two columns of -1 and +1. Others: three columns of numbers."""
        rows = window(ROWS, features, self.common.layout, classes=False, weighted=self.weighted, seed=len(str(self)))
        random = np.random.default_rng(7)
        told = rows.labels[:, np.newaxis] + np.array([0.0, 0.5, -1.0]) + 0.3 * random.normal(size=(ROWS, COLUMNS))
        if self.classifies:
            told[:, 0] = np.clip(np.round(told[:, 0] + 0.5 * CLASSES), 0, CLASSES - 1)
            told[:, 1:] = np.where(told[:, 1:] > 0.0, 1.0, -1.0)
        rows = replace(rows, labels=told)
        return rows if visits is None else rows.visited(visits)


# Each loop width, filled and not, and each choice of returned weights. Every combination of options is a compilation.
CASES = [
    Case(settings("hinge", 2.0, "sparse", "suffix"), 2),
    Case(settings("hinge", 2.0, "sparse", "suffix"), 3, ball=True, weighted=True),
    Case(settings("logistic", 2.0, "dense", "average", batch=7), 5, weighted=True),
    Case(settings("squared", 2.0, "sparse", "last", intercept=0.0), 8, ball=True),
    Case(settings("quantile", 2.0, "dense", "suffix"), 11, weighted=True),
    Case(settings("hinge", 2.0, "sparse", "suffix", batch=7), 16, ball=True),
    Case(settings("hinge", 2.0, "sparse", "suffix"), 23),
]
NEAR_ONE = Case(settings("logistic", 1.5, "sparse", "suffix"), 3, ball=True, weighted=True)


MOST_LANES = loops.LANE_WIDTHS[-1]


def lanes_of(chosen, features=FEATURES, workers=1):
    return Training(chosen, features, workers)


def known_of(lanes, lane):
    """All results of a lane, to be compared for equality."""
    return (
        lanes.dual(lane).tobytes(),
        lanes.weights(lane).tobytes(),
        repr(lanes.gap(lane)),
        repr(astuple(lanes.tallies(lane))),
        lanes.specs[lane],
    )


def all_known(lanes):
    return [lanes.steps, lanes.features, lanes.digest(), *(known_of(lanes, lane) for lane in range(len(lanes)))]


def assert_close(found, expected, tolerance=1e-9):
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.isfinite(found).all()
    assert (np.abs(found - expected) <= tolerance * (np.abs(expected).max() + np.abs(expected)) + 1e-12).all()


# Lanes compared with single models.


def test_lanes_with_p_near_1_equal_single_solvers_bit_for_bit():
    """They share only their rows."""
    chosen = [changed(lane, p=p) for p in (1.5, 1.1) for lane in NEAR_ONE.lanes()]
    rows, lanes = NEAR_ONE.rows(), lanes_of(chosen)
    alone = [started(lane, FEATURES) for lane in chosen]
    for first, stop in ((0, 50), (50, ROWS)):
        for solver in (lanes, *alone):
            solver.advance(rows, first, stop)
    assert [known_of(lanes, k) for k in range(6)] == [known_of(solver, 0) for solver in alone]
    fewer = lanes.keeping([1, 4, 5])
    rows = NEAR_ONE.rows(visits=np.arange(ROWS)[::-1])
    for solver in (fewer, *alone):
        solver.advance(rows, 0, ROWS)
    assert [known_of(fewer, k) for k in range(3)] == [known_of(alone[lane], 0) for lane in (1, 4, 5)]


# Pauses.


def test_rebuilds_after_many_steps_depend_only_on_the_step():
    case = CASES[1]
    total = (1 << 18) + 500
    rows = case.rows(visits=np.arange(total) % ROWS)
    whole, cut = lanes_of(case.lanes()), lanes_of(case.lanes())
    whole.advance(rows, 0, total)
    for first, stop in ((0, 100_000), (100_000, (1 << 18) - 1), ((1 << 18) - 1, (1 << 18) + 3), ((1 << 18) + 3, total)):
        cut.advance(rows, first, stop)
        cut = cut.again()
    assert all_known(cut) == all_known(whole)
    for lane in range(case.count):
        power_sum = whole.state["power_sum"][lane]
        assert power_sum == pytest.approx(float(np.sum(whole.dual(lane) ** 2)), rel=1e-9)


# Several groups.


def mixed():
    """Lanes with alternating losses and p, as in a grid, and more lanes of one combination than fit into a group."""
    hinge, logistic = settings("hinge", 2.0, "sparse", "suffix"), settings("logistic", 2.0, "sparse", "suffix")
    near_one = changed(logistic, p=1.5)
    made = []
    for k in range(18):
        made += [
            changed(hinge, sigma=0.01 * 1.3**k),
            changed(near_one if k % 3 == 0 else logistic, sigma=0.02 * 1.2**k),
        ]
    return made


def test_lanes_of_different_groups_keep_their_numbers():
    chosen = mixed()
    rows = window(ROWS, FEATURES, "sparse")
    lanes = lanes_of(chosen)
    assert lanes.specs == tuple(chosen)
    assert len(lanes) == len(chosen)
    lanes = lanes.again()
    lanes.advance(rows, 0, ROWS)
    lanes = lanes.again()
    kept = [0, 1, 5, 6, 8, 20, 33, 34]
    fewer = lanes.keeping(kept)
    assert fewer.specs == tuple(chosen[lane] for lane in kept)
    for lane, one in enumerate(chosen):
        alone = started(one, FEATURES)
        alone.advance(rows, 0, ROWS)
        assert_close(lanes.dual(lane), alone.dual())
        assert_close(lanes.weights(lane), alone.weights())
        assert_close(astuple(lanes.tallies(lane)), astuple(alone.tallies()))
        assert lanes.gap(lane) == pytest.approx(alone.gap(), rel=1e-8)
        if lane in kept:
            assert known_of(fewer, kept.index(lane)) == known_of(lanes, lane)


def test_no_group_is_larger_than_a_loop_and_none_mixes_losses_or_norms():
    groups = [group.learner.specs for group in Training(mixed()).groups]
    assert all(len(specs) <= MOST_LANES for specs in groups)
    assert all(len({spec.group for spec in specs}) == 1 for specs in groups)
    assert sorted(map(repr, (spec for specs in groups for spec in specs))) == sorted(map(repr, mixed()))
    assert max(len(specs) for specs in groups if specs[0].norm.p < 2.0) == 1


def test_lanes_that_cannot_be_trained_together_are_refused():
    hinge = settings("hinge", 2.0, "sparse")
    for other in (
        settings("logistic", 2.0, "sparse"), settings("hinge", 1.5, "sparse"), settings("hinge", 2.0, "dense"),
        settings("hinge", 2.0, "sparse", "last"), settings("hinge", 2.0, "sparse", batch=2),
        settings("hinge", 2.0, "sparse", intercept=1.0), settings("hinge", 2.0, "sparse", seed=1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="belong together"):
            Pgs([hinge, other])
    with pytest.raises(ValueError, match="belong together"):
        Pgs([hinge] * (MOST_LANES + 1))
    with pytest.raises(ValueError, match="belong together"):
        Pgs([changed(hinge, p=1.5)] * 2)


# Lanes that join later.


@pytest.mark.parametrize("batch", [1, 3])
def test_lanes_that_join_end_where_a_round_of_the_others_ends(batch):
    old = settings("logistic", 2.0, "sparse", batch=batch)
    later = changed(old, joined=1, positive=1.0)
    case, total = Case(old, 1), 60_000 * batch
    rows = case.rows(visits=np.arange(total) % ROWS)
    undisturbed, alone = lanes_of([old], workers=2), lanes_of([later])
    first = undisturbed.advance(rows, 0, 10_000 * batch, total)
    both = undisturbed.again()
    both.join([old, later], [0, None])
    beyond = 0
    while first < total:
        stop = min(total, first + 1_001 * batch)
        reached = both.advance(rows, first, stop, total)
        assert undisturbed.advance(rows, first, stop, total) == reached
        beyond += reached > stop
        alone.advance(rows, first, reached, total)
        first = reached
    assert beyond, "no round ended beyond the requested row: the case tests nothing"
    assert known_of(both, 0) == known_of(undisturbed, 0)
    assert known_of(both, 1) == known_of(alone, 0)
