"""The Primal Gradient Solver: its state, its steps, and the weights that it returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import require
from streampgs.kernels import pgs_loop as loops
from streampgs.kernels.randomness import key_of, random_fractions
from streampgs.learn import pgs_options
from streampgs.learn.averaging import TALLIES, Stretches
from streampgs.learn.certificate import expected_gap
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Each, Learner, Lines, Scale, Vector, labels_of
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import AVERAGE, LAST, RANDOM, SUFFIX, PgsOptions
from streampgs.learn.state import COORDINATE, LANE, Field, Fields, Merge, Pack, Role, Sizes, State, counter
from streampgs.losses import LOSSES
from streampgs.options import ModelOptions

# Everything derived from λ is rebuilt at fixed step numbers, never when a checkpoint is written: a pause must not change
# anything.
_REBUILD_STEPS = 1 << 18
_LINE_BYTES = 64


class Pgs(Learner):
    """Lanes that differ in σ, t0, the ball, the target and the parameter of the loss."""

    Options: ClassVar[type] = PgsOptions
    remedy_of_divergence = "give a ball (--ball auto), a larger --t0 or --sigma, or scale the features down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        s, self.returns = self.spec, self.spec.own.returns
        self.averaging = self.returns in (SUFFIX, AVERAGE)
        # λ; where the norm is not linear sgn(λ)|λ|^{q-1}, too; and the part of Σ w that is kept up to date (u).
        self.slots = ["dual", *([] if s.norm.linear else ["raised"]), *(["iterate_sum"] if self.averaging else [])]
        self._scalars = Pack("scalars", self._scalar_views)
        sums = {"iterate_sum": self._packed(Merge.SUM, Role.AVERAGE)} if self.averaging else {}
        self.stretches = Stretches(sums, self.returns == AVERAGE, self._scalars)
        self.fields = self._declared()
        self.parameters = self._parameters()
        self._advance = loops.advance_for(LOSSES[s.loss], s.norm.p, s.layout, self.width, self.averaging)
        self._rebuild = loops.rebuild_for(s.norm.p, self.width, self.averaging)

    # The state.

    def _packed(self, merge: Merge, role: Role | None = None) -> Field:
        return Field((COORDINATE, LANE), merge, role, pack=Pack("coordinates", self._coordinate_views))

    def _declared(self) -> Fields:
        scalar, vector = Field((LANE,), Merge.DERIVED, pack=self._scalars), Field((COORDINATE, LANE), Merge.SAME)
        linear = self.spec.norm.linear
        return {
            "dual": self._packed(Merge.MEAN, Role.DUAL),
            **({} if linear else {"raised": self._packed(Merge.DERIVED)}),
            "steps": counter(Merge.MEAN),
            "power_sum": scalar,
            "power_scale": scalar._replace(fill=1.0 if linear else 0.0),
            "multiplier_sum": scalar._replace(merge=Merge.SUM),
            **self.stretches.fields,
            "stretch_start": vector,
            "earlier_start": vector._replace(role=Role.AVERAGE),
            "rebuilds": counter(),
            **(
                {"kept": vector, "kept_count": counter(), "next_kept": counter(low=1)} if self.returns == RANDOM else {}
            ),
        }

    def _coordinate_views(self, sizes: Sizes) -> State:
        """Zeros that begin with a cache line. One lane of dense rows has each slot contiguous, so that the loops over all
        features go over neighbours; else the numbers of a feature are neighbours."""
        width, columns = sizes[LANE], len(self.slots) * sizes[LANE]
        by_column = self.spec.layout == "dense" and width == 1 and self.spec.norm.linear
        if by_column:
            columns = max(2, columns)  # with one column the compiler could not tell the order
        count = sizes[COORDINATE] * columns
        # Not numpy's zeros: memory that is allocated without them comes in large pages, and a row's features are in many.
        memory = np.empty(count + _LINE_BYTES // 8)
        memory.fill(0.0)
        first = -memory.ctypes.data % _LINE_BYTES // 8
        whole = memory[first : first + count].reshape((sizes[COORDINATE], columns), order="F" if by_column else "C")
        views = {name: whole[:, slot * width : (slot + 1) * width] for slot, name in enumerate(self.slots)}
        return {"coordinates": whole, **views}

    def _scalar_views(self, sizes: Sizes) -> State:
        whole = np.zeros((loops.SCALARS, sizes[LANE]))
        names = {"power_sum": loops.POWER_SUM, "power_scale": loops.SCALE, "multiplier_sum": loops.MULTIPLIER_SUM}
        tallies = whole[loops.REGULARIZER_TALLY : loops.REGULARIZER_TALLY + TALLIES]
        return {"scalars": whole, "tallies": tallies, **{name: whole[row] for name, row in names.items()}}

    def _parameters(self) -> Vector:
        rows = self.target_parameters(loops.PARAMETERS)
        for column, s in enumerate(self.columns):
            radius = math.inf if s.own.ball is None else s.own.ball
            rows[[loops.SIGMA, loops.T0, loops.RADIUS], column] = s.sigma, s.own.t0, radius
        return rows

    def check(self, state: State) -> None:
        require(bool(state["stretch_began"] <= state["steps"]), "a stretch that begins after the last step")
        require(all(int(state["steps"]) + s.own.t0 >= 0.0 for s in self.specs), "a model before its first step")

    # Steps.

    def step(self, state: State, lines: Lines, first: int, stop: int, copies: int = 1) -> None:
        if copies > 1:
            self._run(state, lines, first, stop, copies)
            return
        batch = self.spec.batch
        while first < stop:
            until = min(stop, first + (self._next_event(state) - int(state["steps"])) * batch)
            self._run(state, lines, first, until, 1)
            first = until
            self.refuse_divergence(state)
            self.end_stretch(state)

    def _run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        s = self.spec
        state["steps"][...] = self._advance(
            state["coordinates"], state["scalars"], self.parameters, lines.starts, lines.stops, lines.indices,
            lines.values, labels_of(lines), lines.weights, lines.offsets, first, stop, s.batch, int(state["steps"]), copies,
            s.intercept,
        )  # fmt: skip

    def _next_event(self, state: State) -> int:
        """The step count at which the loop must be left: a function of the count alone."""
        steps = int(state["steps"])
        following = [steps + self.stretches.steps_left(state), (steps // _REBUILD_STEPS + 1) * _REBUILD_STEPS]
        return min(following + ([int(state["next_kept"])] if self.returns == RANDOM else []))

    def rebuild(self, state: State) -> None:
        """Q and |λ|^{q-1} again; S·v becomes a part of u."""
        self._rebuild(state["coordinates"], state["scalars"])

    settle = rebuild

    def end_stretch(self, state: State) -> bool:
        steps, over = int(state["steps"]), self.stretches.is_over(state)
        rebuilt = over or steps // _REBUILD_STEPS > int(state["rebuilds"])
        if rebuilt:
            self.rebuild(state)
            state["rebuilds"][...] = steps // _REBUILD_STEPS
        if self.returns == RANDOM and steps >= int(state["next_kept"]):
            self._keep_iterate(state)
        if over:
            self.stretches.begin(state)  # the rebuild has just put all of the sum of iterates into u
            if self.returns != AVERAGE:
                state["earlier_start"] = state["stretch_start"]
            state["stretch_start"] = state["dual"].copy()
        return rebuilt

    def restart_averages(self, state: State) -> None:
        super().restart_averages(state)
        state["stretch_start"] = state["dual"].copy()

    def _keep_iterate(self, state: State) -> None:
        """The paper's random iterate: step t's replaces the kept one with probability 1/t, so that each is as likely.

        The step of the next replacement is drawn instead of a coin at every step.
        """
        state["kept"] = np.stack([self._iterate(state, lane) for lane in range(self.width)], axis=1)
        key, following = key_of(self.spec.seed, "kept"), int(state["next_kept"])
        while following <= int(state["steps"]):
            fraction = float(random_fractions(key, np.array([state["kept_count"]], np.uint64))[0])
            state["kept_count"] += 1
            following = min(int(following / fraction) + 1, 1 << 62)
        state["next_kept"][...] = following

    # Several workers.

    def spread(self, state: State, copies: Sequence[State], each: Each) -> None:
        self._spread_coordinates(state, copies, each)
        self._spread_rest(state, copies)

    def _spread_coordinates(self, state: State, copies: Sequence[State], each: Each) -> None:
        loop, size, parts = self._meeting().spread, len(state["dual"]), len(copies) + 1

        def work(part: int) -> None:
            for copy in copies:
                loop(state["coordinates"], copy["coordinates"], size * part // parts, size * (part + 1) // parts)

        if copies:
            each(work, parts)

    def _spread_rest(self, state: State, copies: Sequence[State]) -> None:
        for copy in copies:
            copy["scalars"][:] = state["scalars"]
            copy["multiplier_sum"][:] = copy["tallies"][:] = 0.0
            copy["steps"][...] = state["steps"]

    def _meeting(self) -> loops.MeetingLoops:
        return loops.meeting_for(self.spec.norm.p, self.width, self.averaging)

    def merge(self, state: State, copies: Sequence[State], each: Each) -> None:
        """As the fields say, compiled: each worker merges a part of the features."""
        meeting, size, workers = self._meeting(), len(state["dual"]), len(copies) + 1
        power_sums = np.zeros((workers, self.width))
        own, none = state["multiplier_sum"].copy(), np.zeros(self.width)

        def meet(worker: int) -> None:
            part = size * worker // workers, size * (worker + 1) // workers
            for number, copy in enumerate(copies):
                arguments = state["coordinates"], copy["coordinates"], none if number else own, copy["multiplier_sum"]
                if number < len(copies) - 1:
                    meeting.fold(*arguments, *part)
                else:
                    meeting.settle(*arguments, workers, *part, power_sums[worker])

        each(meet, workers)
        state["multiplier_sum"][:] = 0.0
        state["tallies"] += sum(copy["tallies"] for copy in copies)
        if meeting.derived:
            self.rebuild(state)
        else:
            state["power_sum"][:] = power_sums.sum(axis=0)
        self.refuse_divergence(state)
        if self.end_stretch(state) or meeting.derived:
            self._spread_coordinates(state, copies, each)
        else:  # the last copy was brought up to date in passing
            self._spread_coordinates(state, copies[:-1], each)
        self._spread_rest(state, copies)

    # Results.

    def weights(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        chosen = (slice(None) if at is None else at, lane)
        covered = self.stretches.steps_covered(state)
        if state["steps"] == 0:
            return np.zeros(len(state["dual"][chosen]))
        if self.returns == RANDOM:
            return np.array(state["kept"][chosen])
        if self.returns == LAST or covered == 0:
            return self._iterate(state, lane, at)
        present = state["multiplier_sum"][lane] * state[self._raised][chosen] + state["iterate_sum"][chosen]
        return np.asarray(self.stretches.with_earlier(state, "iterate_sum", chosen, present) / covered)

    @property
    def _raised(self) -> str:
        return "dual" if self.spec.norm.linear else "raised"

    def _iterate(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """w_T = ∇r*(λ / ((T+t0)σ)), on the ball if there is one."""
        sigma, t0, radius = self.parameters[[loops.SIGMA, loops.T0, loops.RADIUS], lane].tolist()
        raised = state[self._raised][slice(None) if at is None else at, lane]
        power_sum, scale = float(state["power_sum"][lane]), float(state["power_scale"][lane])
        return self.spec.norm.weights(raised, power_sum, scale, (int(state["steps"]) + t0) * sigma, radius)

    def certificate(self, state: State, lane: int) -> float:
        """In expectation, of the average over the steps that it covers."""
        s, tallies = self.specs[lane], self.tallies(state, lane)
        start = state["earlier_start" if self.stretches.needs_earlier(state) else "stretch_start"]
        if tallies.steps == 0:
            return math.inf
        change = s.norm.dual_distance(state["dual"][:, lane], start[:, lane])
        return expected_gap(s.norm, s.sigma, float(self.parameters[loops.RADIUS, lane]), tallies, change)

    def learned(self, state: State, lane: int) -> Vector:
        """λ."""
        return state["dual"][:, lane]

    # Candidates.

    @classmethod
    def most_lanes(cls, norm: PNorm) -> int:
        return loops.LANE_WIDTHS[-1] if norm.linear else 1  # powers cost more than what lanes share

    @classmethod
    def width_for(cls, norm: PNorm, lanes: int) -> int:
        return next((width for width in loops.LANE_WIDTHS if width >= lanes), lanes)

    @classmethod
    def candidates(cls, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        return pgs_options.candidates(options, scale, base)

    @classmethod
    def candidate_count(cls, options: ModelOptions, targets: int) -> int:
        return pgs_options.sigma_count(options, targets)

    @classmethod
    def specs_to_warm_up(cls, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return pgs_options.specs_to_warm_up(options, base)

    @classmethod
    def searches(cls, options: ModelOptions) -> bool:
        return "auto" in (options.sigma, options.p)

    narrowed = staticmethod(pgs_options.narrowed)
    continued = staticmethod(pgs_options.continued)
