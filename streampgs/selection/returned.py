"""The model that a run returns: a mixture of the averages of its lineages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.rows import Rows
from streampgs.learn.lane_spec import LaneSpec
from streampgs.losses import Vector
from streampgs.selection.frozen import Frozen
from streampgs.selection.judge import RowScores, Weighted, labels_for
from streampgs.selection.mixture import LossShape, Mixture, Scored


class Lineage(Weighted, Protocol):
    constants: list[float]
    """Added to the scores, in the unit of scaled labels."""


class Returned:
    """One linear model: each lineage has a share, and the sum is shrunk. The model from before an update is returned as long
    as it is going on, because the lineages are between two models then."""

    def __init__(self, lineages: Sequence[Lineage], mixture: Mixture, before: Frozen) -> None:
        """The first lineage is the safe one, which begins with the run."""
        self._lineages, self._mixture, self._before = lineages, mixture, before

    @property
    def specs(self) -> Sequence[LaneSpec]:
        return self._lineages[0].specs

    @property
    def features(self) -> int:
        return self._lineages[0].features

    def weights(self, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return self._before.weights(lane, at) if len(self._before) else self._mixed(lambda one: one.weights(lane, at))

    @property
    def constants(self) -> list[float]:
        if len(self._before):
            return self._before.constants
        constants: list[float] = self._mixed(lambda one: np.array(one.constants)).tolist()
        return constants

    def _mixed(self, part: Callable[[Lineage], Vector]) -> Vector:
        shares = zip(self._mixture.shares, self._lineages, strict=True)
        parts = [(share, part(lineage)) for share, lineage in shares if share > 0.0]
        if len(parts) == 1 and parts[0][0] * self._mixture.shrink == 1.0:
            return parts[0][1]
        return np.asarray(self._mixture.shrink * sum(share * own for share, own in parts))

    def predictor(self, lane: int) -> tuple[Vector, float]:
        """The weights of the features and the constant that predict in the unit of the labels."""
        weights, spec = self.weights(lane), self.specs[lane]
        weights = weights if spec.scale == 1.0 else weights * spec.scale
        return weights[1:], float(weights[0]) * spec.intercept + spec.base + self.constants[lane] * spec.scale


def nonzeros_and_zeros(model: Weighted, lanes: Iterable[int]) -> tuple[int, int]:
    """How many weights of these lanes are not exactly zero, and how many are; without the intercepts."""
    counts = [(int(np.count_nonzero(weights[1:])), len(weights) - 1) for weights in map(model.weights, lanes)]
    nonzeros = sum(count for count, _ in counts)
    return nonzeros, sum(size for _, size in counts) - nonzeros


def losses_of(returned: Returned) -> list[LossShape]:
    """Of each target."""
    return [LossShape(spec.loss, spec.shape, spec.in_label_units(1.0)) for spec in returned.specs]


def scores_of(
    lineages: Sequence[Lineage], returned: Returned, window: Rows, rows: NDArray[np.int64], lanes: range | None = None
) -> Scored:
    """What the lineages, and the model that is returned, predict for some rows of a window. `lanes`: these alone."""
    specs, constants, features = returned.specs, returned.constants, returned.features
    lanes = range(len(specs)) if lanes is None else lanes
    row_scores = RowScores(window, rows, features, specs[0].layout == "sparse")
    shape, own = (len(rows), len(lanes)), np.empty(len(rows))
    scores = np.empty((len(rows), len(lineages), len(lanes)))
    before, fixed, labels = np.empty(shape), np.empty(shape), np.empty(shape)
    for place, lane in enumerate(lanes):
        spec = specs[lane]
        for number, lineage in enumerate(lineages):
            row_scores.of(lineage, lane, own, lineage.constants[lane])
            scores[:, number, place] = own
        row_scores.of(returned, lane, own, constants[lane])
        before[:, place] = own
        offsets = row_scores.offsets(spec)
        fixed[:, place] = spec.base / spec.scale + (0.0 if offsets is None else offsets)
        labels[:, place] = labels_for(window.labels[rows], spec)
    return Scored(scores, before, fixed, labels, row_scores.weights)
