"""How long the rounds of several workers are: functions of step counts, never of where a call ends.

All workers start a round from the same state, each takes rows of its own, and they merge. Each worker counts its
gradients, and its steps, as often as there are workers, and what they learned is averaged: the result is the sum of all
gradients at the step count that all rows together make. (If the workers' changes were summed, every worker would
correct the same frequent features, and the sum would overshoot.) A round is a small part of the rows seen so far, so
that its rows are worth nearly as much as in sequence; before there are enough, one worker steps alone.
"""

from __future__ import annotations

# A round is at most one part in so many of the steps before it.
_SEEN_BEFORE = 20
_SMALLEST_SHARE, _USUAL_SHARE = 1024, 16384
# A merge looks at every feature, so the more features, the longer a round must be to be worth it.
_FEATURES_PER_ROW_AT_LEAST, _FEATURES_PER_ROW = 64, 16


def first_round(workers: int, features: int) -> int:
    """The step count from which on rounds pay."""
    return _SEEN_BEFORE * workers * max(_SMALLEST_SHARE, features // _FEATURES_PER_ROW_AT_LEAST)


def share_of(steps: int, workers: int, features: int) -> int:
    """How many steps of the next round each worker takes."""
    return min(max(_USUAL_SHARE, features // _FEATURES_PER_ROW), steps // (_SEEN_BEFORE * workers))
