"""What pairs of columns would add to a model: a test on its residuals."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import compiled


@compiled
def pair_gains(codes, sizes, pairs, slopes, curvatures, pull, out):  # type: ignore[no-untyped-def]
    """out[p] = how much the loss of a row falls if each combination of values of the two columns of pair p gets a step of its
    own: the mean over the rows, and its standard error.

    `codes` has a line for each column, with codes below sizes[column]. `slopes` and `curvatures` are minus the first and the
    second derivative of the loss by the score, a line for each target. The steps of each half of the rows are Newton's for the
    other half, with `pull` rows of the mean curvature that want no step.
    """
    rows, targets = codes.shape[1], slopes.shape[0]
    middle = rows // 2
    most = 0
    for p in range(pairs.shape[0]):
        most = max(most, sizes[pairs[p, 0]] * sizes[pairs[p, 1]])
    firsts, seconds = np.empty(most), np.empty(most)
    for p in range(pairs.shape[0]):
        a, b = pairs[p, 0], pairs[p, 1]
        total, squares = 0.0, 0.0
        for target in range(targets):
            held = pull * np.mean(curvatures[target])
            for half in range(2):
                firsts[: sizes[a] * sizes[b]] = 0.0
                seconds[: sizes[a] * sizes[b]] = held
                for r in range(middle * half, middle + (rows - middle) * half):
                    place = codes[a, r] * sizes[b] + codes[b, r]
                    firsts[place] += slopes[target, r]
                    seconds[place] += curvatures[target, r]
                for r in range(middle * (1 - half), middle + (rows - middle) * (1 - half)):
                    place = codes[a, r] * sizes[b] + codes[b, r]
                    step = firsts[place] / seconds[place] if seconds[place] > 0.0 else 0.0
                    gain = step * slopes[target, r] - 0.5 * curvatures[target, r] * step * step
                    total += gain
                    squares += gain * gain
        count = max(1, rows * targets)
        out[p, 0] = total / count
        out[p, 1] = np.sqrt(max(0.0, squares / count - out[p, 0] * out[p, 0]) / count)
