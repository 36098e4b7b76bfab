"""The shares with which the averages of several lineages of lanes are mixed into the one model that is returned.

A lineage remembers long or forgets soon, and only the data can tell which is right. So new rows are scored before any
lineage is trained on them, and the shares are those that fit the rows of this update, and with smaller weights those of
earlier updates, best. A prior prefers the first lineage, which was never worse than the model before when the rows kept
their distribution. The mixture is shrunk by one factor, which changes slowly: models that follow new rows tend to be too
certain of the next ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import numpy as np

from streampgs.base.checks import Count, decode, encode, require
from streampgs.base.stage import Bundle
from streampgs.kernels.judge_loop import add_losses_for, loss_sum_for
from streampgs.losses import LOSSES
from streampgs.selection.judge import WORST
from streampgs.selection.judged_rows import JudgedRows, LossShape, evidence, rows_to_judge, within_range
from streampgs.selection.shares import Array, best_shares, with_prior

__all__ = ["Drift", "Judgement", "LossShape", "Mixture", "Result", "Scored", "rows_to_judge"]

PRIOR_WEIGHT = 10.0
"""The weight of the prior; that of a judged row is 1."""
# Measured on tables that grew by 1 % to 900 %: with .1 an update by 30 judged rows of the same distribution raised the loss
# by .5 % to 1 % in 6 cases of 32, with .05 in none. With more rows both are equally good.
_PRIOR_OF_OTHERS, _FEW_ROWS = 0.05, 300
_USUAL_LOSS, _LEAST_DIFFICULTY = 0.58, 0.02
"""A model has the usual difficulty if its loss is this share of that of no model, or more."""
FACTORS = [(50 - step) / 50.0 for step in range(26)]
"""By which the mixture may be shrunk."""
_LEAST_KEPT, _SHRINKAGE_ROWS = 0.9, 10_000
# Drift is a difference beyond noise that is also large enough to matter.
_ERRORS, _SHARE = 4.0, 0.05
_FEWEST_MEASURED = 30
"""Rows: the standard error of fewer is not known."""


@dataclass(frozen=True)
class Scored:
    """New rows, scored by each lineage and by the model before, none of which was trained on them."""

    scores: Array
    """(rows, lineages, targets), in the unit of scaled labels, without base and offset."""
    before: Array
    """(rows, targets): of the model before, likewise."""
    fixed: Array
    """(rows, targets): base and offset in that unit; added after mixing and shrinking."""
    labels: Array
    """(rows, targets): as each lane uses them (+1/-1, or numbers in scaled units)."""
    weights: Array
    """(rows,)"""


@dataclass(frozen=True)
class Result:
    """Means over rows and targets; the accuracy is None for labels that are numbers."""

    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class Drift:
    """The newest rows are predicted clearly worse than those judged before them, each by the model that was returned at
    that time."""

    loss: float
    before: float


@dataclass(frozen=True)
class Judgement:
    """How the new rows of an update were predicted, and the mixture after it."""

    rows: Count
    """That were judged; 0 if all have weight 0, and then there is no result."""
    before: Result | None
    """Of the model before."""
    lineages: list[Result]
    mixture: Result | None
    """Of the new mixture, whose shares were fitted to these rows among others."""
    shares: list[float]
    shrink: float
    drift: Drift | None
    last: float | None
    """The loss on the rows judged before these: in the update before, or in the first epoch."""
    after_rows: Count
    """How many rows the run had trained on."""


@dataclass(frozen=True)
class _Mean:
    """A mean loss and the square of its standard error."""

    loss: float
    variance: Annotated[float, msgspec.Meta(ge=0.0)]


@dataclass(frozen=True)
class _Choice:
    """All of a mixture's state but the judged rows."""

    shares: list[float]
    shrink: float = 1.0
    mixes: bool = False
    """Whether a mixture has been returned."""
    shrunk_losses: list[float] = field(default_factory=lambda: [0.0] * len(FACTORS))
    """The loss of the mixtures that were returned, if multiplied by each of FACTORS: discounted sums over judged rows."""
    last: _Mean | None = None
    """Of the model before, on the rows judged last. Before the first update: on the last rows of the first epoch."""


def prior_of(lineages: int, new_rows: int) -> Array:
    """The shares that are likely before any row was judged. Lineages other than the first learn from the new rows alone: of
    few rows they learn little."""
    other = _PRIOR_OF_OTHERS * new_rows / (new_rows + _FEW_ROWS)
    return np.array([1.0 - other * (lineages - 1), *([other] * (lineages - 1))])


class Mixture:
    """Numbers in, numbers out: of lanes and windows it knows nothing."""

    name = "mixture"

    def __init__(self, lineages: int) -> None:
        self.lineages = lineages
        self._rows = JudgedRows(lineages)
        self._now = _Choice([])
        self.reset()

    def reset(self) -> None:
        """As before the first update; drift is still measured from the rows judged last."""
        self._rows.clear()
        self._now = _Choice([1.0] + [0.0] * (self.lineages - 1), last=self._now.last)

    @property
    def shares(self) -> list[float]:
        """Of each lineage in the mixture; the first lineage alone before anything was judged."""
        return self._now.shares

    @property
    def shrink(self) -> float:
        """By which the mixture is multiplied."""
        return self._now.shrink

    def grow(self, targets: int) -> None:
        """Targets have joined, and there are so many now. Earlier rows have label -1 and score 0 there."""
        if self._rows.batches:
            if self._rows.targets == targets:
                return
            self._rows.grow(targets)
        self._now = replace(self._now, last=None)  # a mean over other targets

    # Judging.

    def measure(self, scored: Scored, losses: Sequence[LossShape]) -> None:
        """The loss of the model on rows that it was not trained on: the next update is compared with it."""
        rows = _Rows(scored, losses, one_of_classes=False)
        if rows.count >= _FEWEST_MEASURED:
            self._now = replace(self._now, last=rows.mean(rows.before))

    def judge(
        self,
        scored: Scored,
        losses: Sequence[LossShape],
        new_rows: int,
        one_of_classes: bool = False,
        after_rows: int = 0,
    ) -> Judgement:
        """Judge on some of the `new_rows` rows of an update, and choose shares and shrinking for the next mixture. There is
        a loss for each target; `one_of_classes`: each row is +1 for one target at most, and the largest score decides.
        `after_rows`: how many the run has trained on."""
        rows = _Rows(scored, losses, one_of_classes)
        self._rows.age(new_rows)
        if not rows.count:
            return Judgement(0, None, [], None, self.shares, self.shrink, None, None, after_rows)
        mean = rows.mean(rows.before)
        results = [rows.result(np.ascontiguousarray(rows.scores[:, :, k])) for k in range(self.lineages)]
        last = self._now.last
        drift = _drift(mean, last)
        # After a sudden change the model before is wrong, not too certain.
        if self._now.mixes and drift is None and all(_can_shrink(loss) for loss in losses):
            self._choose_shrinking(rows)
        self._rows.add(rows.scores, rows.fixed, rows.labels, rows.weights)
        self._now = replace(self._now, shares=self._fitted(losses, new_rows, rows.difficulty()), mixes=True, last=mean)
        mixture = rows.result(self.shrink * (rows.scores * np.array(self.shares)).sum(axis=2))
        before = rows.result(rows.before)
        last_loss = None if last is None else last.loss
        return Judgement(rows.count, before, results, mixture, self.shares, self.shrink, drift, last_loss, after_rows)

    def _fitted(self, losses: Sequence[LossShape], new_rows: int, difficulty: float) -> list[float]:
        prior = prior_of(self.lineages, new_rows)
        weight = PRIOR_WEIGHT * difficulty / float(self._rows.counted_weights().sum())
        objective = with_prior(self._rows.mean_loss(losses), prior, weight)
        shares: list[float] = best_shares(objective, prior.tolist()).tolist()
        return shares

    def _choose_shrinking(self, rows: _Rows) -> None:
        now = self._now
        kept = max(_LEAST_KEPT, 1.0 - float(rows.weights.sum()) / _SHRINKAGE_ROWS)
        found = [rows.loss_sum(factor / now.shrink * rows.before) for factor in FACTORS]
        sums = [min(WORST, kept * older + new) for older, new in zip(now.shrunk_losses, found, strict=True)]
        penalties = [PRIOR_WEIGHT * (1.0 - factor) ** 2 for factor in FACTORS]
        best = min(range(len(FACTORS)), key=lambda k: sums[k] + penalties[k])  # the first of ties, nearest to 1
        self._now = replace(now, shrink=FACTORS[best], shrunk_losses=sums)

    # The section of the checkpoint.

    def state(self) -> Bundle:
        rows = self._rows.state()
        return Bundle({**rows.values, "choice": encode(self._now)}, rows.arrays)

    def restore(self, bundle: Bundle) -> None:
        now = decode(_Choice, bundle.values["choice"])
        right = len(now.shares) == self.lineages and min(now.shares) >= 0.0 and abs(sum(now.shares) - 1.0) < 1e-9
        require(right, f"shares {now.shares} of {self.lineages} lineages")
        require(now.shrink in FACTORS, f"a mixture that is shrunk by {now.shrink}")
        require(len(now.shrunk_losses) == len(FACTORS), f"losses of {len(now.shrunk_losses)} factors")
        self._rows.restore(bundle)
        self._now = now


class _Rows:
    """The scored rows with a positive weight; targets are the first axis, as in loops."""

    def __init__(self, scored: Scored, losses: Sequence[LossShape], one_of_classes: bool) -> None:
        require(scored.labels.shape[1:] == (len(losses),), f"{len(losses)} losses of {scored.labels.shape[1:]} targets")
        counted = scored.weights > 0.0
        self.count = int(counted.sum())
        self.losses, self._one_of_classes = losses, one_of_classes
        self.weights = evidence(scored.weights[counted])
        self.labels = np.ascontiguousarray(scored.labels[counted].T)
        self.fixed = within_range(np.ascontiguousarray(scored.fixed[counted].T), self.labels)
        self.before = within_range(np.ascontiguousarray(scored.before[counted].T), self.labels)
        scores = np.ascontiguousarray(scored.scores[counted].transpose(2, 0, 1))
        self.scores = within_range(scores, self.labels[:, :, np.newaxis])

    def mean(self, scores: Array) -> _Mean:
        """Of the losses of (targets, rows) scores, in the units of reports."""
        values = np.zeros(self.count)
        for target, loss in enumerate(self.losses):
            add_losses_for(LOSSES[loss.name])(
                scores[target] + self.fixed[target],
                self.labels[target],
                loss.shape,
                loss.unit / len(self.losses),
                values,
            )
        shares = self.weights / float(self.weights.sum())
        mean = float((shares * values).sum())
        variance = float(((shares * (values - mean)) ** 2).sum())
        return _Mean(_finite_or_worst(mean), _finite_or_worst(variance))

    def difficulty(self) -> float:
        """How far the best lineage is from predicting these rows exactly; 1 if it is not near. Where losses are small, so are
        their differences, and a prior of the usual weight would hide them."""
        nothing = np.zeros_like(self.labels)
        sums = [self._sum(np.ascontiguousarray(self.scores[:, :, k]), self.fixed) for k in range(self.scores.shape[2])]
        classifies = all(LOSSES[loss.name].classifies for loss in self.losses)
        unknown = self._sum(nothing, nothing if classifies else self.fixed)
        return min(1.0, max(_LEAST_DIFFICULTY, min(sums) / max(_USUAL_LOSS * unknown, 1e-300)))

    def result(self, scores: Array) -> Result:
        return Result(self.mean(scores).loss, self._accuracy(scores + self.fixed))

    def loss_sum(self, scores: Array) -> float:
        """Over rows and targets."""
        return self._sum(scores, self.fixed)

    def _sum(self, scores: Array, fixed: Array) -> float:
        total = 0.0
        for target, (name, shape, _) in enumerate(self.losses):
            mixed = scores[target] + fixed[target]
            total += loss_sum_for(LOSSES[name])(mixed, self.labels[target], self.weights, shape)
        return _finite_or_worst(total)

    def _accuracy(self, scores: Array) -> float | None:
        if not all(LOSSES[loss.name].classifies for loss in self.losses):
            return None
        if self._one_of_classes and len(scores) > 1:
            correct = self.labels[scores.argmax(axis=0), np.arange(self.count)] > 0.0
        else:
            correct = ((scores > 0.0) == (self.labels > 0.0)).mean(axis=0)
        return float((self.weights * correct).sum()) / float(self.weights.sum())


def _can_shrink(loss: LossShape) -> bool:
    """Of classifiers that estimate no probabilities only the signs of the scores are used, and these do not change."""
    return LOSSES[loss.name].probability is not None or not LOSSES[loss.name].classifies


def _drift(new: _Mean, old: _Mean | None) -> Drift | None:
    if old is None:
        return None
    error = math.sqrt(new.variance + old.variance)
    worse = new.loss - old.loss
    return Drift(new.loss, old.loss) if worse > _ERRORS * error and worse > _SHARE * abs(old.loss) else None


def _finite_or_worst(value: float) -> float:
    return value if math.isfinite(value) else WORST
