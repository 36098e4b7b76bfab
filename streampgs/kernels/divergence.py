"""When a lane with steps of a fixed size has diverged, and stops: its steps are too large for its rows.

Lanes that race include some whose steps are too large. They stop before their numbers leave the finite range, and the
others continue.
"""

from __future__ import annotations

from streampgs.kernels.jit import inlinable

_LARGEST_SCORE = 1e50
_LARGEST_CHANGE = 1e100


@inlinable
def is_beyond(score, change):  # type: ignore[no-untyped-def]
    """Whether a score is too large, or the step that follows; also if one of them is not a number."""
    return not (abs(score) < _LARGEST_SCORE and abs(change) < _LARGEST_CHANGE)
