"""Rows of entries next to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streampgs.encoding.codebook import NO_OFFSETS
from streampgs.encoding.kinds.kind import Entries
from streampgs.kernels.encoder_loop import merged_bags, side_by_side


def joined(parts: Sequence[Entries]) -> Entries:
    """Row by row the entries of all parts; the values of equal features are added up."""
    if not parts:
        return NO_OFFSETS, np.empty(0, np.uint32), np.empty(0, np.float32)
    found = parts[0]
    for part in parts[1:]:
        found = side_by_side(*found, *part)
    return merged_bags(*found) if len(parts) > 1 else found
