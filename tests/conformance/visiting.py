"""A learner that only counts how often each row of the table is visited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Learner
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.losses import Vector
from tests.faults.simulator.learner import NoOptions, OneCandidate

MOST_ROWS = 10_000


class Visits(Learner):
    Options: ClassVar[type] = NoOptions
    candidates: ClassVar[Candidates] = OneCandidate()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.fields = {
            "visits": Field((MOST_ROWS, LANE), Merge.SUM, dtype=np.int64, low=0),
            "weights": Field((COORDINATE, LANE), Merge.MEAN, Role.DUAL),
            "steps": counter(Merge.MEAN),
            **self.stretches.fields,
        }

    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        np.add.at(state["visits"], lines.numbers[first:stop], 1)
        state["steps"] += copies * (stop - first)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["weights"][slice(None) if at is None else at, lane])

    def learned(self, state: State, lane: int) -> Vector:
        return np.asarray(state["visits"][:, lane], np.float64)
