"""Rows of a stream: encoded, checked and numbered from the first row of the stream; and as arrays of a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.checks import require
from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.rows import NOT_SELECTED, RowBlock
from streampgs.expressions.expression import columns_by_name, selected
from streampgs.kernels.placing_loop import place_sparse, repeat_table
from streampgs.kernels.reservoir_loop import copy_rows
from streampgs.reading.bad_rows import REASONS
from streampgs.reading.placing import LARGEST_INDEX, Found, Origin, RowPlacer, RowRules
from streampgs.reading.table_rows import rows_of_table
from streampgs.reading.window import RowShape, Window
from streampgs.table.layout import SPARSE, Layout

Ints = NDArray[np.int64]
_MOST_BATCH_ROWS = 1 << 12
_BATCH_BYTES = 1 << 23
_NAMES = ("numbers", "lengths", "labels", "weights", "indices", "values", "bad_numbers", "bad_reasons")


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


@dataclass
class StreamRows:
    """Good rows, in the order of the stream."""

    starts: Ints
    stops: Ints
    labels: NDArray[np.float64]
    """A column for each, and one for the offset where rows have one."""
    weights: NDArray[np.float64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    numbers: Ints = field(default_factory=_no_ints)
    bad_numbers: Ints = field(default_factory=_no_ints)
    """Of rows that were left out."""
    bad_reasons: Ints = field(default_factory=_no_ints)
    stop: int = 0
    """The number of the first row behind them."""

    def __len__(self) -> int:
        return len(self.numbers)

    @staticmethod
    def with_memory_for(shape: RowShape, rows: int, entries: int) -> StreamRows:
        """Rows of undefined content. Memory is used when they are written to."""
        numbers, starts, stops = (np.empty(rows, np.int64) for _ in range(3))
        return StreamRows(starts, stops, *shape.cell_arrays(rows), *shape.entry_arrays(entries), numbers)

    def rows(self, first: int, stop: int) -> StreamRows:
        """A slice of them, without the list of rows that were left out."""
        cut = slice(first, stop)
        return replace(
            self, numbers=self.numbers[cut], starts=self.starts[cut], stops=self.stops[cut], labels=self.labels[cut],
            weights=self.weights[cut], bad_numbers=_no_ints(), bad_reasons=_no_ints(),
        )  # fmt: skip

    def copied(self, shape: RowShape) -> StreamRows:
        """A copy whose entries are in the order of the rows, without gaps."""
        lengths = self.stops - self.starts
        stops = np.cumsum(lengths)
        indices, values = shape.entry_arrays(int(lengths.sum()))
        copy_rows(
            np.arange(len(self)), self.starts, self.stops, self.indices, self.values, stops - lengths, indices, values
        )
        return replace(
            self, numbers=self.numbers.copy(), starts=stops - lengths, stops=stops, labels=self.labels.copy(),
            weights=self.weights.copy(), indices=indices, values=values,
        )  # fmt: skip


def _of_stream(row: int) -> str:
    return f"row {row} of the stream"


class StreamEncoder:
    """Turns record batches into rows; these are valid until the next batch is encoded."""

    def __init__(self, layout: Layout, rules: RowRules, name_of: Callable[[int], str] = _of_stream) -> None:
        """`name_of`: the name of a row in errors, from its number."""
        self._name_of = name_of
        self.shape = rules.shape(layout.kind == SPARSE)
        self._layout = layout
        self.rules = rules
        width = None if self.shape.sparse else layout.width or rules.features or 0
        self._placer = RowPlacer(rules, width)
        self._window = Window()
        self.clipped: Counter[str] = Counter()
        """How many values were clipped, by column, since the count was last taken."""
        self.examples: dict[str, tuple[str, float]] = {}
        encoding = rules.columns.encoding
        self._encoder = Encoder(encoding, reusing=True) if isinstance(encoding, Encoding) else None
        bytes_per_row = encoding.work_bytes_per_row if isinstance(encoding, Encoding) else 1.0
        self.batch_rows = max(1, int(min(_MOST_BATCH_ROWS, _BATCH_BYTES / bytes_per_row)))

    @property
    def width(self) -> int | None:
        """Entries of each row; None: rows are sparse."""
        return self._placer.width_of(self._layout)

    def warm_up(self) -> None:
        self._placer.warm_up()

    def check(self, rows: StreamRows) -> None:
        """Raise ValueError unless these rows, read from a checkpoint, could have come from the stream: compiled loops copy
        them without looking at bounds. Their entries are in the order of the rows, without gaps."""
        lengths = rows.stops - rows.starts
        if self.shape.sparse:
            self._check_entries(rows)
        else:
            require(bool((lengths == self.width).all()), f"rows of other lengths than {self.width}")
            require(bool(np.isfinite(rows.values).all()), "a feature that is not a finite number")
        require(bool(np.isfinite(rows.labels).all()), "a label that is not a finite number")
        if self.rules.classifies:
            count = self.rules.columns.class_count or 2
            known = np.arange(count) if count > 2 else [-1, 1]
            require(bool(np.isin(rows.labels[:, : self.shape.labels], known).all()), "a label of an unknown class")
        require(bool((np.isfinite(rows.weights) & (rows.weights >= 0.0)).all()), "a weight that is not valid")
        reasons = np.unique(rows.bad_reasons).tolist()
        require(set(reasons) <= set(REASONS), f"rows left out for the reasons {reasons!r:.100}")

    def _check_entries(self, rows: StreamRows) -> None:
        """With the loop that checks rows of the stream."""
        reasons, offsets = np.zeros(len(rows), np.uint8), np.append(rows.starts, rows.stops[-1:])
        places, longest = np.arange(len(rows)), int((rows.stops - rows.starts).max(initial=0))
        if len(rows):
            place_sparse(
                places, places, offsets, rows.indices, rows.values, rows.starts, np.empty_like(rows.indices),
                np.empty_like(rows.values), np.uint64(self.rules.features or LARGEST_INDEX + 1), reasons,
                repeat_table(longest), False,
            )  # fmt: skip
        bad = reasons[np.flatnonzero(reasons)]
        require(not bad.size, f"a row with {REASONS[int(bad[0])][1] if bad.size else None}")

    def rows(self, batch: pa.RecordBatch, first: int) -> StreamRows:
        """`first`: the number of the first row."""
        found = Found()
        window, numbers = self._filled(batch, first, found)
        self.clipped.update(found.clipped_values())
        self.examples = found.examples | self.examples
        bad = np.concatenate([_no_ints(), *found.dropped])
        left_out = np.delete(np.arange(first, first + batch.num_rows), numbers - first)
        reasons = np.concatenate([np.full(len(left_out), NOT_SELECTED), *found.reasons]).astype(np.int64)
        bad_numbers = np.concatenate([left_out, numbers[bad]])
        in_order = np.argsort(bad_numbers)
        if bad.size:
            window.drop(bad)
        labels = window.labels.reshape(window.rows, self.shape.labels)
        cells = np.column_stack([labels, window.offsets]) if self.shape.offset else labels
        return StreamRows(
            window.starts, window.stops, cells, window.weights, window.indices, window.values,
            np.delete(numbers, bad), bad_numbers[in_order], reasons[in_order], first + batch.num_rows,
        )  # fmt: skip

    def window(self, batch: pa.RecordBatch, first: int) -> Window:
        """The same rows, if a bad row is an error."""
        return self._filled(batch, first, Found())[0]

    def _filled(self, batch: pa.RecordBatch, first: int, found: Found) -> tuple[Window, Ints]:
        """The rows that fulfil the condition, and their numbers."""
        block, numbers = self._block(batch, first)
        window, count = self._window, len(numbers)
        lengths = np.diff(block.bounds) if self.width is None else np.full(count, self.width)
        window.allocate(count, int(lengths.sum()), self.shape)
        slots = np.arange(count)
        window.lay_out_next(lengths, slots)

        def cell(row: int, column: str) -> Any:
            array = types.leaf_if_there(columns_by_name(batch), column)
            return None if array is None else types.undictionaried(array)[int(numbers[row]) - first].as_py()

        origin = Origin(self._layout, lambda row: self._name_of(int(numbers[row])), cell)
        self._placer.place(block, None, slots, window, origin, found)
        return window, numbers

    def _block(self, batch: pa.RecordBatch, first: int) -> tuple[RowBlock, Ints]:
        columns = self.rules.columns
        try:
            batch = batch.select(list(self._layout.columns))
            batch.validate(full=True)
            batch, places = selected(batch, columns.where, columns.computed)
            numbers = first + places
            read = columns_by_name(batch)
            if self._encoder is None:
                return rows_of_table(read, columns), numbers
            encoded = self._encoder.encode(read, batch.num_rows, columns.labelled, columns.weight, columns.offset)
            return encoded, numbers
        except pa.ArrowException as fault:
            raise DataError(
                f"{self._name_of(first)}, or one of the {batch.num_rows:,} rows from there on, is damaged: {fault}",
                "write the rows again",
            ) from fault


# Rows in a checkpoint.


def rows_state(blocks: Sequence[StreamRows]) -> dict[str, list[NDArray[Any]]]:
    """Arrays of the rows of all blocks; the entries of a block must be in the order of its rows, without gaps."""
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _NAMES}
    for rows in blocks:
        first, stop = (int(rows.starts[0]), int(rows.stops[-1])) if len(rows) else (0, 0)
        sparse = slice(first, stop) if rows.indices.size else slice(0, 0)
        found: tuple[NDArray[Any], ...] = (
            rows.numbers, rows.stops - rows.starts, rows.labels, rows.weights, rows.indices[sparse],
            rows.values[first:stop], rows.bad_numbers, rows.bad_reasons,
        )  # fmt: skip
        for name, array in zip(_NAMES, found, strict=True):
            parts[name].append(array)
    return parts


def rows_of_state(arrays: Mapping[str, NDArray[Any]], shape: RowShape, stop: int) -> StreamRows:
    """The rows, whose arrays have the right types and sizes; `stop`: the number of the first row behind them."""
    lengths, left_out = arrays["lengths"], np.empty(len(arrays["bad_numbers"]), np.int64)
    rows, entries = len(lengths), len(arrays["values"])
    right = StreamRows.with_memory_for(shape, rows, entries)
    expected = {**vars(right), "lengths": right.starts, "bad_numbers": left_out, "bad_reasons": left_out}
    for name in _NAMES:
        array, like = arrays[name], expected[name]
        require(array.dtype == like.dtype and array.shape == like.shape, f"{name} of type {array.dtype}, {array.shape}")
    stops = np.cumsum(lengths)
    require(bool((lengths >= 0).all()) and bool((stops >= 0).all()), "rows of negative lengths")
    require(int(stops[-1] if rows else 0) == entries, f"{entries} entries of rows of other lengths")
    own = {name: array for name, array in arrays.items() if name != "lengths"}
    return StreamRows(starts=stops - lengths, stops=stops, stop=stop, **own)
