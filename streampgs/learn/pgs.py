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
from streampgs.learn.candidates import Candidates
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Learner, Lines, Vector, labels_of
from streampgs.learn.norms import PNorm
from streampgs.learn.pgs_options import AVERAGE, LAST, RANDOM, PgsCandidates, PgsOptions
from streampgs.learn.pgs_state import PgsLayout, PgsMerge
from streampgs.learn.state import Each, State
from streampgs.losses import LOSSES

# Everything derived from λ is rebuilt at fixed step numbers, never when a checkpoint is written: a pause must not change
# anything.
_REBUILD_STEPS = 1 << 18


class Pgs(Learner):
    """Lanes that differ in σ, t0, the ball, the target and the parameter of the loss."""

    Options: ClassVar[type] = PgsOptions
    candidates: ClassVar[Candidates] = PgsCandidates()
    remedy_of_divergence = "give a ball (--ball auto), a larger --t0 or --sigma, or scale the features down"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        s, layout = self.spec, PgsLayout(self.spec)
        self.returns, self._raised = s.own.returns, layout.raised
        self.stretches, self.fields = layout.stretches, layout.fields
        self.parameters = self._parameters()
        self._advance = loops.advance_for(LOSSES[s.loss], s.norm.p, s.layout, self.width, layout.averaging)
        self._rebuild = loops.rebuild_for(s.norm.p, self.width, layout.averaging)
        self._merge = PgsMerge(s.norm.p, self.width, layout.averaging)

    def _parameters(self) -> Vector:
        rows = self.target_parameters(loops.PARAMETERS)
        for column, s in enumerate(self.columns):
            radius = math.inf if s.own.ball is None else s.own.ball
            rows[[loops.SIGMA, loops.T0, loops.RADIUS], column] = s.sigma, s.own.t0, radius
        return rows

    def check(self, state: State) -> None:
        require(bool(state["stretch_began"] <= state["steps"]), "a stretch that begins after the last step")
        require(all(int(state["steps"]) + s.own.t0 >= 0.0 for s in self.specs), "a model before its first step")
        require(all(s.sigma > 0.0 for s in self.specs), "a model of sigma 0")

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
        self._merge.spread(state, copies, each)

    def merge(self, state: State, copies: Sequence[State], each: Each) -> None:
        self._merge.merge(state, copies, each)
        if self._merge.needs_rebuild:
            self.rebuild(state)
        self.refuse_divergence(state)
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
        start = state["earlier_start" if self.stretches.needs_earlier(state) else "stretch_start"]
        if tallies.steps == 0:
            return math.inf
        change = s.norm.dual_distance(state["dual"][:, lane], start[:, lane]) / (tallies.steps * s.sigma)
        reached = s.norm.conjugate(change, float(self.parameters[loops.RADIUS, lane]))
        return (tallies.regularizer + tallies.linear) / tallies.steps + s.sigma * reached

    @classmethod
    def most_lanes(cls, norm: PNorm) -> int:
        return loops.LANE_WIDTHS[-1] if norm.linear else 1  # powers cost more than what lanes share

    @classmethod
    def width_for(cls, norm: PNorm, lanes: int) -> int:
        return next((width for width in loops.LANE_WIDTHS if width >= lanes), lanes)
