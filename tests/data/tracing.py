"""A learner of columns that only keeps a trace of what it was given: numbers that depend on each entry, and on the order of
the lines of a column and of all lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Learner
from streampgs.learn.lines import Lines
from streampgs.learn.state import COORDINATE, LANE, Field, Merge, Role, State, counter
from streampgs.losses import Vector
from streampgs.options.solvers import Needs, Solver
from tests.faults.simulator.learner import NoOptions, OneCandidate

MOST_ROWS = 20_000
TRACE = Solver("tests.data.tracing:Trace", (), Needs(lines="columns"))


class Trace(Learner):
    needs: ClassVar[Needs] = TRACE.needs
    Options: ClassVar[type] = NoOptions
    candidates: ClassVar[Candidates] = OneCandidate()

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self.fields = {
            "trace": Field((COORDINATE, LANE), Merge.REFUSED, Role.DUAL),
            "visits": Field((COORDINATE, LANE), Merge.REFUSED),
            "sums": Field((COORDINATE, LANE), Merge.REFUSED),
            "labels": Field((MOST_ROWS,), Merge.REFUSED),
            "rows": counter(Merge.REFUSED),
            "steps": counter(Merge.REFUSED),
            **self.stretches.fields,
        }

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        if lines.access == "rows":
            rows = int(state["rows"])
            state["labels"][rows : rows + stop - first] = lines.labels[first:stop]
            state["rows"] += stop - first
        else:
            for line in range(first, stop):
                self._visit(state, lines, line)
        state["steps"] += stop - first

    def _visit(self, state: State, lines: Lines, line: int) -> None:
        chosen, rows = slice(lines.starts[line], lines.stops[line]), int(state["rows"])
        values = lines.values[chosen].astype(np.float64)
        places = lines.indices[chosen].astype(np.int64) if lines.indices.size else np.arange(rows)
        assert (np.diff(places) > 0).all()
        coordinate = int(lines.columns[line]) + 1
        state["sums"][coordinate] = values @ state["labels"][places]
        state["visits"][coordinate] += 1
        sequence = float(state["trace"][0, 0]) * 0.5 + coordinate
        state["trace"][0] = sequence
        state["trace"][coordinate] = 0.25 * state["trace"][coordinate] + values @ np.cos(places) + 1e-3 * sequence

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return np.array(state["trace"][slice(None) if at is None else at, lane])
