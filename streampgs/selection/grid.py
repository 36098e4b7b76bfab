"""Which models a run trains: every combination of what the user listed, with what is to be found out found out from the
rows of the first window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampgs.errors import OptionError
from streampgs.kernels.placing_loop import squared_norms
from streampgs.kernels.powers import dual_exponent
from streampgs.learn.pgs import PgsSettings, automatic_radius, automatic_t0
from streampgs.losses import LOSSES
from streampgs.options import MOST_CANDIDATES, ModelOptions, values_of
from streampgs.reading.window import Window

_SAMPLE_ROWS = 1 << 14  # of the first window

# σ in units of curvature·mean ‖x‖²/rows, where the regularizer begins to be felt after one pass over the rows. Smaller
# ones make no difference within a few passes; larger ones than the last only suit data that are nearly all noise.
SIGMA_LADDER = tuple(10.0 ** (step / 2.0) for step in range(-2, 6))
_USUAL_SIGMA = SIGMA_LADDER[1]
_WIDEST_RACE = 1 << 21  # features; with more, the lanes of a race would take gigabytes

P_LADDER = (2.0, 1.8, 1.5, 1.2)


@dataclass(frozen=True)
class Target:
    """What one model of each candidate learns."""

    name: str
    column: int = 0
    positive: float | None = None
    joined: int = 0
    """In which lot it came, after those that were there at the start."""


def targets_of(options: ModelOptions) -> list[Target]:
    if options.classes is not None and options.multiclass:
        return [Target(_in_full(label), 0, float(number)) for number, label in enumerate(options.classes)]
    return [Target(name, column) for column, name in enumerate(options.labels)]


def _in_full(label: float | str) -> str:
    """All digits: names of classes become names of columns, and two must not be one."""
    if isinstance(label, str):
        return label
    return str(int(label)) if label == int(label) else repr(label)


def candidates_of(
    options: ModelOptions, window: Window, layout: str, rows: int, features: int, targets: int
) -> list[PgsSettings]:
    """One of each combination; σ in descending order where it is to be found out."""
    found = []
    for loss in options.losses:
        for p in _powers(options, features):
            scale = _RowScale(options, window, loss, p)
            for sigma in _sigmas(options, scale, rows, features, targets):
                found += [scale.settings(sigma, ball, layout) for ball in values_of(options.ball)]
    return found


def lanes_of(candidates: Sequence[PgsSettings], targets: Sequence[Target]) -> list[PgsSettings]:
    """Candidate by candidate, a lane for each target."""
    return [_lane(candidate, target) for candidate in candidates for target in targets]


def _lane(candidate: PgsSettings, target: Target) -> PgsSettings:
    own = replace(candidate, column=target.column, positive=target.positive, joined=target.joined)
    # Rounds of workers are as long as the steps before allow: those of a later lot would end at other rows.
    return own if not target.joined else replace(own, workers=1)


def _powers(options: ModelOptions, features: int) -> tuple[float, ...]:
    if options.p != "auto":
        return tuple(float(p) for p in values_of(options.p))
    logarithm = 2.0 * math.log(max(features, 3))
    return tuple(sorted({*P_LADDER, max(1.01, logarithm / (logarithm - 1.0))}, reverse=True))


def sigma_count(options: ModelOptions, targets: int) -> int:
    """How many σ there are, unless there turn out to be too many features for a race."""
    return len(values_of(options.sigma)) if options.sigma != "auto" else len(_ladder(options, targets))


def _ladder(options: ModelOptions, targets: int) -> tuple[float, ...]:
    """As much of the ladder as fits into the field beside targets, losses, powers and balls."""
    powers = len(P_LADDER) + 1 if options.p == "auto" else len(values_of(options.p))
    fitting = MOST_CANDIDATES // (targets * len(options.losses) * powers * len(values_of(options.ball)))
    if fitting < 2:
        return (_USUAL_SIGMA,)
    return SIGMA_LADDER if fitting >= len(SIGMA_LADDER) else SIGMA_LADDER[1::2][:fitting]


def _sigmas(options: ModelOptions, scale: _RowScale, rows: int, features: int, targets: int) -> list[float]:
    if options.sigma != "auto":
        return [float(sigma) for sigma in values_of(options.sigma)]
    ladder = _ladder(options, targets) if features <= _WIDEST_RACE else (_USUAL_SIGMA,)
    unit = scale.curvature / max(1, rows) / scale.label_unit
    return [step * unit for step in reversed(ladder)]


class _RowScale:
    """How large rows and losses are, from a sample of rows in visiting order, which is a random one."""

    def __init__(self, options: ModelOptions, window: Window, loss: str, p: float) -> None:
        self.options, self.loss, self.p = options, loss, p
        sample = slice(0, min(window.rows, _SAMPLE_ROWS))
        norms = np.empty(sample.stop)
        squared_norms(window.starts[sample], window.stops[sample], window.values, dual_exponent(p) + 1.0, norms)
        self.mean_squared_norm = float(np.mean(norms)) + options.intercept**2
        self.curvature = LOSSES[loss].curvature * max(self.mean_squared_norm, 1e-300)
        self._labels = window.labels[sample]
        self.label_unit = LOSSES[loss].unit(self._labels)
        self.shape = LOSSES[loss].shape(self._labels, options.loss_parameter(loss))
        self._weights: Any = window.weights[sample] if window.weights.size else 1.0

    def settings(self, sigma: float, ball: float | str | None, layout: str) -> PgsSettings:
        options = self.options
        t0 = float(options.t0) if options.t0 != "auto" else self._automatic_t0(sigma)
        if ball is None:
            ball = "none" if LOSSES[self.loss].lipschitz else "auto"
        if ball == "auto":
            radius = automatic_radius(max(self._loss_at_zero(), 1e-300), self.p, sigma)
        else:
            radius = math.inf if ball == "none" else float(ball)
        if not (math.isfinite(t0) and radius > 0.0 and not math.isnan(radius)):
            raise OptionError(
                f"sigma {sigma:g} with rows of mean squared norm {self.mean_squared_norm:g} gives t0 {t0:g}, ball {radius:g}",
                "scale the features, or give another --sigma, --t0 or --ball",
            )
        return PgsSettings(
            self.loss, self.shape, self.p, sigma, t0, radius, options.batch, options.intercept, options.returns,
            options.seed, layout, workers=options.threads,
        )  # fmt: skip

    def _automatic_t0(self, sigma: float) -> float:
        return automatic_t0(self.loss, sigma * self.label_unit, self.mean_squared_norm)

    def _loss_at_zero(self) -> float:
        """The largest of the labels' means."""
        labels = self._labels if self._labels.ndim == 2 else self._labels[:, np.newaxis]
        if self.options.multiclass:
            labels = np.ones_like(labels)  # to each class a row is +1 or -1, and the losses of classes are symmetric
        values = LOSSES[self.loss].values(0.0, labels, self.shape)
        weights = self._weights[:, np.newaxis] if np.ndim(self._weights) else self._weights
        return float(np.mean(values * weights, axis=0).max())
