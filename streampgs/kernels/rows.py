"""Rows as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streampgs.kernels.coordinate_loop import count_entries, transpose, transpose_dense

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _no_numbers() -> Ints:
    return np.empty(0, np.int64)


def _nothing() -> Floats:
    return np.empty(0)


@dataclass(eq=False)
class Rows:
    """Row r has entries [starts[r], stops[r]) of `values` (and `indices`, for sparse rows)."""

    starts: Ints = field(default_factory=_no_numbers)
    stops: Ints = field(default_factory=_no_numbers)
    indices: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    """The feature of each entry; empty for dense rows, whose entries are those of features 0, 1, ..."""
    values: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    """It may be longer than the rows need."""
    labels: Floats = field(default_factory=_nothing)
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
    def entries(self) -> int:
        """The number of entries of all rows."""
        return int(self.stops.sum() - self.starts.sum())

    @property
    def bounds(self) -> Ints:
        """Where each row begins, and where the last one ends: of rows that lie one after the other."""
        return np.append(self.starts, self.stops[-1:]) if len(self) else np.zeros(1, np.int64)

    @property
    def numbers(self) -> Ints:
        return np.arange(len(self)) if self.number_rows is None else self.number_rows()

    def columns(self, dense: bool) -> Columns:
        """The same entries column by column, which are kept."""
        if self._columns is None:
            self._columns = _transposed(self, dense)
        return self._columns

    def at(self, places: Ints | slice) -> Rows:
        """Some of the rows, in this order; one may come several times. They share their entries."""
        return Rows(
            self.starts[places],
            self.stops[places],
            self.indices,
            self.values,
            self.labels[places],
            self.weights[places] if self.weights.size else self.weights,
            self.offsets[places] if self.offsets.size else self.offsets,
            lambda: np.asarray(self.numbers[places]),
            self.features,
        )


AnyRows = TypeVar("AnyRows", bound=Rows)
"""Rows, or a window."""


def one_row(sparse: bool) -> Rows:
    """One row of one entry, to compile loops with; its table has no other row."""
    index = np.zeros(1 if sparse else 0, np.uint32)
    row = Rows(np.zeros(1, np.int64), np.ones(1, np.int64), index, np.ones(1, np.float32), np.ones(1), features=1)
    return replace(row, table=row)


def joined(parts: Iterable[Rows]) -> Rows:
    """The rows of all parts in one, without their numbers. The memory of a part may be reused after the next was requested."""
    names = ("starts", "stops", "indices", "values", "labels", "weights", "offsets")
    arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    entries = features = 0
    for part in parts:
        for name in names:
            array = getattr(part, name)
            arrays[name].append(array + entries if name in ("starts", "stops") else array.copy())
        entries += part.values.size
        features = max(features, part.features)
    whole: dict[str, Any] = {name: np.concatenate(found) for name, found in arrays.items() if found}
    return Rows(**whole, number_rows=_unknown_numbers, features=features)


def _unknown_numbers() -> Ints:
    raise AssertionError("the rows of a sample have no numbers")


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
