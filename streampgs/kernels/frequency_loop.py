"""How often features occur, and values multiplied by a number for each feature."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import compiled


@compiled
def count_rows_with(starts, stops, indices, counts):  # type: ignore[no-untyped-def]
    """counts[f] += the number of entries of feature f; features beyond the counts are left out."""
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            if indices[j] < counts.size:
                counts[indices[j]] += 1


@compiled
def squared_sums(starts, stops, indices, values, scales):  # type: ignore[no-untyped-def]
    """The sum of the squared values, and the sum of the squared values times the scales of their features."""
    before, after = 0.0, 0.0
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            scaled = values[j] * scales[indices[j]]
            before += values[j] * values[j]
            after += scaled * scaled
    return before, after


@compiled
def scale_entries(starts, stops, indices, values, scales, unseen, out):  # type: ignore[no-untyped-def]
    """out[j] = values[j] times the scale of its feature; `unseen`: of features beyond the scales."""
    for r in range(starts.size):
        for j in range(starts[r], stops[r]):
            scale = scales[indices[j]] if indices[j] < scales.size else unseen
            out[j] = np.float32(values[j] * scale)
