"""Solvers with steps of a fixed size, which is given, or taken from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels.row_steps import STEP
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, RowLearner, Stops
from streampgs.learn.lines import Scale
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.state import LANE, Field, Merge
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

_USUAL_STEP = 0.1  # of the longest step that converges on rows of mean length
STOPPED = Field((LANE,), Merge.SUM, low=0.0)
"""In how many rows a lane did not learn because it had diverged."""


def steps_of(options: ModelOptions, scale: Scale, norm: PNorm, averaged: bool) -> list[float]:
    """The sizes that are given, or one from the norms of the rows. The longest is 1/(curvature·(q-1)·mean ‖x‖_q²): the link
    of the q-norm is q - 1 times as steep as the identity."""
    if options.step != "auto":
        return [float(step) for step in values_of(options.step)]
    strength = scale.loss.curvature * (norm.q - 1.0) * scale.mean_squared_norm(norm, averaged)
    return [_USUAL_STEP * scale.unit / max(strength, 1e-300)]


@dataclass(frozen=True)
class L1StepOptions:
    l1: float
    step: float
    varies: ClassVar[tuple[str, ...]] = ("l1", "step")
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require(self.l1 >= 0.0 and self.step > 0.0, f"l1 {self.l1}, step {self.step}")


class L1StepCandidates(Candidates):
    """Grids of l1 and step."""

    others: ClassVar[tuple[str, ...]] = ("l1",)
    judged_by_loss: ClassVar[bool] = True

    def norm(self, scale: Scale) -> PNorm:
        return EUCLID

    def own(self, options: ModelOptions, scale: Scale | None, l1: float, step: float) -> L1StepOptions:
        return L1StepOptions(l1, step)

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        if options.l1 is None:
            raise OptionError(
                f"`--solver {options.solver}` without --l1", "give `--l1 1e-5`, or several values to compare"
            )
        norm = self.norm(scale)
        base = replace(base, norm=norm, intercept=scale.intercept(norm, averaged=False))
        pairs = [(float(l1), step) for l1 in values_of(options.l1) for step in steps_of(options, scale, norm, False)]
        return [replace(base, own=self.own(options, scale, l1, step)) for l1, step in pairs]

    def count(self, options: ModelOptions, targets: int) -> int:
        return len(values_of(options.l1)) * len(values_of(options.step))

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        return [replace(base, own=self.own(options, None, 0.0, 1.0))]


class StepLearner(RowLearner, Stops):
    """A lane that diverges stops, so that the others can continue. It needs a field `stopped`."""

    remedy_of_divergence = "in a new run give a smaller --step, or scale the features or the weights of rows down"

    def __init__(self, specs: Sequence[LaneSpec], parameters: int) -> None:
        super().__init__(specs, parameters)
        self.parameters[STEP] = [s.own.step for s in specs]
