"""The Primal Gradient Solver: its state, its steps, and the weights that it returns; and online gradient descent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels import pgs_loop as loops
from streampgs.kernels.randomness import key_of, random_fractions
from streampgs.kernels.row_steps import Steps
from streampgs.learn.averaging import Stretches
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, Certified, Merges, StepChange, refuse_divergence
from streampgs.learn.lines import NOTHING, Scale
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import (
    AVERAGE,
    LAST,
    RANDOM,
    SUFFIX,
    DualAverager,
    PgsCandidates,
    PgsOptions,
    dual_factor,
)
from streampgs.learn.state import COORDINATE, LANE, Array, Each, Field, Fields, Merge, Pack, Role, Sizes, State, counter
from streampgs.losses import Vector
from streampgs.options.commands import ModelOptions

# Everything derived from λ is rebuilt at fixed step numbers, never when a checkpoint is written: a pause must not change
# anything.
_REBUILD_STEPS = 1 << 18
_LINE_BYTES = 64


class Pgs(DualAverager, Merges, Certified):
    """Lanes that differ in σ, t0, the ball, the target and the parameter of the loss."""

    Options: ClassVar[type] = PgsOptions
    candidates: ClassVar[Candidates] = PgsCandidates()
    remedy_of_divergence = (
        "give a ball (`--ball auto`), a larger --t0 or --sigma, or scale the features or the weights of rows down"
    )

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs, loops.PARAMETERS)
        s, layout = self.spec, PgsLayout(self.spec)
        self.returns, self._raised, self._averaging = s.own.returns, layout.raised, layout.averaging
        self.stretches, self.fields, self._certified = layout.stretches, layout.fields, s.own.certified
        self._starts = ("stretch_start", "earlier_start") if self._certified else ()
        for column, spec in enumerate(self.columns):
            radius = math.inf if spec.own.ball is None else spec.own.ball
            self.parameters[[loops.SIGMA, loops.T0, loops.RADIUS], column] = spec.sigma, spec.own.t0, radius
        self._rebuild = loops.rebuild_for(s.norm.p, self.width, layout.averaging)
        self._merge = PgsMerge(s.norm.p, self.width, layout.averaging)

    def steps(self) -> Steps:
        return loops.steps_for(self.spec.norm.p, self.spec.layout, self.width, self._averaging)

    def arrays(self, state: State) -> tuple[Array, Array, Array]:
        return state["coordinates"], NOTHING, state["scalars"]

    # Steps.

    def steps_left(self, state: State) -> int:
        steps = int(state["steps"])
        following = [self.stretches.steps_left(state), _REBUILD_STEPS - steps % _REBUILD_STEPS]
        return min(following + ([int(state["next_kept"]) - steps] if self.returns == RANDOM else []))

    def settle(self, state: State) -> None:
        """Q and |λ|^{q-1} again; S·v becomes a part of u."""
        self._rebuild(state["coordinates"], state["scalars"])

    def end_stretch(self, state: State) -> bool:
        steps, over = int(state["steps"]), self.stretches.is_over(state)
        rebuilt = over or steps // _REBUILD_STEPS > int(state["rebuilds"])
        if rebuilt:
            self.settle(state)
            state["rebuilds"][...] = steps // _REBUILD_STEPS
        if self.returns == RANDOM and steps >= int(state["next_kept"]):
            self._keep_iterate(state)
        if over:
            self.stretches.begin(state)  # the rebuild has just put all of the sum of iterates into u
            if self._certified and self.returns != AVERAGE:
                state["earlier_start"] = state["stretch_start"]
            if self._certified:
                state["stretch_start"] = state["dual"].copy()
        return rebuilt

    def restart_averages(self, state: State) -> None:
        super().restart_averages(state)
        for start in self._starts:
            state[start] = state["dual"].copy()

    def fade_averages(self, state: State, steps: int) -> None:
        """The certificate is about the weighted sum of gradients: a part of the change of λ so far, and all that follows."""
        if self._certified:
            start = state["earlier_start" if self.stretches.needs_earlier(state) else "stretch_start"]
            covered = self.stretches.steps_covered(state)
            kept = self.stretches.kept_of_faded(state, steps) / max(1, covered)
            state["earlier_start"] = state["dual"] - kept * (state["dual"] - start)
        super().fade_averages(state, steps)
        if self._certified:
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

    def change_steps(self, state: State, change: StepChange) -> None:
        """λ and its divisor are multiplied by the same number, so w stays."""
        steps = int(state["steps"])
        self.settle(state)
        scale = np.array([dual_factor(s, change, steps) for s in self.columns])
        for start in self._starts:
            state[start] = state[start] + (scale - 1.0) * state["dual"]  # by what λ has changed since then stays
        state["dual"] *= scale
        for tallies in (state["tallies"], state["earlier_tallies"]):
            tallies[0] *= change.sigma  # of the regularizer
        self.settle(state)

    # Several workers.

    def spread(self, state: State, copies: Sequence[State], each: Each) -> None:
        self._merge.spread(state, copies, each)

    def merge(self, state: State, copies: Sequence[State], each: Each) -> None:
        self._merge.merge(state, copies, each)
        if self._merge.needs_rebuild:
            self.settle(state)
        refuse_divergence(self, state)
        outdated = self.end_stretch(state) or self._merge.needs_rebuild
        self._merge.spread(state, copies, each, current=0 if outdated else 1)

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

    def _iterate(self, state: State, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        """w_T = ∇r*(λ / ((T+t0)σ)), on the ball if there is one."""
        sigma, t0, radius = self.parameters[[loops.SIGMA, loops.T0, loops.RADIUS], lane].tolist()
        raised = state[self._raised][slice(None) if at is None else at, lane]
        power_sum, scale = float(state["power_sum"][lane]), float(state["power_scale"][lane])
        return self.spec.norm.weights(raised, power_sum, scale, (int(state["steps"]) + t0) * sigma, radius)

    def certificate(self, state: State, lane: int) -> float:
        """An upper bound, in expectation, of F(average) - min F over the T steps that the average covers.

        (1/T) Σ [σ·r(w) + <g, w>] + σ·r*((λ_T - λ_start)/(Tσ)).
        """
        s, tallies = self.specs[lane], self.tallies(state, lane)
        if tallies.steps == 0 or not self._certified:
            return math.inf
        start = state["earlier_start" if self.stretches.needs_earlier(state) else "stretch_start"]
        change = s.norm.dual_distance(state["dual"][:, lane], start[:, lane]) / (tallies.steps * s.sigma)
        reached = s.norm.conjugate(change, float(self.parameters[loops.RADIUS, lane]))
        return (tallies.regularizer + tallies.linear) / tallies.steps + s.sigma * reached

    @classmethod
    def widths(cls, norm: PNorm) -> Sequence[int]:
        return loops.LANE_WIDTHS if norm.linear else (1,)  # powers cost more than what lanes share


class PgsLayout:
    """The state, laid out for the compiled loops. The numbers that a feature needs in a step are next to each other: λ;
    sgn(λ)|λ|^{q-1} where the norm is not linear (else it is λ itself); and the part of Σ w that is kept up to date (u)."""

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
            "rebuilds": counter(),
        }
        if spec.own.certified:
            self.fields |= {"stretch_start": vector, "earlier_start": vector._replace(role=Role.AVERAGE)}
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
        tallies = whole[loops.TALLIES :]
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


# Online gradient descent with steps 1/(σt); the result is the average of all iterates.
#
# It minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - (σ·w_t + g_t)/(σt) = -(g_1 + … + g_t)/(σt) (Algorithm 3 of C. Zhang's
# Lecture 22, OGD for Strongly Convex Functions and Kernel Methods; PEGASOS, if there is a ball). That is PGS with p = 2 and
# t0 = 0.


@dataclass(frozen=True)
class OgdOptions(PgsOptions):
    varies: ClassVar[tuple[str, ...]] = ("sigma", "ball")
    shared: ClassVar[tuple[str, ...]] = ()


class OgdCandidates(PgsCandidates):
    example: ClassVar[OgdOptions] = OgdOptions(t0=0.0, ball=None, returns=AVERAGE)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        return [
            replace(spec, own=OgdOptions(t0=0.0, ball=spec.own.ball, returns=AVERAGE))
            for spec in super().of(options, scale, base)
        ]


class Ogd(Pgs):
    Options: ClassVar[type] = OgdOptions
    candidates: ClassVar[Candidates] = OgdCandidates()
    remedy_of_divergence = "give a larger --sigma, or use `--solver pgs`, whose first steps are shorter"
