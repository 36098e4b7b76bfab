"""The options of coordinate descent, and its candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.kernels.smooth_losses import SMOOTH_LOSSES
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates
from streampgs.learn.lines import Scale
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of


@dataclass(frozen=True)
class CoordinateOptions:
    l1: float
    beta: str = "column"
    holds_out: bool = False
    """Whether some rows are held out to compare candidates."""
    varies: ClassVar[tuple[str, ...]] = ("l1", "sigma")
    shared: ClassVar[tuple[str, ...]] = ("beta",)

    def __post_init__(self) -> None:
        require(self.l1 >= 0.0 and self.beta in ("column", "global"), f"l1 {self.l1}, beta {self.beta!r:.50}")


class CoordinateCandidates(Candidates):
    """Grids of l1 and sigma; all candidates train to the end."""

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        if options.l1 is None:
            raise OptionError(
                f"`--solver {options.solver}` without --l1",
                "give `--l1 1e-3`, or several values to compare; without an l1 penalty use `--solver l-bfgs`",
            )
        refuse_kinks(options.solver, base.loss)
        if 0.0 in values_of(options.l1) and not all(
            sigma != "auto" and sigma > 0.0 for sigma in values_of(options.sigma)
        ):
            raise OptionError(
                f"`--solver {options.solver}` with `--l1 0` and without --sigma, where no distance from the optimum is known",
                "give a --sigma above 0, or a small --l1 like 1e-9; or use `--solver l-bfgs`",
            )
        base = replace(base, intercept=1.0 if options.intercept != 0.0 else 0.0)
        holds_out = self.count(options, 1) * len(options.losses) > 1 and not options.validation
        sigmas = [0.0 if sigma == "auto" else float(sigma) for sigma in values_of(options.sigma)]
        return [
            replace(base, sigma=sigma, own=CoordinateOptions(float(l1), options.beta, holds_out))
            for l1 in values_of(options.l1)
            for sigma in sigmas
        ]

    def count(self, options: ModelOptions, targets: int) -> int:
        return len(values_of(options.l1)) * len(values_of(options.sigma))

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        refuse_kinks(options.solver, base.loss)
        return [replace(base, own=CoordinateOptions(0.0))]


def refuse_kinks(solver: str, loss: str) -> None:
    if loss not in SMOOTH_LOSSES:
        *some, last = SMOOTH_LOSSES
        raise OptionError(
            f"`--solver {solver}` with `--loss {loss}`, whose slope jumps or grows without bound",
            f"use `--loss {', '.join(some)}` or {last}",
        )
