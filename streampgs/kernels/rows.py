"""Rows as arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.coordinate_loop import count_entries, transpose, transpose_dense

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _nothing() -> Floats:
    return np.empty(0)


@dataclass(eq=False)
class Rows:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows)."""

    starts: Ints
    stops: Ints
    indices: NDArray[np.uint32]
    """The feature of each entry; empty for dense rows, whose entries are those of features 0, 1, ..."""
    values: NDArray[np.float32]
    labels: Floats
    """One of a row, or a column for each label."""
    weights: Floats = field(default_factory=_nothing)
    """Empty: all rows count once."""
    offsets: Floats = field(default_factory=_nothing)
    """Added to the rows' scores; empty: nothing is added."""
    number_rows: Callable[[], Ints] | None = None
    """Computes the number of each row in the table; None: its place."""
    features: int = 0
    """All features are below this number."""
    table: Rows | None = None
    """All rows of the table, of which these are some, if they are in memory."""
    _columns: Columns | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def numbers(self) -> Ints:
        return np.arange(len(self)) if self.number_rows is None else self.number_rows()

    def columns(self, dense: bool) -> Columns:
        """The same entries column by column, which are kept."""
        if self._columns is None:
            self._columns = _transposed(self, dense)
        return self._columns


def rows_at(lines: Any, places: Ints) -> Rows:
    """Some rows of a window, in this order; one may come several times."""
    return Rows(
        lines.starts[places],
        lines.stops[places],
        lines.indices,
        lines.values,
        lines.labels[places],
        lines.weights[places] if lines.weights.size else lines.weights,
        lines.offsets[places] if lines.offsets.size else lines.offsets,
        lambda: np.asarray(lines.numbers[places]),
    )


@dataclass(frozen=True)
class Columns:
    """Line k has entries [bounds[k], bounds[k + 1]), of feature features[k]. Features ascend, and so do the rows of a line."""

    features: Ints
    bounds: Ints
    rows: NDArray[np.uint32]
    """The row of each entry; empty for dense columns, which have a value for each row."""
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.features)


def _transposed(rows: Rows, dense: bool) -> Columns:
    if dense:
        width = int((rows.stops - rows.starts).max(initial=0))
        values = np.zeros(width * len(rows), np.float32)
        transpose_dense(rows.starts, rows.stops, rows.values, values)
        bounds = np.arange(width + 1, dtype=np.int64) * len(rows)
        return Columns(np.arange(width, dtype=np.int64), bounds, np.empty(0, np.uint32), values)
    places = np.zeros(rows.features + 1, np.int64)
    count_entries(rows.starts, rows.stops, rows.indices, places[1:])
    features = np.flatnonzero(places[1:])
    np.cumsum(places, out=places)
    bounds = np.append(places[features], places[-1])
    numbers, values = np.empty(int(bounds[-1]), np.uint32), np.empty(int(bounds[-1]), np.float32)
    transpose(rows.starts, rows.stops, rows.indices, rows.values, places, numbers, values)
    return Columns(features, bounds, numbers, values)
