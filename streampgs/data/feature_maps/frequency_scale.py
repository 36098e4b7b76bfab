"""Scales of sparse features by how often they occur, so that rare ones learn as fast as frequent ones.

Features of real sparse tables follow a power law. With one step size for all, a feature that few rows have learns slowly.
Its values are multiplied by (share of the rows that have it)^-power, times a constant that keeps the mean square norm of a row:
so σ and the first steps stay as they are. The model stays linear in the features: `folded` gives their weights.

The shares are those of the first rows of a run. They stay for the run, and features that these rows do not have count as
those of one row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import decode, require
from streampgs.base.stage import Bundle
from streampgs.data.feature_maps.feature_map import RowMap
from streampgs.data.feature_maps.numbering import Numbering, restored_numbering
from streampgs.kernels.frequency_loop import count_rows_with, scale_entries, squared_sums
from streampgs.kernels.rows import AnyRows, Rows
from streampgs.losses import Vector

_COUNTED_ROWS = 1 << 15
_NO_ROOM = np.empty(0, np.float32)


class FrequencyScale(RowMap):
    def __init__(
        self, power: float, scales: NDArray[np.float32], unseen: float, width: int, numbering: Numbering | None = None
    ) -> None:
        self.power, self.scales, self.unseen, self.numbering = power, scales, unseen, numbering
        self.width = width
        self._room = _NO_ROOM

    @property
    def text(self) -> str:
        return f"each value is multiplied by (share of the rows that have its feature)^-{self.power:g}"

    @property
    def inputs(self) -> int:
        return self.width if self.numbering is None else self.numbering.inputs

    @property
    def table_bytes(self) -> int:
        own = self.scales.nbytes + self._room.nbytes
        return own if self.numbering is None else own + self.numbering.table_bytes

    def grow(self, inputs: int) -> None:
        if self.numbering is None:
            self.width = max(self.width, inputs)
        else:
            self.numbering.grow(inputs)

    def taken(self, window: AnyRows) -> AnyRows:
        if self.numbering is not None:
            window = self.numbering.taken(window)
            self.width = self.numbering.width
        return self.scaled_for_now(window)

    def scaled_for_now(self, window: AnyRows) -> AnyRows:
        """The same rows, of features that have their numbers, with scaled values, until the next call."""
        if len(self._room) < len(window.values):
            self._room = _NO_ROOM  # free the old memory before the new is allocated
            self._room = np.empty(len(window.values), np.float32)
        return self.scaled(window, self._room[: len(window.values)])

    def mapped(self, window: AnyRows) -> AnyRows:
        window = window if self.numbering is None else self.numbering.mapped(window)
        return self.scaled(window)

    def scaled(self, window: AnyRows, room: NDArray[np.float32] | None = None) -> AnyRows:
        """The same rows, of features that have their numbers, with scaled values. `room`: memory for them."""
        room = np.empty(len(window.values), np.float32) if room is None else room
        scale_entries(window.starts, window.stops, window.indices, window.values, self.scales, self.unseen, room)
        return replace(window, values=room, features=max(self.width, window.features))

    def folded(self, weights: Vector) -> Vector:
        """Weights of scaled values as weights of values."""
        scales = np.full(len(weights), self.unseen)
        scales[: len(self.scales)] = self.scales[: len(weights)]
        return np.asarray(weights * scales)

    def state(self) -> Bundle:
        inner = Bundle() if self.numbering is None else self.numbering.state()
        own: dict[str, Any] = {"power": self.power, "unseen": self.unseen, "width": self.width}
        return Bundle({**inner.values, **own}, {**inner.arrays, "scales": self.scales})


def frequency_scale(rows: Rows, power: float, numbering: Numbering | None) -> FrequencyScale:
    """From the first rows of a run, whose features have their numbers."""
    counted = rows.at(slice(0, _COUNTED_ROWS))
    counts = np.zeros(rows.features, np.int64)
    count_rows_with(counted.starts, counted.stops, counted.indices, counts)
    counts = counts[: int(np.flatnonzero(counts).max(initial=-1)) + 1]
    shares = (counts + 1.0) / (len(counted) + 1.0)
    scales = (shares**-power).astype(np.float32)
    before, after = squared_sums(counted.starts, counted.stops, counted.indices, counted.values, scales)
    factor = float(np.sqrt(before / after)) if after > 0.0 else 1.0
    unseen = factor * (1.0 / (len(counted) + 1.0)) ** -power
    return FrequencyScale(power, (factor * scales).astype(np.float32), unseen, rows.features, numbering)


def restored_scale(bundle: Bundle) -> FrequencyScale:
    power, unseen = (decode(float, bundle.values[name]) for name in ("power", "unseen"))
    width, scales = decode(int, bundle.values["width"]), bundle.arrays["scales"]
    require(scales.dtype == np.float32 and scales.ndim == 1, f"scales of type {scales.dtype}, shape {scales.shape}")
    require(
        bool(np.isfinite(scales).all() and (scales > 0.0).all() and 0.0 < unseen < np.inf), "a scale that is not one"
    )
    require(len(scales) <= width, f"{len(scales)} scales of {width} features")
    numbering = restored_numbering(bundle) if "features" in bundle.arrays else None
    return FrequencyScale(power, scales, unseen, width, numbering)
