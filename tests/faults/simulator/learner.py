"""A learner whose state counts the visits of each row in each epoch, and remembers their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Learner
from streampgs.learn.lines import Scale
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions
from streampgs.options.solvers import LEARNERS, SOLVERS, Solver

MOST_ROWS, MOST_EPOCHS = 400, 12
_PRIME = (1 << 31) - 1


@dataclass(frozen=True)
class NoOptions:
    varies: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()


class OneCandidate(Candidates):
    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, own=NoOptions())]


class Visits(Learner):
    Options: ClassVar[type] = NoOptions
    candidates: ClassVar[Candidates] = OneCandidate()
    epoch: ClassVar[int] = 0
    """Of the window that is trained on."""

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.fields = {
            "visits": Field((MOST_ROWS * MOST_EPOCHS, LANE), Merge.REFUSED, Role.DUAL, dtype=np.uint8, low=0),
            "trail": Field((LANE,), Merge.REFUSED, dtype=np.int64, low=0),
            "weights": Field((COORDINATE, LANE), Merge.MEAN),
            "steps": counter(Merge.MEAN),
            **self.stretches.fields,
        }

    def run(self, state: State, lines: Rows, first: int, stop: int, copies: int) -> None:
        numbers, epoch = lines.numbers[first:stop], type(self).epoch
        assert epoch < MOST_EPOCHS
        visits, trail, weights, width = state["visits"], int(state["trail"][0]), state["weights"], len(state["weights"])
        for number in numbers.tolist():
            visits[number * MOST_EPOCHS + epoch] += 1
            trail = (trail * 31 + number * MOST_EPOCHS + epoch + 1) % _PRIME
            weights[number % width] += trail
        state["trail"][:] = trail
        state["steps"] += copies * (stop - first)

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["weights"][slice(None) if at is None else at, lane])


def register() -> None:
    SOLVERS["visits"] = Solver(f"{__name__}:Visits", ())
    LEARNERS["visits"] = SOLVERS["visits"].path
