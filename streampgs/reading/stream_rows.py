"""Rows of a stream on their way: encoded and checked, numbered from the stream's first row, and as parts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.errors import DataError
from streampgs.kernels.reservoir_loop import copy_rows
from streampgs.reading.placing import Found, RowPlacer, RowRules
from streampgs.reading.window import RowShape, Window
from streampgs.table.catalog import Shard
from streampgs.table.layout import SPARSE, RowArrays

Ints = NDArray[np.int64]
_MOST_PIECE_ROWS = 1 << 12
_PIECE_BYTES = 1 << 23
_FILE_BATCH_BYTES = 1 << 23
_FILE_BATCH_ROWS = 1 << 16
_NO_INTS = np.empty(0, np.int64)


@dataclass
class StreamRows:
    """Good rows, in the order of the stream."""

    stop: int
    """The number of the first row behind them."""
    numbers: Ints
    starts: Ints
    stops: Ints
    labels: NDArray[np.float64]
    """A column for each, and one for the offset where rows have one."""
    weights: NDArray[np.float64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    bad_numbers: Ints
    """Of rows that were left out."""
    bad_reasons: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, first: int, stop: int) -> StreamRows:
        """Some of them, without those left out."""
        cut = slice(first, stop)
        return replace(
            self, numbers=self.numbers[cut], starts=self.starts[cut], stops=self.stops[cut], labels=self.labels[cut],
            weights=self.weights[cut], bad_numbers=_NO_INTS, bad_reasons=_NO_INTS,
        )  # fmt: skip

    def copied(self, shape: RowShape) -> StreamRows:
        """In memory of their own, one behind the other."""
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


def empty_rows(shape: RowShape, stop: int) -> StreamRows:
    return StreamRows(
        stop, _NO_INTS, _NO_INTS, _NO_INTS, *shape.cell_arrays(0), *shape.entry_arrays(0), _NO_INTS, _NO_INTS
    )


@dataclass(frozen=True)
class _Place:
    """Where rows come from: the stream, from its row `first` on."""

    shard: Shard
    first: int

    def name_of(self, row: int) -> str:
        return f"row {self.first + row} of the stream"


class StreamEncoder:
    """Record batches to rows; these are there until the next batch is encoded."""

    def __init__(self, shard: Shard, rules: RowRules) -> None:
        """`shard`: it stands for the stream, and has its layout."""
        layout = shard.layout
        self.shape = rules.shape(layout.kind == SPARSE)
        self._shard = shard
        self.rules = rules
        width = None if self.shape.sparse else layout.width or rules.features or 0
        self._placer = RowPlacer(rules, width)
        self._window = Window()
        encoding = rules.columns.encoding
        self._encoder = Encoder(encoding, reusing=True) if isinstance(encoding, Encoding) else None
        bytes_per_row = encoding.work_bytes_per_row if isinstance(encoding, Encoding) else 1.0
        self.piece_rows = max(1, int(min(_MOST_PIECE_ROWS, _PIECE_BYTES / bytes_per_row)))

    @property
    def width(self) -> int | None:
        """Entries of each row; None: rows are sparse."""
        return self._placer.width_of(self._shard)

    def warm_up(self) -> None:
        self._placer.warm_up()

    def rows(self, batch: pa.RecordBatch, first: int) -> StreamRows:
        window, count = self._window, batch.num_rows
        arrays = self._arrays(batch, first)
        lengths = np.diff(arrays.offsets)
        window.make_room(count, int(lengths.sum()), self.shape)
        slots = np.arange(count)
        window.lay_out_next(lengths, slots)
        found = Found()
        self._placer.place(arrays, None, slots, window, _Place(self._shard, first), found)
        bad, reasons = _NO_INTS, _NO_INTS
        if found.dropped:
            bad = np.concatenate(found.dropped)
            reasons = np.concatenate(found.reasons).astype(np.int64)
            window.drop(bad)
        labels = window.labels.reshape(window.rows, self.shape.labels)
        cells = np.column_stack([labels, window.offsets]) if self.shape.offset else labels
        return StreamRows(
            first + count, first + np.delete(slots, bad), window.starts, window.stops,
            cells, window.weights, window.indices, window.values,
            first + bad, reasons,
        )  # fmt: skip

    def _arrays(self, batch: pa.RecordBatch, first: int) -> RowArrays:
        columns = self.rules.columns
        try:
            batch = batch.select(list(self._shard.layout.columns))
            batch.validate(full=True)
            if self._encoder is not None:
                read = dict(zip(batch.schema.names, batch.columns, strict=True))
                batch = self._encoder.encode(read, batch.num_rows, columns.labelled, columns.weight, columns.offset)
        except pa.ArrowException as fault:
            raise DataError(
                f"rows {first:,} to {first + batch.num_rows - 1:,} of the stream are damaged: {fault}",
                "mend the producer",
            ) from fault
        read = dict(zip(batch.schema.names, batch.columns, strict=True))
        return self._placer.arrays(read, self._shard)


# Rows in a file.


def file_schema(shape: RowShape) -> pa.Schema:
    required = {
        "part": pa.uint8(),
        "number": pa.int64(),
        "labels": pa.list_(pa.float64(), shape.cells),
        **({"weight": pa.float64()} if shape.weighted else {}),
        **({"indices": pa.list_(pa.uint32())} if shape.sparse else {}),
        "values": pa.list_(pa.float32()),
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in required.items()])


def file_batches(rows: StreamRows, part: int, shape: RowShape) -> Iterator[pa.RecordBatch]:
    """A few megabytes at a time."""
    ends = np.cumsum((rows.stops - rows.starts) * shape.entry_bytes)
    first = 0
    while first < len(rows):
        reached = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, reached + _FILE_BATCH_BYTES, side="right"))
        stop = min(max(stop, first + 1), first + _FILE_BATCH_ROWS)
        yield _file_batch(rows.rows(first, stop).copied(shape), part, shape)
        first = stop


def _file_batch(rows: StreamRows, part: int, shape: RowShape) -> pa.RecordBatch:
    offsets = pa.array(np.concatenate([[0], rows.stops]).astype(np.int32))
    arrays = [
        pa.array(np.full(len(rows), part, np.uint8)),
        pa.array(rows.numbers),
        pa.FixedSizeListArray.from_arrays(pa.array(rows.labels.ravel()), shape.cells),
        *([pa.array(rows.weights)] if shape.weighted else []),
        *([pa.ListArray.from_arrays(offsets, pa.array(rows.indices))] if shape.sparse else []),
        pa.ListArray.from_arrays(offsets, pa.array(rows.values)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=file_schema(shape))


def rows_of_file(batch: pa.RecordBatch, shape: RowShape) -> tuple[int, StreamRows]:
    """The part that a batch belongs to, and its rows; in arrays that can be written to, for which loops are compiled."""
    values = batch.column("values")
    offsets = values.offsets.to_numpy().astype(np.int64)
    numbers = np.array(batch.column("number"))
    return batch.column("part")[0].as_py(), StreamRows(
        int(numbers[-1]) + 1,
        numbers,
        offsets[:-1],
        offsets[1:],
        np.array(batch.column("labels").values).reshape(len(numbers), shape.cells),
        np.array(batch.column("weight")) if shape.weighted else np.empty(0),
        np.array(batch.column("indices").values) if shape.sparse else np.empty(0, np.uint32),
        np.array(values.values),
        _NO_INTS,
        _NO_INTS,
    )
