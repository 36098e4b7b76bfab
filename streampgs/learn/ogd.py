"""Online gradient descent with steps 1/(σt); the result is the average of all iterates.

Minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - (σ·w_t + g_t)/(σt) = -(g_1 + … + g_t)/(σt) (Algorithm 3 of C. Zhang's
Lecture 22, OGD for Strongly Convex Functions and Kernel Methods; PEGASOS, if there is a ball).
That is PGS with p = 2 and t0 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from streampgs.kernels import pgs_loop as loops
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Lines, Scale
from streampgs.learn.pgs import Pgs
from streampgs.learn.pgs_options import AVERAGE, PgsCandidates, PgsOptions
from streampgs.learn.state import State
from streampgs.options.commands import ModelOptions


@dataclass(frozen=True)
class OgdOptions(PgsOptions):
    varies: ClassVar[tuple[str, ...]] = ("sigma", "ball")
    shared: ClassVar[tuple[str, ...]] = ()


class OgdCandidates(PgsCandidates):
    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        return [
            replace(spec, own=OgdOptions(t0=0.0, ball=spec.own.ball, returns=AVERAGE))
            for spec in super().of(options, scale, base)
        ]

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, sigma=1.0, own=OgdOptions(t0=0.0, ball=None, returns=AVERAGE))]


class Ogd(Pgs):
    Options: ClassVar[type] = OgdOptions
    candidates: ClassVar[Candidates] = OgdCandidates()
    remedy_of_divergence = "give a larger --sigma, or use `--solver pgs`, whose first steps are shorter"

    def __init__(self, specs: Sequence[LaneSpec]) -> None:
        super().__init__(specs)
        self._first_parameters = self.parameters.copy()
        self._first_parameters[loops.T0] = 1.0

    def run(self, state: State, lines: Lines, first: int, stop: int, copies: int) -> None:
        """Before the first step λ is 0, and so are the weights for any divisor. The loop would divide by t + t0 = 0."""
        if int(state["steps"]) == 0 and first < stop:
            begun = min(first + self.spec.batch, stop)
            self._run_with(self._first_parameters, state, lines, first, begun, copies)
            first = begun
        if first < stop:
            self._run_with(self.parameters, state, lines, first, stop, copies)
