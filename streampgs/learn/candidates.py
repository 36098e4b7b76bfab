"""Candidates that are made for a learner before its first step: candidates, and how they continue with another sigma."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.norms import PNorm
from streampgs.losses import Loss
from streampgs.options import ModelOptions


class Scale(Protocol):
    """How large rows, losses and labels are, from a sample of rows."""

    loss: Loss
    rows: int
    """In an epoch."""
    features: int
    targets: int
    label_unit: float
    """By which steps grow: the spread of the labels for losses whose slopes do not grow with it, else 1."""

    def mean_squared_norm(self, norm: PNorm) -> float: ...
    def mean_loss_at_zero(self) -> float: ...


class Candidates:
    """The defaults are those of a learner without a race."""

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        """Every combination of its options, for one loss. `base` has everything but norm, sigma and own options."""
        raise NotImplementedError

    def count(self, options: ModelOptions, targets: int) -> int:
        """How many candidates of one loss and one norm there are at most."""
        return 1

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        """Specs with the loops of the first step, as far as they are known without any rows."""
        return []

    def searches(self, options: ModelOptions) -> bool:
        """Whether candidates race until one is left."""
        return False

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        """The options for candidates that continue from this one with another sigma."""
        return replace(options, loss=leader.loss)

    def continued(self, spec: LaneSpec, before: LaneSpec, steps: int) -> LaneSpec:
        """The spec of a lane that continues from the state of another one."""
        return spec
