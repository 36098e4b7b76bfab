"""Which power of their frequency the values of features are scaled by: none, or the one that predicts other rows best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streampgs.data.feature_maps import FrequencyScale, Numbering, frequency_scale
from streampgs.kernels.rows import one_row
from streampgs.learn.lane_spec import LaneSpec
from streampgs.options.commands import ModelOptions
from streampgs.selection.cross_validation import CrossValidation

POWERS = 0.125, 0.25, 0.5
_ALIKE = 1.25
"""The largest scale over the smallest, with the least power, of features that occur about equally often."""
_SURE = 0.25
"""A scale must lower the loss by this share over the square root of the rows that judge it."""


def may_scale(options: ModelOptions, layout: str) -> bool:
    """Whether the solver chooses everything else: what the user has given is not changed."""
    return (
        layout == "sparse"
        and options.kernel is None
        and options.solver == "pgs"
        and options.l1 is None
        and options.p == 2.0
    )


def warm_up_scales() -> None:
    """Compile the loops of scales, or load them from their cache."""
    row = one_row(sparse=True)
    frequency_scale(row, POWERS[0], None).scaled(row)


def best_scale(
    search: CrossValidation, lanes: Sequence[LaneSpec], numbering: Numbering | None, by_loss: bool
) -> FrequencyScale | None:
    """The scale with which these lanes, one for each target, predict other rows best; None: they do best without one."""
    scales = [frequency_scale(search.window, power, numbering) for power in POWERS]
    if not len(scales[0].scales) or scales[0].scales.max() <= _ALIKE * scales[0].scales.min():
        return None
    losses = [_loss(search, lanes, None, by_loss), *(_loss(search, lanes, scale, by_loss) for scale in scales)]
    best = int(np.argmin(losses))
    gain = 1.0 - losses[best] / losses[0] if losses[0] > 0.0 else 0.0
    return scales[best - 1] if gain * max(1, search.judged) ** 0.5 > _SURE else None


def _loss(search: CrossValidation, lanes: Sequence[LaneSpec], scale: FrequencyScale | None, by_loss: bool) -> float:
    if scale is not None:
        window, validation = search.window, search.validation
        used = window.at(slice(0, search.last_row))
        search = replace(search, window=replace(window, values=scale.scaled(used).values))
        search = search if validation is None else replace(search, validation=scale.scaled(validation))
    (found,) = search.judgements([lanes])
    return found.loss if by_loss else found.merit
