"""What a model in training is: everything that was chosen, or found once from the data, as plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from streampgs.base.checks import Count, require
from streampgs.learn.norms import PNorm
from streampgs.losses import LOSSES
from streampgs.options.commands import MOST_BATCH


@dataclass(frozen=True)
class Target:
    """What one lane of each candidate learns."""

    name: str
    column: Count = 0
    """The column of the labels."""
    positive: float | None = None
    """The label that is +1 to it, all others being -1; None: labels are used as they are."""
    joined: Count = 0
    """When it joined: 0 at the start of the run, then counted up. Targets that joined together take the same steps."""


@dataclass(frozen=True)
class LaneSpec:
    learner: str
    loss: str
    shape: float
    """The parameter of the loss, for scaled labels; 0 for losses without one."""
    norm: PNorm
    sigma: float
    target: Target
    seed: int
    batch: int
    intercept: float
    """The constant feature of the intercept's coordinate; 0 for none."""
    layout: str
    own: Any
    """The learner's own options: see Learner.Options."""
    base: float = 0.0
    """The prediction for a row without features: the learner adds base/scale to each score."""
    scale: float = 1.0
    """The unit of the labels: the learner divides labels by it, and a prediction is scale × score."""

    def __post_init__(self) -> None:
        require(1 <= self.batch <= MOST_BATCH, f"batch {self.batch}")
        require(0.0 <= self.sigma < math.inf and 0.0 < self.scale < math.inf, f"sigma {self.sigma}, scale {self.scale}")
        require(self.layout in ("sparse", "dense"), f"rows of layout {self.layout!r:.50}")
        require(self.loss in LOSSES, f"loss {self.loss!r:.50}")

    @property
    def label_shape(self) -> float:
        """The parameter of the loss, for the labels of the table."""
        return LOSSES[self.loss].scaled_shape(self.shape, 1.0 / self.scale)

    def in_label_units(self, loss: float) -> float:
        """A loss of scaled labels, in the unit of the table's labels."""
        return loss * self.scale ** LOSSES[self.loss].degree

    @property
    def scaled_l1(self) -> float:
        """The learner's own l1, which is for the labels of the table, for scaled labels."""
        return float(self.own.l1) * self.scale ** (1 - LOSSES[self.loss].degree)

    @property
    def group(self) -> tuple[object, ...]:
        """What the lanes of one group have in common."""
        shared = tuple(getattr(self.own, name) for name in self.own.shared)
        common = (self.learner, self.loss, self.norm, self.batch, self.intercept, self.seed, self.layout)
        return (*common, self.target.joined, *shared)

    @property
    def choices(self) -> dict[str, float | None]:
        """The numbers that tell candidates apart, by name; None for a bound that is not there."""
        owners = {name: next(o for o in (self.own, self.norm, self) if hasattr(o, name)) for name in self.own.varies}
        numbers = {name: getattr(owner, name) for name, owner in owners.items()}
        return {name: None if number is None else float(number) for name, number in numbers.items()}
