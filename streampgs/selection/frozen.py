"""Models that are kept as they were, without what training would need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import decode, require
from streampgs.base.stage import Bundle
from streampgs.learn.lane_spec import LaneSpec
from streampgs.learn.lanes import Lanes
from streampgs.losses import Vector
from streampgs.selection.judge import Weighted


class Frozen:
    """The weights and constants of a model for each target; or nothing."""

    def __init__(self, name: str, lanes: Lanes) -> None:
        """`lanes`: those that continue, with the same targets and features."""
        self.name, self._lanes = name, lanes
        self._weights: list[Vector] = []
        self.constants: list[float] = []

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def specs(self) -> Sequence[LaneSpec]:
        return self._lanes.specs

    @property
    def features(self) -> int:
        return self._lanes.features

    @property
    def nbytes(self) -> int:
        return sum(weights.nbytes for weights in self._weights)

    def weights(self, lane: int, at: NDArray[np.int64] | None = None) -> Vector:
        return self._weights[lane] if at is None else self._weights[lane][at]

    def keep(self, model: Weighted, constants: Sequence[float]) -> None:
        self._weights = [model.weights(lane).copy() for lane in range(len(model.specs))]
        self.constants = list(constants)

    def clear(self) -> None:
        self._weights, self.constants = [], []

    def grow(self) -> None:
        """There are more features or targets by now, of which these models know nothing."""
        if self._weights:
            more = len(self.specs) - len(self)
            self._weights = [_padded(weights, self.features + 1) for weights in [*self._weights, *[np.zeros(0)] * more]]
            self.constants += [0.0] * more

    def state(self) -> Bundle:
        return Bundle(
            {"constants": self.constants}, {str(number): weights for number, weights in enumerate(self._weights)}
        )

    def restore(self, bundle: Bundle) -> None:
        """After the lanes, which they must fit."""
        constants = decode(list[float], bundle.values["constants"])
        require(len(constants) in (0, len(self.specs)), f"{len(constants)} models of {len(self.specs)}")
        require(
            bundle.arrays.keys() == set(map(str, range(len(constants)))), f"arrays {sorted(bundle.arrays)} of models"
        )
        weights = [bundle.arrays[str(number)] for number in range(len(constants))]
        for array in weights:
            right = array.dtype == np.float64 and array.shape == (self.features + 1,) and bool(np.isfinite(array).all())
            require(right, f"weights of type {array.dtype} and shape {array.shape}")
        require(all(map(np.isfinite, constants)), "constants that are not finite")
        self._weights, self.constants = weights, constants


def _padded(weights: Vector, size: int) -> Vector:
    return weights if len(weights) == size else np.concatenate([weights, np.zeros(size - len(weights))])
