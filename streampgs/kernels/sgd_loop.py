"""The loop of stochastic gradient descent with steps of a fixed size, in O(nonzeros).

The regularizer multiplies all weights by 1 - η·σ in each step. So w = a·v is kept as a number a and a vector v, and the
sum of all iterates as S·v + u, where S is the sum of a: only the coordinates of the row change in v, and they are corrected
in u. When a has become small, it is multiplied into v, and S·v is added to u.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from streampgs.kernels.divergence import is_beyond
from streampgs.kernels.jit import compiled, inlinable
from streampgs.kernels.losses import LossFormulas, value_and_slope
from streampgs.kernels.targets import BASE, SHAPE, TARGET_ROWS, UNIT, label_of

STEP = TARGET_ROWS
"""η."""
DECAY = TARGET_ROWS + 1
"""1 - η·σ."""
PARAMETERS = TARGET_ROWS + 2
LOSS_TALLY, CORRECT_TALLY, WEIGHT_TALLY = 2, 3, 4
# Below, S·v + u would lose digits by cancellation.
_SMALLEST_SCALE = 2.0**-20


@inlinable
def _fold(direction, iterate_sum, scales, scale_sums, lane):  # type: ignore[no-untyped-def]
    scale, scale_sum = scales[lane], scale_sums[lane]
    for i in range(np.uint64(direction.shape[0])):
        iterate_sum[i, lane] += scale_sum * direction[i, lane]
        direction[i, lane] *= scale
    scales[lane], scale_sums[lane] = 1.0, 0.0


@compiled
def fold_all(direction, iterate_sum, scales, scale_sums):  # type: ignore[no-untyped-def]
    """a becomes 1, and S becomes 0."""
    for lane in range(direction.shape[1]):
        _fold(direction, iterate_sum, scales, scale_sums, lane)


@cache
def advance_for(loss: LossFormulas, layout: str) -> Callable[..., int]:
    """advance(…): steps over rows [first, stop), `batch` rows a step; returns the step count after them. Each change and
    each step is counted `copies` times."""
    value_of, slope_of = value_and_slope(loss)
    sparse = layout == "sparse"

    @compiled
    def advance(  # type: ignore[no-untyped-def]
        direction, iterate_sum, scales, scale_sums, stopped, tallies, parameters, starts, stops, indices, values, labels,
        row_weights, offsets, first, stop, batch, t, copies, intercept,
    ):  # fmt: skip
        lanes = direction.shape[1]
        sums, changes = np.empty(lanes), np.empty((batch, lanes))
        weighted, shifted = row_weights.size > 0, offsets.size > 0
        for batch_first in range(first, stop, batch):
            batch_stop = min(batch_first + batch, stop)
            share = copies / (batch_stop - batch_first)
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    sums[lane] = direction[0, lane] * intercept
                for j in range(starts[r], stops[r]):
                    i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                    value = np.float64(values[j])
                    for lane in range(lanes):
                        sums[lane] += direction[i, lane] * value
                weight = row_weights[r] if weighted else 1.0
                offset = offsets[r] if shifted else 0.0
                for lane in range(lanes):
                    score = scales[lane] * sums[lane] + (parameters[BASE, lane] + offset * parameters[UNIT, lane])
                    label = label_of(labels, r, lane, parameters)
                    slope = weight * slope_of(score, label, parameters[SHAPE, lane])
                    change = -share * parameters[STEP, lane] * slope
                    if stopped[lane] > 0.0 or is_beyond(score, change):
                        stopped[lane] += 1.0
                        changes[r - batch_first, lane] = 0.0
                        continue
                    changes[r - batch_first, lane] = change
                    tallies[LOSS_TALLY, lane] += weight * value_of(score, label, parameters[SHAPE, lane])
                    tallies[CORRECT_TALLY, lane] += weight if (score > 0.0) == (label > 0.0) else 0.0
                    tallies[WEIGHT_TALLY, lane] += weight
            for lane in range(lanes):
                scale_sums[lane] += scales[lane]
                for _ in range(copies):
                    scales[lane] *= parameters[DECAY, lane]
                if scales[lane] < _SMALLEST_SCALE:
                    _fold(direction, iterate_sum, scales, scale_sums, lane)
            for r in range(batch_first, batch_stop):
                for lane in range(lanes):
                    changes[r - batch_first, lane] /= scales[lane]
                    change = changes[r - batch_first, lane] * intercept
                    direction[0, lane] += change
                    iterate_sum[0, lane] -= change * scale_sums[lane]
                for j in range(starts[r], stops[r]):
                    i = (np.int64(indices[j]) if sparse else j - starts[r]) + 1
                    value = np.float64(values[j])
                    for lane in range(lanes):
                        change = changes[r - batch_first, lane] * value
                        direction[i, lane] += change
                        iterate_sum[i, lane] -= change * scale_sums[lane]
            t += copies
        return t

    made: Callable[..., int] = advance
    return made
