"""Rows of record batches in memory: encoded and checked, in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.rows import Ints, RowBlock
from streampgs.expressions.expression import columns_by_name, selected
from streampgs.kernels.rows import Rows
from streampgs.reading.decode import rows_of_table
from streampgs.reading.placing import Found, Origin, RowPlacer, RowRules
from streampgs.reading.window import WindowMemory
from streampgs.table.layout import SPARSE, Layout

_MOST_BATCH_ROWS = 1 << 12
_BATCH_BYTES = 1 << 23


class BatchEncoder:
    """Turns record batches into windows, each of which is valid until the next batch is encoded."""

    def __init__(self, layout: Layout, rules: RowRules, name_of: Callable[[int], str]) -> None:
        """`name_of`: the name of a row in errors, from its number."""
        self._name_of = name_of
        self.shape = rules.shape(layout.kind == SPARSE)
        self._layout = layout
        self.rules = rules
        width = None if self.shape.sparse else layout.width or rules.features or 0
        self._placer = RowPlacer(rules, width)
        self._memory = WindowMemory()
        encoding = rules.columns.encoding
        self._encoder = Encoder(encoding, reusing=True) if isinstance(encoding, Encoding) else None
        bytes_per_row = encoding.work_bytes_per_row if isinstance(encoding, Encoding) else 1.0
        self.batch_rows = max(1, int(min(_MOST_BATCH_ROWS, _BATCH_BYTES / bytes_per_row)))

    @property
    def width(self) -> int | None:
        """Entries of each row; None: rows are sparse."""
        return self._placer.width_of(self._layout)

    def window(self, batch: pa.RecordBatch, first: int) -> Rows:
        """The rows that fulfil the condition; a bad row is an error. `first`: the number of the first row."""
        block, numbers = self._block(batch, first)
        memory, count = self._memory, len(numbers)
        lengths = np.diff(block.bounds) if self.width is None else np.full(count, self.width)
        memory.allocate(count, int(lengths.sum()), self.shape)
        slots = np.arange(count)
        memory.lay_out_next(lengths, slots)

        def cell(row: int, column: str) -> Any:
            array = types.leaf_if_there(columns_by_name(batch), column)
            return None if array is None else types.undictionaried(array)[int(numbers[row]) - first].as_py()

        origin = Origin(self._layout, lambda row: self._name_of(int(numbers[row])), cell)
        self._placer.place(block, slots, memory.window, origin, Found())
        return memory.window

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
