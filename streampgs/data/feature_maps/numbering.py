"""Numbers for the features that rows have shown, in the order in which training meets them.

A model then costs what its rows touch, not what the space of features could hold: frequent features come early, so their
weights are neighbours. The numbers are a pure function of the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streampgs.base.checks import Count, decode, require
from streampgs.base.stage import Bundle
from streampgs.data.feature_maps.feature_map import RowMap
from streampgs.data.row_form import RowForm
from streampgs.kernels.numbering_loop import look_up, number_features
from streampgs.kernels.rows import AnyRows, Rows
from streampgs.losses import Vector
from streampgs.options.solvers import SOLVERS
from streampgs.table.layout import SPARSE

# With fewer features the arrays of a model are small anyway.
_FEWEST_FEATURES = 1 << 15
_SHOWN_OF_NUMBERED = 0.5
_UNKNOWN = np.uint32(0xFFFFFFFF)
_NONE = np.empty(0, np.uint32)


def first_numbering(form: RowForm, window: Rows) -> Numbering | None:
    """A numbering that has met the first rows, if they show a small part of all features, so that numbers pay."""
    needs, inputs = SOLVERS[form.options.solver].needs, max(form.feature_count or 0, window.features)
    if form.layout != SPARSE or needs.columns or needs.feature_count or inputs < _FEWEST_FEATURES:
        return None
    found, middle = Numbering(inputs), len(window) // 2
    found.taken(window.at(slice(0, middle)))
    half = found.width
    found.taken(window.at(slice(middle, None)))
    found.growth = math.log2(found.width / half) if half else 1.0
    return found if found.width <= _SHOWN_OF_NUMBERED * inputs else None


class Numbering(RowMap):
    def __init__(self, inputs: int, listed: NDArray[np.uint32] = _NONE) -> None:
        self.listed, self.width = listed, len(listed)
        """The feature of each number."""
        self.growth = 0.0
        """The exponent with which their number grows with the rows; 0 after the first window."""
        self._inputs = 0
        self._room = _NONE
        self._table = _NONE
        self.grow(inputs)

    @property
    def inputs(self) -> int:
        return self._inputs

    @property
    def table_bytes(self) -> int:
        """Memory that was never touched is not there: a feature touches a page of it."""
        return self.listed.nbytes + self._room.nbytes + min(self._table.nbytes, 4096 * self.width)

    def grow(self, inputs: int) -> None:
        if inputs > len(self._table):
            # A page of zeros takes memory when it is first written to.
            self._table = np.zeros(max(inputs, min(2 * len(self._table), 1 << 32)), np.uint32)
            self._table[self.listed] = np.arange(1, self.width + 1, dtype=np.uint32)
        self._inputs = max(inputs, self._inputs)

    def expected_width(self, times: float) -> int:
        """About how many features so many times the first rows show: a power of their number, by Heaps' law."""
        return min(self.inputs, int(self.width * max(1.0, times) ** self.growth))

    def taken(self, window: AnyRows) -> AnyRows:
        """A window may be opened again after a pause: its features have their numbers then."""
        self.grow(window.features)
        if len(self._room) < len(window.indices):
            self._room = _NONE  # free the old memory before the new is allocated
            self._room = np.empty(len(window.indices), np.uint32)
        listed = np.empty(min(self.inputs, self.width + window.entries), np.uint32)
        listed[: self.width] = self.listed
        count = number_features(
            window.starts, window.stops, window.indices, self._table, listed, self.width, self._room
        )
        self.listed, self.width = listed[:count].copy(), count
        return replace(window, indices=self._room[: len(window.indices)], features=self.width)

    def mapped(self, window: AnyRows) -> AnyRows:
        """Features without a number have one beyond all weights."""
        found = np.empty(len(window.indices), np.uint32)
        look_up(window.starts, window.stops, window.indices, self._table, _UNKNOWN, found)
        return replace(window, indices=found, features=self.width)

    def spread(self, weights: Vector) -> Vector:
        """Weights of numbers as weights of features."""
        found = np.zeros(self.inputs)
        found[self.listed] = weights
        return found

    def state(self) -> Bundle:
        return Bundle({"inputs": self.inputs}, {"features": self.listed})


def restored_numbering(bundle: Bundle) -> Numbering:
    inputs, listed = decode(Count, bundle.values["inputs"]), bundle.arrays["features"]
    require(listed.dtype == np.uint32 and listed.ndim == 1, f"features of type {listed.dtype}, shape {listed.shape}")
    require(not len(listed) or int(listed.max()) < inputs, f"a feature beyond {inputs:,}")
    found = Numbering(inputs, listed)
    require(int(np.count_nonzero(found._table)) == len(listed), "a feature with two numbers")
    return found
