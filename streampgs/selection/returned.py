"""The model that a run returns: a mixture of the averages of its lineages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from streampgs.checks import require
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.losses import Vector
from streampgs.reading.window import Window
from streampgs.selection.judge import RowScores, labels_for
from streampgs.selection.mixture import LossShape, Mixture, Scored


class Returned:
    """One linear model: each lineage has a share, and the sum is shrunk. The model from before an update can be kept, and is
    then returned as long as the lineages are between two models."""

    def __init__(self, lineages: Sequence[Lanes], mixture: Mixture) -> None:
        """The first lineage is the safe one, which begins with the run."""
        self._lineages, self._mixture = lineages, mixture
        self.kept: list[tuple[Vector, float]] = []
        """Weights and constant of each target, from before the present update."""

    @property
    def specs(self) -> Sequence[LaneSpec]:
        return self._lineages[0].specs

    @property
    def features(self) -> int:
        return self._lineages[0].features

    def weights(self, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        if self.kept:
            weights = self.kept[lane][0]
            return weights if at is None else weights[at]
        return self._mixed(lambda lanes: lanes.weights(lane, at))

    def constant(self, lane: int) -> float:
        """Added to the scores that the weights give, in the unit of scaled labels."""
        if self.kept:
            return self.kept[lane][1]
        return float(self._mixed(lambda lanes: np.array(lanes.constants[lane])))

    def _mixed(self, part: Callable[[Lanes], Vector]) -> Vector:
        parts = [
            (share, part(lanes))
            for share, lanes in zip(self._mixture.shares, self._lineages, strict=True)
            if share > 0.0
        ]
        if len(parts) == 1 and parts[0][0] * self._mixture.shrink == 1.0:
            return parts[0][1]
        return np.asarray(self._mixture.shrink * sum(share * own for share, own in parts))

    def predictor(self, lane: int) -> tuple[Vector, float]:
        """The weights of the features and the constant that predict in the unit of the labels."""
        weights, spec = self.weights(lane), self.specs[lane]
        weights = weights if spec.scale == 1.0 else weights * spec.scale
        return weights[1:], float(weights[0]) * spec.intercept + spec.base + self.constant(lane) * spec.scale

    # While an update is going on.

    def keep(self) -> None:
        """From now on return the model as it is now."""
        self.kept = [(self.weights(lane).copy(), self.constant(lane)) for lane in range(len(self.specs))]

    def release(self) -> None:
        """Return the mixture again."""
        self.kept = []

    def grow(self) -> None:
        """The lineages have more features or targets by now."""
        if self.kept:
            self.kept += [(np.zeros(0), 0.0)] * (len(self.specs) - len(self.kept))
            self.kept = [(_padded(weights, self.features + 1), constant) for weights, constant in self.kept]

    def check(self) -> None:
        """Raise ValueError for kept weights of another model."""
        if self.kept:
            require(len(self.kept) == len(self.specs), f"{len(self.kept)} kept models of {len(self.specs)}")
            sizes = {len(weights) for weights, _ in self.kept}
            require(sizes == {self.features + 1}, f"kept weights of {sizes} coordinates")
            finite = all(np.isfinite(weights).all() and np.isfinite(constant) for weights, constant in self.kept)
            require(finite, "kept weights that are not finite")


def _padded(weights: Vector, size: int) -> Vector:
    return weights if len(weights) == size else np.concatenate([weights, np.zeros(size - len(weights))])


def losses_of(returned: Returned) -> list[LossShape]:
    """Of each target."""
    return [LossShape(spec.loss, spec.shape, spec.in_label_units(1.0)) for spec in returned.specs]


def scores_of(lineages: Sequence[Lanes], returned: Returned, window: Window, rows: NDArray[np.int64]) -> Scored:
    """What the lineages, and the model that is returned, predict for some rows of a window."""
    specs, features = returned.specs, returned.features
    row_scores = RowScores(window, rows, features, specs[0].layout == "sparse")
    shape, own = (len(rows), len(specs)), np.empty(len(rows))
    scores = np.empty((len(rows), len(lineages), len(specs)))
    before, fixed, labels = np.empty(shape), np.empty(shape), np.empty(shape)
    for lane, spec in enumerate(specs):
        for number, lanes in enumerate(lineages):
            row_scores.of(lanes, lane, own, lanes.constants[lane])
            scores[:, number, lane] = own
        row_scores.of(returned, lane, own, returned.constant(lane))
        before[:, lane] = own
        offsets = row_scores.offsets(spec)
        fixed[:, lane] = spec.base / spec.scale + (0.0 if offsets is None else offsets)
        labels[:, lane] = labels_for(window.labels[rows], spec)
    return Scored(scores, before, fixed, labels, row_scores.weights)
