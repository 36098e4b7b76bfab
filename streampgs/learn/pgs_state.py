"""The state of PGS, laid out for its compiled loops, and how workers merge it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streampgs.kernels import pgs_loop as loops
from streampgs.learn.averaging import TALLIES, Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.pgs_options import AVERAGE, RANDOM, SUFFIX
from streampgs.learn.state import COORDINATE, LANE, Each, Field, Fields, Merge, Pack, Role, Sizes, State, counter

_LINE_BYTES = 64


class PgsLayout:
    """What a feature needs in a step is next to each other: λ; sgn(λ)|λ|^{q-1} where the norm is not linear (else it is λ
    itself); and the part of Σ w that is kept up to date (u)."""

    def __init__(self, spec: LaneSpec) -> None:
        self.linear, returns = spec.norm.linear, spec.own.returns
        self.averaging = returns in (SUFFIX, AVERAGE)
        self.raised = "dual" if self.linear else "raised"
        self._slots = list(dict.fromkeys(["dual", self.raised, *(["iterate_sum"] if self.averaging else [])]))
        self._dense = spec.layout == "dense"
        scalars = Pack("scalars", self._scalars)
        sums = {"iterate_sum": self._packed(Merge.SUM, Role.AVERAGE)} if self.averaging else {}
        self.stretches = Stretches(sums, returns == AVERAGE, scalars)
        scalar, vector = Field((LANE,), Merge.DERIVED, pack=scalars), Field((COORDINATE, LANE), Merge.SAME)
        self.fields: Fields = {
            "dual": self._packed(Merge.MEAN, Role.DUAL),
            **({} if self.linear else {"raised": self._packed(Merge.DERIVED)}),
            "steps": counter(Merge.MEAN),
            "power_sum": scalar,
            "power_scale": scalar._replace(fill=1.0 if self.linear else 0.0),
            "multiplier_sum": scalar._replace(merge=Merge.SUM),
            **self.stretches.fields,
            "stretch_start": vector,
            "earlier_start": vector._replace(role=Role.AVERAGE),
            "rebuilds": counter(),
        }
        if returns == RANDOM:
            self.fields |= {"kept": vector, "kept_count": counter(), "next_kept": counter(low=1)}

    def _packed(self, merge: Merge, role: Role | None = None) -> Field:
        return Field((COORDINATE, LANE), merge, role, pack=Pack("coordinates", self._coordinates))

    def _coordinates(self, sizes: Sizes) -> State:
        """Zeros that begin with a cache line. One lane of dense rows has each slot contiguous, so that the loops over all
        features go over neighbours."""
        width, columns = sizes[LANE], len(self._slots) * sizes[LANE]
        by_column = self._dense and width == 1 and self.linear
        if by_column:
            columns = max(2, columns)  # with one column the compiler could not tell the order
        count = sizes[COORDINATE] * columns
        # Not numpy's zeros: memory that is allocated without them has large pages, and a row's features are in many.
        memory = np.empty(count + _LINE_BYTES // 8)
        memory.fill(0.0)
        first = -memory.ctypes.data % _LINE_BYTES // 8
        whole = memory[first : first + count].reshape((sizes[COORDINATE], columns), order="F" if by_column else "C")
        views = {name: whole[:, slot * width : (slot + 1) * width] for slot, name in enumerate(self._slots)}
        return {"coordinates": whole, **views}

    def _scalars(self, sizes: Sizes) -> State:
        whole = np.zeros((loops.SCALARS, sizes[LANE]))
        names = {"power_sum": loops.POWER_SUM, "power_scale": loops.SCALE, "multiplier_sum": loops.MULTIPLIER_SUM}
        tallies = whole[loops.REGULARIZER_TALLY : loops.REGULARIZER_TALLY + TALLIES]
        return {"scalars": whole, "tallies": tallies, **{name: whole[row] for name, row in names.items()}}


class PgsMerge:
    """The merge that the fields declare, compiled: each worker merges a part of the features."""

    def __init__(self, p: float, width: int, averaging: bool) -> None:
        self._loops, self._width = loops.meeting_for(p, width, averaging), width
        self.needs_rebuild = self._loops.derived

    def spread(self, state: State, copies: Sequence[State], each: Each, current: int = 0) -> None:
        """Let the copies continue from the state; the last `current` of them have its coordinates already."""
        size, parts, behind = len(state["dual"]), len(copies) + 1, copies[: len(copies) - current]

        def work(part: int) -> None:
            for copy in behind:
                first, stop = size * part // parts, size * (part + 1) // parts
                self._loops.spread(state["coordinates"], copy["coordinates"], first, stop)

        if behind:
            each(work, parts)
        for copy in copies:
            copy["scalars"][:] = state["scalars"]
            copy["multiplier_sum"][:] = copy["tallies"][:] = 0.0
            copy["steps"][...] = state["steps"]

    def merge(self, state: State, copies: Sequence[State], each: Each) -> None:
        """Derived fields are left to a rebuild, if there are any. The last copy gets the coordinates of the state."""
        size, workers = len(state["dual"]), len(copies) + 1
        power_sums = np.zeros((workers, self._width))
        own, none = state["multiplier_sum"].copy(), np.zeros(self._width)

        def work(worker: int) -> None:
            part = size * worker // workers, size * (worker + 1) // workers
            for number, copy in enumerate(copies):
                arguments = state["coordinates"], copy["coordinates"], none if number else own, copy["multiplier_sum"]
                if number < len(copies) - 1:
                    self._loops.fold(*arguments, *part)
                else:
                    self._loops.settle(*arguments, workers, *part, power_sums[worker])

        each(work, workers)
        state["multiplier_sum"][:] = 0.0
        state["tallies"] += sum(copy["tallies"] for copy in copies)
        if not self.needs_rebuild:
            state["power_sum"][:] = power_sums.sum(axis=0)
