"""Kernel features of rows in memory: computed once, before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from streampgs.data.feature_maps import FeatureMap, found_map
from streampgs.encoding.encoding import Encoding
from streampgs.options.commands import ModelOptions
from streampgs.python.estimators.features import Features, Order, Rows
from streampgs.python.estimators.training import Ordered
from streampgs.reading.window import Window


class KernelFeatures:
    """The kernel features of other features."""

    layout: Literal["dense", "sparse"] = "dense"
    encoding: Encoding | None = None
    """That of the other features does not tell how many features a row has."""

    def __init__(self, inner: Features, kernel: FeatureMap) -> None:
        self._inner, self._kernel = inner, kernel
        self.features, self.takes_tables = kernel.width, inner.takes_tables

    def rows(self, given: Any, order: Order = None) -> Iterator[Rows]:
        for rows in self._inner.rows(given, order):
            clipped = rows.clipped
            for piece in self._kernel.pieces(_window(rows)):
                bounds = np.append(piece.starts, piece.entries)
                values = piece.values.copy()  # the next piece is put into the same memory
                yield Rows(bounds, None, values, self.features, clipped)
                clipped = 0

    def name_of(self, feature: int, columns: Sequence[str]) -> str:
        return self._kernel.name_of(feature, lambda inner: self._inner.name_of(inner, columns))


def with_kernel(features: Features, ordered: Ordered, options: ModelOptions) -> Features:
    """The kernel is found from the first of these rows, which are a random sample if they are in the order of content."""
    if options.kernel is None:
        return features
    first = _window(next(iter(features.rows(ordered.given.rows, ordered.picks))))
    return KernelFeatures(features, found_map(options, features.layout, features.features, first))


def _window(rows: Rows) -> Window:
    window = Window()
    window.rows, window.entries = len(rows), len(rows.values)
    window.starts, window.stops = rows.bounds[:-1], rows.bounds[1:]
    window.values = rows.values
    window.indices = window.indices if rows.indices is None else rows.indices
    window.largest_index = rows.features - 1
    return window
