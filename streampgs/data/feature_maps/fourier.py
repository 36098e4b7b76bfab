"""Random Fourier features of the kernel exp(-gamma·‖x - y‖²) (Rahimi and Recht 2007): cosines and sines of random
projections, in pairs, which approximate it better than cosines with random phases."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from streampgs.data.feature_maps.feature_map import FeatureMap, MapRecord, Rows
from streampgs.kernels import feature_map_loop as loops
from streampgs.kernels.randomness import key_of
from streampgs.reading.window import Window

_TABLE_NUMBERS = 1 << 23
"""Of the projections: features beyond share its rows."""
_MOST_ORTHOGONAL = 512


class FourierFeatures(FeatureMap):
    how = "cosines and sines of random projections"

    def __init__(self, record: MapRecord) -> None:
        super().__init__(record)
        pairs = max(1, record.most // 2)
        self._width = 2 * pairs
        self._most_rows = max(1, _TABLE_NUMBERS // pairs)
        self._key = np.uint64(key_of(record.seed, "kernel features"))
        self._folding = np.uint64(key_of(record.seed, "shared kernel features"))
        self._scale = math.sqrt(2.0 * record.gamma) / (2.0 * math.pi)
        self._frequencies = np.empty((0, pairs), np.float32)
        rows = min(record.first_inputs, self._most_rows)
        if 0 < rows == record.first_inputs <= _MOST_ORTHOGONAL:
            self._frequencies = np.empty((rows, pairs), np.float32)
            loops.fill_orthogonal_frequencies(self._frequencies, self._key, self._scale)
        self._extend()

    def _extend(self) -> None:
        before, rows = len(self._frequencies), max(1, min(self.record.inputs, self._most_rows))
        if rows > before:
            table = np.empty((rows, self._frequencies.shape[1]), np.float32)
            table[:before] = self._frequencies
            loops.fill_frequencies(table, before, self._key, self._scale)
            self._frequencies = table

    @property
    def width(self) -> int:
        return self._width

    @property
    def table_bytes(self) -> int:
        return self._frequencies.nbytes

    def name_of(self, place: int, name_of_input: Callable[[int], str]) -> str:
        pairs = self._width // 2
        return f"{'cosine' if place < pairs else 'sine'} of projection {place % pairs}"

    def grow(self, record: MapRecord) -> None:
        super().grow(record)
        self._extend()

    def map_rows(self, window: Window, out: Rows) -> None:
        # The table may be longer than the features that are known, but never shorter.
        loops.fourier_rows(*self.entries(window), self.record.inputs, self._frequencies, self._folding, out)
