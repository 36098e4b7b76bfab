"""What PGS and its relatives have in common: their options, the values of those that the user leaves to be found, and how
lanes continue with other steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from streampgs.base.checks import require
from streampgs.base.errors import OptionError
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.learner import Candidates, ChangesSteps, Continuation, RowLearner, StepChange
from streampgs.learn.lines import Scale
from streampgs.learn.norms import EUCLID, PNorm
from streampgs.learn.state import State
from streampgs.losses import Loss
from streampgs.options.commands import ModelOptions
from streampgs.options.fields import values_of

SUFFIX, AVERAGE, LAST, RANDOM = "suffix", "average", "last", "random"
RETURNS = (SUFFIX, AVERAGE, LAST, RANDOM)

# σ in units of curvature·mean ‖x‖²/rows, where the regularizer starts to have an effect after one pass over the rows.
# Smaller values make no difference within a few passes; values above the last only suit data that are nearly all noise.
SIGMA_LADDER = tuple(10.0 ** (step / 2.0) for step in range(-3, 5))
# Many passes over few rows: smaller values have an effect, too.
WHOLE_LADDER = tuple(10.0 ** (step / 2.0) for step in range(-8, 6))
USUAL_SIGMA = SIGMA_LADDER[2]
_MOST_CERTIFIED = 8  # classes
P_LADDER = (2.0, 1.8, 1.5, 1.2)


@dataclass(frozen=True)
class PgsOptions:
    t0: float
    """Steps that count as taken before the first one; negative where σ was changed during training."""
    ball: float | None
    """Its radius B; None for no ball."""
    returns: str
    first_divisor: float | None = None
    """t0·σ of a lane that begins from zero, where that of this lane is another number."""
    certified: bool = True
    """Whether the certificate is computed, which takes two numbers for each feature."""
    varies: ClassVar[tuple[str, ...]] = ("p", "sigma", "t0", "ball")
    shared: ClassVar[tuple[str, ...]] = ("returns", "certified")

    def __post_init__(self) -> None:
        require(
            (self.ball is None or self.ball > 0.0) and self.returns in RETURNS,
            f"ball {self.ball}, return {self.returns!r:.50}",
        )


def automatic_t0(loss: Loss, sigma: float, mean_squared_norm: float) -> float:
    """t0 = 1/(σ·η0), with the first step η0 as long as the loss's curvature and the rows' q-norms allow."""
    return max(1.0, loss.curvature * mean_squared_norm / sigma)


class PgsCandidates(Candidates):
    """Grids of norm, σ and ball."""

    def of(self, options: ModelOptions, scale: Scale, base: LaneSpec) -> list[LaneSpec]:
        """σ in descending order where it is to be found."""
        found = []
        for norm in norms_of(options, scale.features):
            norms = scale.mean_squared_norm(norm)
            for sigma in sigmas_of(options, scale, norms):
                for ball in values_of(options.ball):
                    own = _own(options, scale, norm, sigma, ball, norms)
                    found.append(replace(base, norm=norm, sigma=sigma, intercept=scale.intercept(norm), own=own))
        return found

    def count(self, options: ModelOptions) -> int:
        """How many σ there are."""
        return len(values_of(options.sigma)) if options.sigma != "auto" else len(SIGMA_LADDER)

    def known_loops(self, options: ModelOptions, base: LaneSpec) -> list[LaneSpec]:
        norms = [EUCLID] if options.p == "auto" else norms_of(options, 0)
        own = self.example or PgsOptions(1.0, None, options.returns)
        return [replace(base, norm=norm, sigma=1.0, own=own) for norm in norms]

    def searches(self, options: ModelOptions) -> bool:
        return "auto" in (options.sigma, options.p)

    def narrowed(self, options: ModelOptions, leader: LaneSpec) -> ModelOptions:
        kept: float | Literal["none"] = "none" if leader.own.ball is None else leader.own.ball
        ball = kept if isinstance(options.ball, tuple) else options.ball
        return replace(options, loss=leader.loss, p=leader.norm.p, ball=ball)


class DualContinuation(Continuation):
    """λ is divided by (t + t0)σ: what the steps so far have made of it stays."""

    def whole(self, spec: LaneSpec) -> LaneSpec:
        return replace(spec, own=replace(spec.own, returns=AVERAGE)) if spec.own.returns == SUFFIX else spec

    def continued(self, spec: LaneSpec, before: LaneSpec, steps: int) -> LaneSpec:
        """(t + t0)σ, by which λ is divided, continues from its value and grows by the new σ a step."""
        t0 = (steps + before.own.t0) * before.sigma / spec.sigma - steps
        return replace(spec, own=replace(spec.own, t0=t0, first_divisor=_first_divisor(before)))

    def with_steps(self, spec: LaneSpec, change: StepChange, steps: int) -> LaneSpec:
        sigma = spec.sigma * change.sigma
        t0 = divisor(spec, change, steps) / sigma - steps
        return replace(spec, sigma=sigma, own=replace(spec.own, t0=t0, first_divisor=_first_divisor(spec)))

    def from_zero(self, spec: LaneSpec, length: float) -> LaneSpec:
        first = _first_divisor(spec)
        return replace(spec, own=replace(spec.own, t0=length * first / spec.sigma, first_divisor=first))


def _first_divisor(spec: LaneSpec) -> float:
    return spec.own.t0 * spec.sigma if spec.own.first_divisor is None else float(spec.own.first_divisor)


def divisor(spec: LaneSpec, change: StepChange, steps: int) -> float:
    """By which λ is divided after so many steps and the change: that of the first step, and what steps have added to it,
    which becomes smaller with sigma. So no step is longer than the first one."""
    first = _first_divisor(spec)
    added = (steps + float(spec.own.t0)) * spec.sigma - first * change.length_before
    return first * change.length + change.sigma * max(0.0, added)


def dual_factor(spec: LaneSpec, change: StepChange, steps: int) -> float:
    """By which λ is multiplied so that weights stay. Before the first step λ is 0, and its divisor may be, too."""
    before = (steps + float(spec.own.t0)) * spec.sigma
    return divisor(spec, change, steps) / before if before else 1.0


class DualAverager(RowLearner, ChangesSteps):
    """Lanes whose weights are a function of λ / ((t + t0)σ)."""

    continuation: ClassVar[Continuation] = DualContinuation()

    def check(self, state: State) -> None:
        require(bool(state["stretch_began"] <= state["steps"]), "a stretch that begins after the last step")
        require(all(int(state["steps"]) + s.own.t0 >= 0.0 for s in self.specs), "a model before its first step")
        require(all(s.sigma > 0.0 for s in self.specs), "a model of sigma 0")

    def change_steps(self, state: State, change: StepChange) -> None:
        """λ and its divisor are multiplied by the same number, so w stays."""
        self.settle(state)
        state["dual"] *= np.array([dual_factor(s, change, int(state["steps"])) for s in self.columns])


def norms_of(options: ModelOptions, features: int) -> list[PNorm]:
    if options.p != "auto":
        return [PNorm(float(p)) for p in values_of(options.p)]
    logarithm = 2.0 * math.log(max(features, 3))
    powers = {*P_LADDER, max(1.01, logarithm / (logarithm - 1.0))}
    return [PNorm(p) for p in sorted(powers, reverse=True)]


def sigmas_of(options: ModelOptions, scale: Scale, mean_squared_norm: float) -> list[float]:
    if options.sigma != "auto":
        return [float(sigma) for sigma in values_of(options.sigma)]
    ladder = WHOLE_LADDER if scale.whole else SIGMA_LADDER
    return [step * sigma_unit(scale, mean_squared_norm) for step in reversed(ladder)]


def sigma_unit(scale: Scale, mean_squared_norm: float) -> float:
    return scale.loss.curvature * max(mean_squared_norm, 1e-300) / max(1, scale.rows) / scale.unit


def usual_sigma(scale: Scale, mean_squared_norm: float) -> float:
    """Where σ is not searched for: small enough to have little effect."""
    return float(USUAL_SIGMA * sigma_unit(scale, mean_squared_norm))


def _own(
    options: ModelOptions, scale: Scale, norm: PNorm, sigma: float, ball: float | str | None, norms: float
) -> PgsOptions:
    automatic = options.t0 == "auto"
    t0 = automatic_t0(scale.loss, sigma * scale.unit, norms) if automatic else float(options.t0)
    ball = ball if ball is not None else "none" if scale.loss.lipschitz else "auto"
    if ball == "auto":
        radius = norm.radius_of_optimum(max(scale.mean_loss_at_zero(), 1e-300), sigma)
    else:
        radius = math.inf if ball == "none" else float(ball)
    if not (math.isfinite(t0) and radius > 0.0):
        raise OptionError(
            f"sigma {sigma:g} with rows of mean squared norm {norms:g} gives t0 {t0:g}, ball {radius:g}",
            "scale the features, or give another --sigma, --t0 or --ball",
        )
    certified = not has_too_many_classes(options)
    return PgsOptions(t0, None if math.isinf(radius) else radius, options.returns, certified=certified)


def has_too_many_classes(options: ModelOptions) -> bool:
    """For a certificate, which takes nearly as much memory as all else of a model."""
    return len(options.classes or ()) > _MOST_CERTIFIED
