"""Which solvers are there, and which options belong to which? One dataclass and one line below per solver.

Nothing here imports Numba: the classes compile loops and are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from streampgs.losses import LOSSES
from streampgs.option_fields import COMMON, MODEL, Choice, Listed, Number, Option, option, options_of

SMALLEST_P = 1.001
SIGMA = Listed(of=Number("S", 0.0, above=True, words=("auto",)), alone=("auto",))
_P = Number("P", SMALLEST_P, 2.0, words=("auto",),
    remedy="2 is the Euclidean norm; values near 1, like 1.1, give sparse models; 'auto' tries some")  # fmt: skip
_BALL = Number("B", 0.0, above=True, words=("auto", "none"), remedy="give a radius, 'auto' or 'none'")
_STEEP = ", ".join(name for name, loss in LOSSES.items() if not loss.lipschitz)


@dataclass(frozen=True)
class PgsChoices:
    """Options of the Primal Gradient Solver."""

    # fmt: off
    p: float | Literal["auto"] | tuple[float, ...] = option(2.0, Listed(of=_P, alone=("auto",)), MODEL,
        "Norm of the regularizer, in (1, 2]. Smaller is sparser. auto: the best of 2, 1.8, 1.5, 1.2 and one near 1.")
    sigma: float | Literal["auto"] | tuple[float, ...] = option("auto", SIGMA, COMMON,
        "Weight of the regularizer. auto: found during the first half epoch.")
    ball: float | Literal["auto", "none"] | tuple[float, ...] | None = option(None, Listed(of=_BALL, alone=("auto",)),
        MODEL, "Keep the p-norm of the weights below B. The default is nearly always right.",
        shown=f"auto for losses that need it ({_STEEP}), else none")
    t0: float | Literal["auto"] = option("auto", Number("T0", 0.0, above=True, words=("auto",)), MODEL,
        "Offset of the step count: larger means smaller first steps. The paper uses 1. auto: from the norms of the rows.")
    returns: str = option("suffix", Choice(names=("suffix", "average", "last", "random")), MODEL,
        "Weights to return: the average of the later steps (suffix), of all steps (average), the last ones (last), or "
        "those of a random step as in the paper (random).", flag="--return")
    # fmt: on


@dataclass(frozen=True)
class TruncatedGradientChoices:
    """Options of the truncated gradient."""

    # fmt: off
    l1: float | tuple[float, ...] | None = option(None,
        Listed(of=Number("X", 0.0, remedy="1e-5 is a start; larger values set more weights to zero")), MODEL,
        "For --solver truncated-gradient: weight of the sum of all |w|. With several values the best one is returned.")
    step: float | Literal["auto"] | tuple[float, ...] = option("auto",
        Listed(of=Number("ETA", 0.0, above=True, words=("auto",)), alone=("auto",)), MODEL,
        "For --solver truncated-gradient: size of the steps. auto: from the norms of the rows.")
    # fmt: on


class Solver(NamedTuple):
    path: str
    """module:class of the learner"""
    choices: type
    """The options that it takes and other solvers may not; ModelOptions inherits them."""

    @property
    def options(self) -> Mapping[str, Option]:
        return options_of(self.choices)


SOLVERS = {
    "pgs": Solver("streampgs.learn.pgs:Pgs", PgsChoices),
    "truncated-gradient": Solver("streampgs.learn.truncated:TruncatedGradient", TruncatedGradientChoices),
}
