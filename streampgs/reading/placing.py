"""Copy the rows of a block to their places in a window, and check them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampgs.encoding.encoding import Encoding
from streampgs.encoding.labels import LABEL_TOO_LARGE, LABEL_TOO_LOW, LARGEST_LABEL
from streampgs.encoding.rows import WIDTH_DIFFERS, Floats, RowBlock
from streampgs.encoding.scales import LARGEST_NUMBER
from streampgs.kernels.jit import frozen
from streampgs.kernels.placing_loop import place_dense, place_sparse, repeat_table
from streampgs.kernels.rows import Rows
from streampgs.reading.bad_rows import bad_row_error
from streampgs.reading.window import RowCounts, RowShape
from streampgs.table.layout import Columns, Layout

LARGEST_INDEX = 2**31 - 2
_NO_ROWS = np.empty(0, np.int64)
_NO_VALUES, _NO_TARGETS = np.empty(0, np.float32), np.empty(0)


@dataclass(frozen=True)
class RowRules:
    """The columns of a row, and when a row is refused."""

    columns: Columns
    classifies: bool
    skip_bad_rows: bool
    features: int | None
    """The number of features, if it is fixed."""
    keep_unknown: bool = False
    """Whether rows of classes that the model does not know are kept. Their label is NaN."""

    @property
    def unrepeated(self) -> bool:
        """Whether the encoding guarantees that no index is repeated."""
        return isinstance(self.columns.encoding, Encoding) and not self.columns.encoding.unbounded

    def shape(self, sparse: bool) -> RowShape:
        columns = self.columns
        return RowShape(sparse, max(1, len(columns.labels)), columns.weighted, columns.offset is not None)


@dataclass
class Found:
    """Results of placing rows."""

    largest_index: int = -1
    dropped: list[NDArray[np.int64]] = field(default_factory=list)
    """Slots of the skipped rows."""
    reasons: list[NDArray[np.uint8]] = field(default_factory=list)
    """Why each of these rows was skipped."""
    clipped: list[tuple[NDArray[np.int64], list[str | None]]] = field(default_factory=list)
    """For each clipped value the slot of its row and its column."""
    examples: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By column: the name of a row with a clipped value, and the value."""

    def add(self, other: Found) -> None:
        self.largest_index = max(self.largest_index, other.largest_index)
        self.dropped += other.dropped
        self.reasons += other.reasons
        self.clipped += other.clipped
        self.examples = other.examples | self.examples

    def counts(self, repeated: NDArray[np.bool_] | None = None) -> RowCounts:
        """What was found in rows that were not visited before; `repeated`: the slots of the others. None: there are none."""
        found = RowCounts(clipped_examples=self.examples)
        for slots, reasons in zip(self.dropped, self.reasons, strict=True):
            found.skipped.update((reasons if repeated is None else reasons[~repeated[slots]]).tolist())
        for slots, columns in self.clipped:
            counts = np.ones(len(slots), np.bool_) if repeated is None else ~repeated[slots]
            found.clipped.update(
                name for name, one in zip(columns, counts.tolist(), strict=True) if one and name is not None
            )
        return found


@dataclass(frozen=True)
class Origin:
    """The source of a block of rows."""

    layout: Layout
    name_of: Callable[[int], str]
    """The name of a row in errors, from its number in the block."""
    cell_of: Callable[[int, str], Any] = lambda row, column: None
    """The value of a column in a row, as the source has it: for errors, where a number stands for a string."""


class RowPlacer:
    """Places rows for one thread. A dense row has `width` entries, unless its shard has fewer columns; None: all rows are
    stored as sparse ones."""

    def __init__(self, rules: RowRules, width: int | None) -> None:
        self.rules = rules
        self.width = width
        self._table = repeat_table(256)

    def warm_up(self) -> None:
        """Compile the loops that placing needs, or load them from their cache."""
        values, reasons = np.empty(0, np.float32), np.empty(0, np.uint8)
        if self.width is None:
            indices, bounds = np.empty(0, np.int32), np.zeros(1, np.int64)
            place_sparse(
                _NO_ROWS, _NO_ROWS, bounds, frozen(_unsigned(indices)), frozen(values), _NO_ROWS,
                indices.view(np.uint32), values, np.uint64(1), reasons, self._table, False,
            )  # fmt: skip
        else:
            place_dense(_NO_ROWS, _NO_ROWS, 1, frozen(values), _NO_ROWS, values, reasons)

    def width_of(self, layout: Layout) -> int | None:
        """The length of a dense row. Encoded rows are as long as there were columns when the shard arrived."""
        return layout.width if layout.encoding is not None else self.width

    def place(
        self,
        block: RowBlock,
        slots: NDArray[np.int64],
        window: Rows,
        origin: Origin,
        found: Found,
    ) -> None:
        """Copy the rows to their slots in the window."""
        faults = block.faults.copy()
        targets, weights = targets_of(
            block, self.rules.columns, self.rules.classifies, origin.layout.classes, faults, self.rules.keep_unknown
        )
        values = _NO_VALUES if block.values is None else block.values
        width = self.width_of(origin.layout) or 0
        if block.indices is None:
            values = _of_width(block, values, width, faults)
        rows = np.arange(block.num_rows)
        if self.width is None:
            bounds, indices = block.bounds, block.indices
            if indices is None:
                bounds, indices = _with_indices(block.num_rows, width)
            self._reach(bounds)
            largest = place_sparse(
                rows, slots, bounds, frozen(_unsigned(indices)), frozen(values), window.starts, window.indices,
                window.values, np.uint64(self.rules.features or LARGEST_INDEX + 1), faults, self._table,
                self.rules.unrepeated,
            )  # fmt: skip
            found.largest_index = max(found.largest_index, int(largest))
        else:
            place_dense(rows, slots, width, frozen(values), window.starts, window.values, faults)
            found.largest_index = max(found.largest_index, width - 1)
        if targets.size:
            window.labels[slots] = targets[rows]
        if window.weights.size and weights.size:
            window.weights[slots] = weights[rows]
        if window.offsets.size and block.offsets.size:
            window.offsets[slots] = block.offsets[rows]
        if block.clipped.size:
            self._note_clipped(block, rows[faults == 0], slots[faults == 0], origin, found)
        self._leave_out(block, rows, faults, slots, origin, found)

    def _note_clipped(
        self, block: RowBlock, rows: NDArray[np.int64], slots: NDArray[np.int64], origin: Origin, found: Found
    ) -> None:
        encoding, marked = self.rules.columns.encoding, np.flatnonzero(block.clipped[rows])
        if not marked.size or not isinstance(encoding, Encoding) or block.values is None:
            return
        starts, stops = block.bounds[rows[marked]], block.bounds[rows[marked] + 1]
        lengths = stops - starts
        owners = np.repeat(np.arange(len(marked)), lengths)
        entries = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + starts[owners]
        largest = np.abs(block.values[entries]) == LARGEST_NUMBER
        entries, owners = entries[largest], owners[largest]
        features = entries - starts[owners] if block.indices is None else block.indices[entries]
        found.clipped.append((slots[marked][owners], encoding.scaled_columns(features.astype(np.int64))))
        for column, (row, value) in block.examples.items():
            found.examples.setdefault(column, (origin.name_of(row), value))

    def _leave_out(
        self,
        block: RowBlock,
        rows: NDArray[np.int64],
        reasons: NDArray[np.uint8],
        slots: NDArray[np.int64],
        origin: Origin,
        found: Found,
    ) -> None:
        bad = np.flatnonzero(reasons)
        if bad.size:
            if not self.rules.skip_bad_rows:
                raise bad_row_error(origin, block, reasons, rows, self.rules.columns)
            found.dropped.append(slots[bad])
            found.reasons.append(reasons[bad])

    def _reach(self, bounds: NDArray[np.int64]) -> None:
        longest = int(np.diff(bounds).max(initial=0))
        if 4 * longest > self._table.size:
            self._table = repeat_table(longest)


def targets_of(
    block: RowBlock,
    columns: Columns,
    classifies: bool,
    known_classes: int | None,
    faults: NDArray[np.uint8],
    keep_unknown: bool = False,
) -> tuple[Floats, Floats]:
    """The number that a model learns from each label, a column for each label where there are several, and the weights
    of the rows. Labels that cannot be used are marked in `faults`; with `keep_unknown` an unknown class is NaN instead."""
    found = []
    for codes, spec in zip(block.labels.T, columns.specs, strict=True):
        finite = np.isfinite(codes)
        if classifies:
            codes, unknown, reason = spec.targets(codes, known_classes)
            if keep_unknown:
                codes = np.where(unknown, np.nan, codes)
            else:
                faults[finite & unknown] = reason
        else:
            faults[finite & (np.abs(codes) > LARGEST_LABEL)] = LABEL_TOO_LARGE
            faults[finite & (codes < spec.lowest)] = LABEL_TOO_LOW
        found.append(codes)
    targets = found[0] if len(found) == 1 else np.stack(found, axis=1) if found else _NO_TARGETS
    if not (found and classifies and columns.specs[0].weights):
        return targets, block.weights
    factors = columns.specs[0].factors(targets)
    return targets, block.weights * factors if block.weights.size else factors


def _of_width(block: RowBlock, values: NDArray[Any], width: int, faults: NDArray[np.uint8]) -> NDArray[Any]:
    """The values of dense rows, each of exactly so many; rows of other lengths get zeros, and are not used."""
    differ = np.diff(block.bounds) != width
    if not differ.any():
        return values[block.bounds[0] : block.bounds[-1]]
    faults[differ & (faults == 0)] = WIDTH_DIFFERS
    padded = np.zeros((block.num_rows, width), values.dtype)
    for r in np.flatnonzero(~differ):
        padded[r] = values[block.bounds[r] : block.bounds[r + 1]]
    return padded.ravel()


def _with_indices(rows: int, width: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Dense rows among sparse ones."""
    return np.arange(rows + 1, dtype=np.int64) * width, np.tile(np.arange(width, dtype=np.int32), rows)


def _unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    return indices.view(np.uint32 if indices.itemsize == 4 else np.uint64)
