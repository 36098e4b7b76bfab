"""How each lane uses labels and offsets: rows of the array of parameters, which has a column for each lane."""

from __future__ import annotations

import numpy as np

from streampgs.kernels.jit import inlinable

SHAPE = 0
"""The parameter of the loss."""
LABEL = 1
"""The column of the labels."""
CLASS = 2
"""The label that is +1 to this lane, all others being -1; NaN: labels are used as they are."""
UNIT = 3
"""By which labels and offsets are multiplied."""
BASE = 4
"""Added to each score."""
TARGET_ROWS = 5
"""Further rows are the loop's own."""


@inlinable
def label_of(labels, r, lane, parameters):  # type: ignore[no-untyped-def]
    label = labels[r, np.int64(parameters[LABEL, lane])]
    wanted = parameters[CLASS, lane]
    if wanted != wanted:
        return label * parameters[UNIT, lane]
    return 1.0 if label == wanted else -1.0
