"""The rows that a learner of whole passes holds out to compare candidates: the same ones in each epoch."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.randomness import key_of, random_words
from streampgs.kernels.rows import Rows

_HELD_OUT = 10  # one row in so many
BYTES_OF_ROW = 48
"""Memory for each row of a window, for the moment in which they are found."""


def held_rows(seed: int, lines: Rows) -> NDArray[np.bool_]:
    """Which rows are held out: a function of the seed and the row's number in the table."""
    words = random_words(key_of(seed, "held out"), lines.numbers.astype(np.uint64))
    return np.asarray(words % np.uint64(_HELD_OUT) == 0)


class HeldRows:
    """The same, found once for each window."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._known: tuple[weakref.ref[NDArray[np.int64]], NDArray[np.bool_]] | None = None

    def of(self, lines: Rows) -> NDArray[np.bool_]:
        known = self._known  # workers may set it at the same time, to the same rows
        if known is None or known[0]() is not lines.starts:
            known = self._known = weakref.ref(lines.starts), held_rows(self._seed, lines)
        return known[1]
