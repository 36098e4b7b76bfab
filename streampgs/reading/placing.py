"""Rows of a block's columns go to their places in a window, and are checked on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.encoding import Encoding
from streampgs.kernels.placing_loop import place_dense, place_sparse, repeat_table
from streampgs.reading.bad_rows import bad_row_error
from streampgs.reading.window import RowShape, Window
from streampgs.table.catalog import Shard
from streampgs.table.layout import Columns, Layout, RowArrays, rows_of

LARGEST_INDEX = 2**31 - 2
_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class RowRules:
    """What a row is and when it is refused."""

    columns: Columns
    classifies: bool
    skip_bad_rows: bool
    features: int | None
    """The number of features, where it is fixed."""

    @property
    def unrepeated(self) -> bool:
        """Whether rows are encoded in a way that no index can come twice."""
        return isinstance(self.columns.encoding, Encoding) and not self.columns.encoding.unbounded

    def shape(self, sparse: bool) -> RowShape:
        columns = self.columns
        return RowShape(sparse, max(1, len(columns.labels)), columns.weighted, columns.offset is not None)


@dataclass
class Found:
    """What came to light about rows while they were placed."""

    largest_index: int = -1
    skipped: Counter[int] = field(default_factory=Counter)
    dropped: list[NDArray[np.int64]] = field(default_factory=list)
    """Slots of the skipped rows."""
    reasons: list[NDArray[np.uint8]] = field(default_factory=list)
    """Why each of these was skipped."""

    def add(self, other: Found) -> None:
        self.largest_index = max(self.largest_index, other.largest_index)
        self.skipped.update(other.skipped)
        self.dropped += other.dropped
        self.reasons += other.reasons


@dataclass(frozen=True)
class Origin:
    """Where rows come from: a group of a shard, from its row `first_row` on."""

    shard: Shard
    group: int
    first_row: int

    def name_of(self, row: int) -> str:
        in_group = self.first_row + row
        in_file = sum(self.shard.group_rows[: self.group]) + in_group
        return f"shard '{self.shard.path}', {self.shard.group_name} {self.group}, row {in_group} (row {in_file} of the file)"


class HasLayout(Protocol):
    """A shard, or a stream."""

    @property
    def layout(self) -> Layout: ...


class NamesRows(Protocol):
    @property
    def shard(self) -> HasLayout: ...

    def name_of(self, row: int) -> str:
        """What a row that cannot be used is called in an error."""


class RowPlacer:
    """Places rows for one thread. A dense row has `width` entries, unless its shard tells of fewer columns; None: rows
    are laid out as sparse ones."""

    def __init__(self, rules: RowRules, width: int | None) -> None:
        self.rules = rules
        self.width = width
        self._table = repeat_table(256)

    def warm_up(self) -> None:
        """Compile, or load from the cache, the loops that placing needs."""
        values, reasons = np.empty(0, np.float32), np.empty(0, np.uint8)
        if self.width is None:
            indices, offsets = np.empty(0, np.int32), np.zeros(1, np.int64)
            place_sparse(
                _NO_ROWS, _NO_ROWS, offsets, _unsigned(indices), values, _NO_ROWS, indices.view(np.uint32), values,
                np.uint64(1), reasons, self._table, False,
            )  # fmt: skip
        else:
            place_dense(_NO_ROWS, _NO_ROWS, 1, values, _NO_ROWS, values, reasons)

    def width_of(self, shard: HasLayout) -> int | None:
        """Of a dense row. Those of encoded columns are as long as there were columns when the shard came."""
        return shard.layout.width if shard.layout.encoding is not None else self.width

    def arrays(self, columns: dict[str, pa.Array], shard: HasLayout) -> RowArrays:
        own, width = self.rules.columns.of_rows, self.width_of(shard)
        return rows_of(columns, shard.layout, own, self.rules.classifies, width, self.width is None)

    def place(
        self,
        arrays: RowArrays,
        picks: NDArray[np.int64] | None,
        slots: NDArray[np.int64],
        window: Window,
        origin: NamesRows,
        found: Found,
    ) -> None:
        """Copy the rows that `picks` names (None: all) to their slots, which the window has laid out."""
        rows = np.arange(len(arrays)) if picks is None else picks
        reasons = arrays.reasons[rows]
        if self.width is None:
            self._reach(arrays)
            largest = place_sparse(
                rows, slots, arrays.offsets, _unsigned(arrays.indices), arrays.values, window.starts, window.indices,
                window.values, np.uint64(self.rules.features or LARGEST_INDEX + 1), reasons, self._table,
                self.rules.unrepeated,
            )  # fmt: skip
            found.largest_index = max(found.largest_index, int(largest))
        else:
            width = self.width_of(origin.shard)
            place_dense(rows, slots, width, arrays.values, window.starts, window.values, reasons)
            found.largest_index = max(found.largest_index, (width or 0) - 1)
        if arrays.labels is not None:
            window.labels[slots] = arrays.labels[rows]
        if window.weights.size and arrays.weights is not None:
            window.weights[slots] = arrays.weights[rows]
        if window.offsets.size and arrays.score_offsets is not None:
            window.offsets[slots] = arrays.score_offsets[rows]
        bad = np.flatnonzero(reasons)
        if bad.size:
            if not self.rules.skip_bad_rows:
                raise bad_row_error(origin.name_of, arrays, reasons, rows, self.rules.columns)
            found.skipped.update(reasons[bad].tolist())
            found.dropped.append(slots[bad])
            found.reasons.append(reasons[bad])

    def _reach(self, arrays: RowArrays) -> None:
        longest = int(np.diff(arrays.offsets).max(initial=0))
        if 4 * longest > self._table.size:
            self._table = repeat_table(longest)


def _unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    return indices.view(np.uint32 if indices.itemsize == 4 else np.uint64)
