"""How candidates are compared: by the weights that would be returned, on rows not trained on yet.

Two measures that cost nothing would mislead. The losses that the steps met on their way are of the last iterate, whose
best σ is several times larger than that of the average which is returned. And a mean hinge loss may fall while accuracy
falls with it, as σ shrinks all scores. So classifiers without probabilities are compared by the logistic loss of their
scores at the best scale: it ranks candidates as their accuracy after some epochs does, with far less noise. It is blind to
the scale, so all others are compared by the loss itself: probabilities must not be too weak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.judge_loop import loss_sum_for, scaled_logistic_loss, slope_sums_for
from streampgs.kernels.placing_loop import mark_features, score_rows, squared_norms
from streampgs.kernels.rows import Rows, one_row
from streampgs.learn.lane_spec import LaneSpec, Target
from streampgs.learn.lanes import Lanes
from streampgs.learn.learner import learner_named
from streampgs.losses import LOSSES, Vector

_FEWEST_ROWS, _MOST_ROWS = 512, 1 << 15
WORST = 1e300  # for scores that left the range; finite, so that it can be saved
# A constant is searched for among numbers up to this, as if a few more rows wanted 0.
_NEAR, _FARTHEST, _EXACT, _MOST_STEPS, _PULL = 0.25, 1024.0, 1e-6, 60, 1.0
_CENTRING_ROWS, _MOST_CENTRING_ROWS = 1 << 13, 1 << 18
_SHARE = 32  # of the rows of an epoch, one in so many is judged at a mark


class Judgement(NamedTuple):
    """Means over rows and targets."""

    loss: float
    merit: float
    """What candidates are compared by; the smaller, the better."""
    accuracy: float | None


def is_one_of_classes(names: Iterable[str]) -> bool:
    """Whether these losses are one, which classifies."""
    different = set(names)
    return len(different) == 1 and LOSSES[different.pop()].classifies


def estimates_probabilities(names: Iterable[str]) -> bool:
    """Whether these losses are one, which estimates probabilities."""
    different = set(names)
    return len(different) == 1 and LOSSES[different.pop()].probability is not None


class Weighted(Protocol):
    """Models with weights: lanes, or the model that a run returns."""

    @property
    def specs(self) -> Sequence[LaneSpec]: ...

    @property
    def features(self) -> int: ...

    def weights(self, lane: int, at: NDArray[np.int64] | None = None) -> Vector: ...


class RowScores:
    """Scores some rows of a window."""

    def __init__(self, window: Rows, rows: NDArray[np.int64], features: int, is_sparse: bool) -> None:
        self.window, self.rows = window, rows
        self._features, self._is_sparse = features, is_sparse
        self._touched = self._coordinates()

    def _coordinates(self) -> NDArray[np.int64]:
        """The coordinates that scores of these rows depend on: with very many features, the weights of all of them would
        cost more than the scores."""
        window = self.window
        if not self._is_sparse:
            return np.arange(self._features + 1)
        found = np.zeros(self._features + 1, np.bool_)
        found[0] = True
        mark_features(window.starts[self.rows], window.stops[self.rows], window.indices, found[1:])
        return np.flatnonzero(found)

    def of(self, models: Weighted, lane: int, into: Vector, constant: float = 0.0) -> None:
        """In the unit of scaled labels, with the constant added, without the offset."""
        window, vector = self.window, np.zeros(self._features + 1)
        vector[self._touched] = models.weights(lane, self._touched)
        score_rows(
            vector[1:], float(vector[0]) * models.specs[lane].intercept + constant, window.starts[self.rows],
            window.stops[self.rows], window.indices, window.values, self._is_sparse, into,
        )  # fmt: skip

    def offsets(self, spec: LaneSpec) -> Vector | None:
        """Of the rows, in the unit of scaled labels."""
        return self.window.offsets[self.rows] / spec.scale if self.window.offsets.size else None

    @property
    def weights(self) -> Vector:
        """Of the rows."""
        return self.window.weights[self.rows] if self.window.weights.size else np.ones(len(self.rows))


class Judge:
    """Judges candidates on some rows of a window."""

    def __init__(
        self, lanes: Weighted, targets: Sequence[Target], window: Rows, rows: NDArray[np.int64],
        losses: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        """`losses`: those of all candidates that are compared, if these are not all."""
        self._lanes, self._targets, self._window, self._rows = lanes, targets, window, rows
        self._scores = RowScores(window, rows, lanes.features, lanes.specs[0].layout == "sparse")
        self._weights = self._scores.weights
        losses = {spec.loss for spec in lanes.specs} if losses is None else set(losses)
        by_loss = learner_named(lanes.specs[0].learner).candidates.judged_by_loss and len(losses) == 1
        self._by_loss = by_loss or estimates_probabilities(losses)

    def judgement(self, place: int) -> Judgement:
        """Of the candidate whose lanes are at that place."""
        count, labels = len(self._targets), self._window.labels[self._rows]
        total = max(float(self._weights.sum()), 1e-300) * count
        classifies = LOSSES[self._lanes.specs[0].loss].classifies
        scores = np.empty((count, len(self._rows)))
        loss = merit = correct = 0.0
        for number in range(count):
            spec = self._lanes.specs[place * count + number]
            self._score(place * count + number, spec, scores[number])
            meant = labels_for(labels, spec)
            own = loss_sum_for(LOSSES[spec.loss])(scores[number], meant, self._weights, spec.shape)
            loss += spec.in_label_units(own)
            by_loss = not classifies or self._by_loss
            merit += own if by_loss else scaled_logistic_loss(scores[number], meant, self._weights)
            correct += float(self._weights[(scores[number] > 0.0) == (meant > 0.0)].sum())
        if self._targets[0].positive is not None:
            correct = count * float(self._weights[scores.argmax(axis=0) == labels].sum())
        accuracy = correct / total if classifies else None
        return Judgement(_finite_or_worst(loss / total), _finite_or_worst(merit / total), accuracy)

    def best_constant(self, lane: int, all_rows: bool) -> float:
        """The number that, added to all scores of the lane, gives the smallest loss, in the unit of scaled labels. If these
        are not all rows of the table, it is drawn to 0 the more, the less certain it is that it differs."""
        spec, scores = self._lanes.specs[lane], np.empty(len(self._rows))
        self._score(lane, spec, scores)
        meant, slope_sums = labels_for(self._window.labels[self._rows], spec), slope_sums_for(LOSSES[spec.loss])

        def slope(constant: float) -> float:
            return slope_sums(scores, meant, self._weights, spec.shape, constant)[0] + _PULL * constant

        if all_rows:
            return _root(slope)
        total, squares = slope_sums(scores, meant, self._weights, spec.shape, 0.0)
        certainty = total * total / squares if squares > 0.0 else 0.0  # the square of a z-score
        return _root(slope) * (1.0 - 1.0 / certainty) if certainty > 1.0 else 0.0

    def scored(self, lane: int) -> tuple[Vector, Vector]:
        """The scores of the rows, with offsets, and their labels, in the unit of scaled labels."""
        spec, scores = self._lanes.specs[lane], np.empty(len(self._rows))
        self._score(lane, spec, scores)
        return scores, labels_for(self._window.labels[self._rows], spec)

    def _score(self, lane: int, spec: LaneSpec, scores: Vector) -> None:
        self._scores.of(self._lanes, lane, scores, spec.base / spec.scale)
        offsets = self._scores.offsets(spec)
        if offsets is not None:
            scores += offsets


def warm_up_judge(spec: LaneSpec) -> None:
    """Compile, or load from the cache, the loops that judge lanes like this one."""
    window = one_row(spec.layout == "sparse")
    judge = Judge(Lanes([spec], 1), (spec.target,), window, np.zeros(1, np.int64))
    judge.judgement(0)
    judge.best_constant(0, False)
    squared_norms(window.starts, window.stops, window.values, spec.norm.q, np.empty(1))


def centre(lanes: Lanes, which: Iterable[int], window: Rows, rows: NDArray[np.int64], all_rows: bool) -> None:
    """Set the constants of some lanes to the best ones for these rows of a window."""
    judge = Judge(lanes, (), window, rows)
    for lane in which:
        if lanes.specs[lane].intercept != 0.0:
            lanes.constants[lane] = judge.best_constant(lane, all_rows)


def rows_to_judge(window: Rows, first: int, wanted: int) -> NDArray[np.int64]:
    """The next rows of the window, at most so many."""
    return np.arange(first, min(len(window), first + wanted))


def judged_rows(span: int) -> int:
    """How many rows are judged at each mark in an epoch of `span` rows."""
    return min(_MOST_ROWS, max(span // _SHARE, min(_FEWEST_ROWS, max(32, span // 4))))


def centring_rows(window: Rows) -> int:
    """How many rows tell the constant of a model: more where most labels are the same."""
    labels = window.labels[:_MOST_CENTRING_ROWS]
    columns = labels if labels.ndim == 2 else labels[:, np.newaxis]
    shares = [float(np.mean(column != np.median(column))) for column in columns.T] if len(labels) else []
    return int(min(_MOST_CENTRING_ROWS, _CENTRING_ROWS / max(1e-9, min(shares, default=1.0))))


def labels_for(labels: NDArray[np.float64], spec: LaneSpec) -> NDArray[np.float64]:
    """The labels as a lane uses them."""
    if spec.target.positive is not None:
        return np.where(labels == spec.target.positive, 1.0, -1.0)
    return np.ascontiguousarray(labels if labels.ndim == 1 else labels[:, spec.target.column]) / spec.scale


def _root(increasing: Callable[[float], float]) -> float:
    """Where the function changes its sign, by false position (the Illinois rule); 0 if that is out of reach."""
    reach = _NEAR
    while reach < _FARTHEST and not increasing(-reach) <= 0.0 <= increasing(reach):
        reach *= 4.0
    low, high, at_low, at_high = -reach, reach, increasing(-reach), increasing(reach)
    if not at_low <= 0.0 <= at_high:
        return 0.0
    middle = math.inf
    for _ in range(_MOST_STEPS):
        before, middle = middle, (low * at_high - high * at_low) / (at_high - at_low)
        found = increasing(middle)
        if abs(middle - before) <= _EXACT or found == 0.0:
            break
        if found < 0.0:
            low, at_low, at_high = middle, found, 0.5 * at_high
        else:
            high, at_high, at_low = middle, found, 0.5 * at_low
    return middle


def _finite_or_worst(value: float) -> float:
    return value if math.isfinite(value) else WORST
