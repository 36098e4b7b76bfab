"""Online gradient descent with steps 1/(σt); the result is the average of all iterates.

Minimises σ/2·‖w‖² + (1/m) Σ loss by w_{t+1} = w_t - (σ·w_t + g_t)/(σt) = -(g_1 + … + g_t)/(σt) (Algorithm 3 of C. Zhang's
Lecture 22, OGD for Strongly Convex Functions and Kernel Methods; PEGASOS, if there is a ball).
That is PGS with p = 2 and t0 = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.learn.pgs import Pgs
from streampgs.learn.pgs_options import AVERAGE, PgsCandidates, PgsOptions
from streampgs.options.commands import ModelOptions


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
