"""Pauses change nothing: neither the rows at which calls end, nor checkpoints, nor features that appear late.

All comparisons are of bits. A difference would mean that a run that is resumed, or that runs on another machine, trains
a different model.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from .windows import advance_in_pieces, bits, changed, last_iterate, settings, started, window

FEATURES = 12
ROWS = 400

# One case for each choice of returned weights, each type of norm and each layout. test_figure_1 uses the same loops.
CASES = [
    settings("hinge", 2.0, "sparse", "suffix"),
    settings("hinge", 1.8, "sparse", "suffix", batch=7),
    settings("logistic", 1.5, "dense", "average", radius=0.5),
    settings("absolute", 2.0, "sparse", "last", batch=3),
    settings("huber", 1.1, "dense", "random", shape=0.5),
]
every_case = pytest.mark.parametrize("chosen", CASES, ids=lambda s: f"{s.loss}-{s.norm.p}-{s.layout}-{s.own.returns}")
# A number of rows at which to stop. The tests round it to a multiple of the batch.
places = st.integers(1, ROWS - 1)

# After the step at which all values derived from λ are recomputed, however long the stretch.
REBUILD_STEPS = 1 << 18


def rows_for(chosen):
    return window(ROWS, FEATURES, chosen.layout, classes=chosen.loss in ("hinge", "logistic"))


def at_batches(chosen, cuts):
    return sorted({cut // chosen.batch * chosen.batch for cut in cuts} - {0})


@every_case
@given(cuts=st.lists(places, max_size=12))
def test_where_calls_end_changes_nothing(chosen, cuts):
    rows = rows_for(chosen)
    whole, cut = started(chosen, FEATURES), started(chosen, FEATURES)
    whole.advance(rows, 0, ROWS)
    advance_in_pieces(cut, rows, 0, ROWS, at_batches(chosen, cuts))
    assert bits(cut) == bits(whole)


@every_case
@given(saves=st.lists(places, min_size=1, max_size=5))
def test_checkpoints_change_nothing(chosen, saves):
    rows = rows_for(chosen)
    whole, resumed = started(chosen, FEATURES), started(chosen, FEATURES)
    row = 0
    for save in at_batches(chosen, saves):
        whole.advance(rows, row, save)
        resumed.advance(rows, row, save)
        resumed = resumed.again()
        assert bits(resumed) == bits(whole)
        row = save
    whole.advance(rows, row, ROWS)
    resumed.advance(rows, row, ROWS)
    assert bits(resumed) == bits(whole)


@every_case
@pytest.mark.parametrize("steps", [0, 1, 2, 31, 32, 33, 48])
def test_reading_results_changes_nothing(chosen, steps):
    rows = rows_for(chosen)
    silent, asked = started(chosen, FEATURES), started(chosen, FEATURES)
    for solver in (silent, asked):
        solver.advance(rows, 0, steps * chosen.batch)
    for _ in range(2):
        bits(asked)
        last_iterate(asked)
    for solver in (silent, asked):
        solver.advance(rows, steps * chosen.batch, ROWS)
    assert bits(asked) == bits(silent)


@every_case
def test_rebuilds_depend_on_the_step_and_not_on_the_call(chosen):
    total = (REBUILD_STEPS + 40) * chosen.batch
    rows = rows_for(chosen).visited(np.arange(total) % ROWS)
    near = REBUILD_STEPS * chosen.batch
    whole, cut = started(chosen, FEATURES), started(chosen, FEATURES)
    whole.advance(rows, 0, total)
    cuts = [near // 3 // chosen.batch * chosen.batch, near - chosen.batch, near + 7 * chosen.batch]
    for first, stop in zip([0, *cuts], [*cuts, total], strict=True):
        cut.advance(rows, first, stop)
        cut = cut.again()
    assert bits(cut) == bits(whole)


@pytest.mark.parametrize(
    "chosen", [case for case in CASES if case.layout == "sparse"], ids=lambda s: f"{s.loss}-{s.norm.p}"
)
@given(grow_at=places, half_way=st.integers(FEATURES, 3 * FEATURES))
@hypothesis_settings(max_examples=25)
def test_features_that_appear_late_give_the_same_bits(chosen, grow_at, half_way):
    few, many = rows_for(chosen), window(ROWS, 3 * FEATURES, "sparse", classes=chosen.loss == "hinge")
    late, early = started(chosen, FEATURES), started(chosen, 3 * FEATURES)
    stop = grow_at // chosen.batch * chosen.batch
    late.advance(few, 0, stop)
    early.advance(few, 0, stop)
    late.grow(half_way)
    late = late.again()
    late.grow(3 * FEATURES)
    late.grow(FEATURES)  # never shrinks
    assert late.features == early.features == 3 * FEATURES
    late.advance(many, 0, ROWS)
    early.advance(many, 0, ROWS)
    assert bits(late) == bits(early)


@pytest.mark.parametrize("returns", ["suffix", "average", "last", "random"])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_bytes_per_feature_counts_every_array(p, returns):
    small, large = (started(changed(CASES[0], p=p, returns=returns), features) for features in (10, 1010))

    def bytes_held(solver):
        names = [name for name, array in solver.state.items() if name == "coordinates" or array.ndim == 2]
        packed = {"dual", "raised", "iterate_sum", "scalars", "tallies", "earlier_tallies"}
        return sum(solver.state[name].nbytes for name in names if name not in packed)

    assert bytes_held(large) - bytes_held(small) == 1000 * small.bytes_per_feature()
