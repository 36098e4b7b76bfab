"""Pauses change nothing: neither the rows at which calls end, nor checkpoints, nor features that appear late.

All comparisons are of bits. A difference would mean that a run that is resumed, or that runs on another machine, trains
a different model.
"""

from __future__ import annotations

import numpy as np
import pytest

from .windows import bits, settings, started, window

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

# After the step at which all values derived from λ are recomputed, however long the stretch.
REBUILD_STEPS = 1 << 18


def rows_for(chosen):
    return window(ROWS, FEATURES, chosen.layout, classes=chosen.loss in ("hinge", "logistic"))


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
