"""Which models have a certificate, and that it changes no step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streampgs.base.errors import OptionError
from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import step
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import PgsOptions, has_too_many_classes
from streampgs.options.commands import Limits, ModelOptions
from streampgs.run.start import _refuse_unreachable_targets


def classes(count: int) -> ModelOptions:
    return ModelOptions(classes=tuple(map(float, range(count))))


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_lanes_without_a_certificate_learn_the_same_and_take_less_memory(p: float) -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(700, 6)).astype(np.float32)
    starts = np.arange(700) * 6
    rows = Rows(starts, starts + 6, values=x.ravel(), labels=np.sign(x[:, 0] + 0.1), features=6)
    spec = LaneSpec(
        "pgs", "logistic", 0.0, PNorm(p), 1e-3, Target("y"), 0, 1, 0.5, "dense", PgsOptions(9.0, None, "suffix")
    )
    lanes = [Lanes([replace(spec, own=replace(spec.own, certified=certified))], 6) for certified in (True, False)]
    for one in lanes:
        step(one.groups[0].learner, one.groups[0].state, rows, 0, len(rows))
    certified, plain = lanes
    assert np.array_equal(certified.weights(0), plain.weights(0))
    assert certified.digest() == plain.digest()
    assert certified.certificate(0) is not None
    assert plain.certificate(0) is None
    assert plain.bytes_per_feature() < certified.bytes_per_feature()


def test_more_than_eight_classes_have_no_certificate_so_a_gap_as_target_is_refused() -> None:
    assert not has_too_many_classes(classes(8))
    _refuse_unreachable_targets(classes(8), Limits(target_gap=0.1))
    _refuse_unreachable_targets(classes(9), Limits(epochs=3))
    with pytest.raises(OptionError, match="--target-gap with 9 classes"):
        _refuse_unreachable_targets(classes(9), Limits(target_gap=0.1))
