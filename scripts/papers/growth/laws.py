"""Generated tables whose law changes with time: sparse rows with labels by a logistic model.

Time is counted in nights. The true weights are a mixture of three fixed vectors, by coefficients that depend on the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEATURES = 20_000
CHANGE = 10.0
"""The night of the abrupt change."""

_ENTRIES = 30
_SCALE = 5.0
_TURN_NIGHTS, _SEASON_NIGHTS, _SHIFT_NIGHTS = 12.0, 8.0, 20.0


@dataclass(frozen=True)
class Law:
    weights: Callable[[Floats], list[Floats]]
    """The coefficients of the three vectors of true weights."""
    shift: Callable[[Floats], Floats]
    """The share of features that are drawn by the second law of frequencies."""


def _none(times: Floats) -> Floats:
    return np.zeros_like(times)


def _one(times: Floats) -> list[Floats]:
    return [np.ones_like(times), _none(times), _none(times)]


def _rotation(times: Floats) -> list[Floats]:
    angle = np.pi / 2 * times / _TURN_NIGHTS
    return [np.cos(angle), np.sin(angle), _none(times)]


def _abrupt(times: Floats) -> list[Floats]:
    changed = (times >= CHANGE).astype(np.float64)
    return [1.0 - changed, changed, _none(times)]


def _season(times: Floats) -> list[Floats]:
    angle = 2.0 * np.pi * times / _SEASON_NIGHTS
    return [np.full_like(times, np.sqrt(0.5)), np.sqrt(0.5) * np.cos(angle), np.sqrt(0.5) * np.sin(angle)]


LAWS = {
    "constant": Law(_one, _none),
    "rotation": Law(_rotation, _none),
    "abrupt": Law(_abrupt, _none),
    "season": Law(_season, _none),
    "frequencies": Law(_one, lambda times: np.clip(times / _SHIFT_NIGHTS, 0.0, 1.0)),
}


def drawn(law: str, times: Floats, seed: int, part: int) -> pa.Table:
    """One row for each time; rows of another part are others."""
    weights, ranks = _truth(seed)
    random = np.random.default_rng([seed, part])
    shape = (len(times), _ENTRIES)
    popularity = 1.0 / (np.arange(FEATURES) + 10.0)
    rank = random.choice(FEATURES, size=shape, p=popularity / popularity.sum())
    shifted = random.random(shape) < LAWS[law].shift(times)[:, np.newaxis]
    features = np.where(shifted, ranks[rank], rank)
    values = np.log(rank + 20.0) * random.uniform(0.5, 1.5, shape)
    features.sort(axis=1)
    repeated = np.zeros(shape, bool)
    repeated[:, 1:] = features[:, 1:] == features[:, :-1]
    values[repeated] = 0.0
    values /= np.sqrt((values**2).sum(axis=1, keepdims=True))
    coefficients = LAWS[law].weights(times)
    scores = sum(c * (values * w[features]).sum(axis=1) for c, w in zip(coefficients, weights, strict=True))
    positive = random.random(len(times)) < 1.0 / (1.0 + np.exp(-_SCALE * scores))
    return sparse_table(np.where(positive, 1, -1), features, values, ~repeated)


def sparse_table(
    labels: NDArray[np.int64], features: NDArray[np.int64], values: Floats, kept: NDArray[np.bool_]
) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32)
    indices = pa.ListArray.from_arrays(offsets, features[kept].astype(np.int32))
    entries = pa.ListArray.from_arrays(offsets, values[kept].astype(np.float32))
    return pa.table({"label": pa.array(labels.astype(np.int8)), "indices": indices, "values": entries})


def _truth(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    random = np.random.default_rng([seed, 1 << 40])
    return random.standard_normal((3, FEATURES)), random.permutation(FEATURES)
