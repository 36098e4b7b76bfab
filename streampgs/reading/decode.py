"""Groups that must be decoded from their first row on, as slices of a given number of rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.base.errors import DataError, sized
from streampgs.encoding import types
from streampgs.encoding.encoder import Encoder
from streampgs.encoding.encoding import Encoding
from streampgs.encoding.kinds import kind_of
from streampgs.encoding.rows import (
    FEATURES,
    FEATURES_NULL,
    INDICES,
    LENGTHS_DIFFER,
    VALUES,
    Ints,
    RowBlock,
    bounds_of,
    checked_rows,
    entries_of,
    joined,
    width_of,
)
from streampgs.encoding.sizes import parts, row_bytes
from streampgs.expressions.expression import columns_by_name, selected
from streampgs.formats.allowance import allowance, memory_for_row
from streampgs.formats.format import OpenShard
from streampgs.formats.registry import open_shard
from streampgs.reading.placing import Origin
from streampgs.table.catalog import Shard
from streampgs.table.layout import Columns, is_needed
from streampgs.table.partitions import partition_columns

# Smaller batches cost more in calls than in decoding.
_BATCH_BYTES = 1 << 20
DECODER_NAME = "streampgs-decoder"
# With hundreds of columns there are many calls.
_ENCODED_BATCH_BYTES = 1 << 25
_LARGEST_SLICE, _SMALLEST_SLICE, _COLUMN_BYTES = 1 << 24, 1 << 21, 1 << 16
_LONG_ROW = 1 << 16
_READ_AGAIN_ROWS = 1 << 12
_MOST_ENCODED_ROWS = 1 << 14


@dataclass(frozen=True)
class Group:
    """A record batch or row group."""

    number: int
    """In the catalog."""
    shard: Shard
    in_file: int
    """Its number in the shard."""
    slice_rows: int
    columns: Columns

    @property
    def name(self) -> str:
        return f"shard '{self.shard.path}', {self.shard.group_name} {self.in_file}"

    def origin(self, first: int) -> Origin:
        """The origin of the rows from number `first` on."""

        def name_of(row: int) -> str:
            place = _place_in_file(self.shard, self.in_file, first + row, self.columns)
            in_file = sum((self.shard.file_rows or self.shard.group_rows)[: self.in_file]) + place
            return f"{self.name}, row {place} (row {in_file} of the file)"

        return Origin(self.shard.layout, name_of, lambda row, column: self.cell(first + row, column))

    def cell(self, row: int, column: str) -> Any:
        """The value of a column in a row, read again from the file."""
        for batch in raw_slices(self.shard, self.in_file, _READ_AGAIN_ROWS, self.columns):
            if row < batch.num_rows:
                return types.undictionaried(types.leaf(columns_of_batch(batch, self.shard), column))[row].as_py()
            row -= batch.num_rows
        return None

    @property
    def rows(self) -> int:
        return self.shard.group_rows[self.in_file]

    @property
    def entries(self) -> int:
        """According to the footer: at least as many as it has."""
        return self.shard.group_entries[self.in_file]

    def slices(self) -> Iterator[RowBlock]:
        """The rows, decoded, in slices of exactly `slice_rows` but for the last. A slice is valid until the next is asked
        for."""
        return _evened(self._encoded(self.slice_rows), self.slice_rows, self.slice_rows)

    def blocks(self) -> Iterator[RowBlock]:
        """The same rows, several slices at a time."""
        slice_bytes = self.slice_rows * (8 * self.entries + 24 * self.rows) // max(1, self.rows)
        block_bytes = _BATCH_BYTES if self.shard.layout.encoding is None else _ENCODED_BATCH_BYTES
        rows = self.slice_rows * max(1, block_bytes // max(1, slice_bytes))
        return _evened(self._encoded(rows), self.slice_rows, rows)

    def pieces(self) -> Iterator[RowBlock]:
        """The same rows. A slice of very long rows is cut into several pieces."""
        return _evened(self._encoded(self.slice_rows), self.slice_rows, self.slice_rows, _ENCODED_BATCH_BYTES)

    def _encoded(self, most_rows: int) -> Iterator[RowBlock]:
        """Blocks of bounded size. A block is valid until the next is asked for."""
        encoding = self.columns.encoding
        if isinstance(encoding, Encoding):
            return _encoded(self.shard, self.in_file, most_rows, self.slice_rows, self.columns, encoding)
        return _ready(self.shard, self.in_file, most_rows, self.columns)


def _ready(shard: Shard, group: int, rows: int, columns: Columns) -> Iterator[RowBlock]:
    """Decode rows that are lists of features."""
    first = 0
    for batch in raw_slices(shard, group, rows, columns):
        with _naming_rows(shard, group, first):
            yield rows_of_table(columns_by_name(batch), columns)
        first += batch.num_rows


@contextmanager
def _naming_rows(shard: Shard, group: int, first: int) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except pa.ArrowException as fault:
        raise DataError(
            f"shard '{shard.path}', {shard.group_name} {group}, rows from {first} on: {fault}",
            "restore it, or write it again and start a new run",
        ) from fault


def _as_catalogued(encoding: Encoding, shard: Shard) -> Encoding:
    """The encoding as of the shard's arrival, so that its rows never change."""
    then = encoding.as_of(shard.layout.encoding) if shard.layout.encoding is not None else None
    if then is None:
        raise DataError(f"shard '{shard.path}' was encoded differently", "start a new run")
    return then


def _encoded(
    shard: Shard, group: int, most_rows: int, slice_rows: int, columns: Columns, encoding: Encoding
) -> Iterator[RowBlock]:
    """A batch is encoded in parts if its rows are longer than in the sample."""
    encoding = _as_catalogued(encoding, shard)
    columns = replace(columns, encoding=encoding)
    at_once = max(1, int(min(_ENCODED_BATCH_BYTES / encoding.work_bytes_per_row, _MOST_ENCODED_ROWS)))
    if at_once >= slice_rows:
        at_once = at_once // slice_rows * slice_rows
    encoder, coded, work, first = Encoder(encoding, reusing=True), _categories(columns), encoding.work, 0
    for batch in _one_ahead(raw_slices(shard, group, at_once, columns)):
        for part, size in parts(batch, _ENCODED_BATCH_BYTES, coded, work):
            if size > _ENCODED_BATCH_BYTES:
                refuse_long_rows(shard, group, first, part, work)
            with _naming_rows(shard, group, first):
                yield _encoded_batch(encoder, part, shard, columns)
            first += part.num_rows


def refuse_long_rows(shard: Shard, group: int, first: int, batch: pa.RecordBatch, work: Mapping[str, float]) -> None:
    """Refuse a row that would take more memory while it is encoded than decoding may take. `first`: the number of the
    batch's first row in its group."""
    most = max(_ENCODED_BATCH_BYTES, allowance())
    for part, size in parts(batch, most, work=work):
        if size > most:
            bytes_of = dict(zip(part.schema.names, (int(row_bytes(column)[0]) for column in part.columns), strict=True))
            largest = max(bytes_of, key=lambda name: bytes_of[name] * work.get(name, 1.0))
            raise DataError(
                f"shard '{shard.path}', {shard.group_name} {group}, row {first}: column '{largest}' has "
                f"{sized(bytes_of[largest])}, whose features take about {sized(size)} while they are made",
                f"give at least `--memory {memory_for_row(size) // 10**6 + 1:,}MB`, write the row as several rows, or leave the "
                f"column out with `--ignore {largest}`",
            )
        first += part.num_rows


def _encoded_batch(encoder: Encoder, batch: pa.RecordBatch, shard: Shard, columns: Columns) -> RowBlock:
    read = columns_of_batch(batch, shard)
    return encoder.encode(read, batch.num_rows, columns.labelled, columns.weight, columns.offset)


def _one_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; one is decoded in another thread while the previous one is encoded."""
    with ThreadPoolExecutor(1, DECODER_NAME) as pool:
        following = pool.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = pool.submit(next, batches, None)
            yield batch


def columns_of_batch(batch: pa.RecordBatch, shard: Shard) -> dict[str, pa.Array]:
    """The columns of a batch, and those in the names of folders or in the table's log."""
    return columns_by_name(batch) | partition_columns(shard.layout.partitions, batch.num_rows)


def raw_slices(shard: Shard, group: int, slice_rows: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    """A group in slices of `slice_rows` rows, with the columns as the file has them and the labels that are expressions.
    The last slice is shorter, and so are slices of very long rows. Rows that do not fulfil the condition are left out."""
    if not columns.expressions:
        return _slices_of_file(shard, group, slice_rows, columns)
    return _selected_slices(shard, group, slice_rows, columns)


def _slices_of_file(shard: Shard, group: int, slice_rows: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    """All rows of the group."""
    rows, expected = 0, (shard.file_rows or shard.group_rows)[group]
    constants = {constant.name for constant in shard.layout.partitions}  # the file has no such columns
    coded = _categories(columns) - constants
    with opened(shard) as file:
        batches = file.decode(group, slice_rows, shard.layout.columns, coded)
        for batch in _gathered(batches, slice_rows, coded):
            rows += batch.num_rows
            if rows > expected:
                break
            yield batch
    if rows != expected:  # decoders may stop silently at a page that they do not understand
        many = "more" if rows > expected else f"{rows:,}"
        raise DataError(
            f"shard '{shard.path}', {shard.group_name} {group}: {many} rows; the footer says {expected:,}",
            "it is damaged or changed: restore it, or write it again and start a new run",
        )


def _selected_slices(shard: Shard, group: int, slice_rows: int, columns: Columns) -> Iterator[pa.RecordBatch]:
    rows, expected = 0, shard.group_rows[group]
    if not expected:  # statistics may have shown it
        return
    whole = _slices_of_file(shard, group, slice_rows, columns)
    for batch in _gathered((_selected(batch, shard, columns) for batch in whole), slice_rows, _categories(columns)):
        rows += batch.num_rows
        yield batch
    if shard.file_rows and rows != expected:
        raise DataError(
            f"shard '{shard.path}', {shard.group_name} {group}: {rows:,} rows fulfil --where; there were {expected:,}",
            "it has changed: restore it, or start a new run",
        )


def _selected(batch: pa.RecordBatch, shard: Shard, columns: Columns) -> pa.RecordBatch:
    try:
        return selected(batch, columns.where, columns.computed, lambda part: columns_of_batch(part, shard))[0]
    except DataError as error:
        raise DataError(f"shard '{shard.path}': {error.found}", error.remedy) from error


def _place_in_file(shard: Shard, group: int, row: int, columns: Columns) -> int:
    """The number in its group of the row that has this number among the selected ones."""
    if columns.where is None:
        return row
    names, first = set(columns.where.columns), 0
    read = tuple(name for name in shard.layout.columns if is_needed(name, names)) or shard.layout.columns[:1]
    alone = replace(shard, layout=replace(shard.layout, columns=read))
    for batch in _slices_of_file(alone, group, _MOST_ENCODED_ROWS, Columns(None)):
        places = pc.indices_nonzero(columns.where.selects(columns_of_batch(batch, shard), batch.num_rows))
        if row < len(places):
            return first + int(places[row].as_py())
        row -= len(places)
        first += batch.num_rows
    return first + row


def opened(shard: Shard) -> OpenShard:
    """A catalogued shard: its local copy, or where there is none the object in its store."""
    return open_shard(shard.path, shard.fingerprint)


def _categories(columns: Columns) -> frozenset[str]:
    """Columns to be read as dictionaries, unless their strings are so long that a dictionary would be large."""
    if not isinstance(columns.encoding, Encoding) or columns.encoding.bytes_per_row > _LONG_ROW:
        return frozenset()
    return frozenset(column.name for column in columns.encoding.all_columns if kind_of(column).reads_dictionaries)


def _gathered(batches: Iterator[pa.RecordBatch], slice_rows: int, coded: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut after every `slice_rows` of them, as decoders may cut a batch short; earlier where they have many
    bytes. More of a wide table, because each column costs a few calls."""
    waiting: list[pa.RecordBatch] = []
    count, size = 0, 0.0
    for batch in batches:
        most = min(_LARGEST_SLICE, max(_SMALLEST_SLICE, _COLUMN_BYTES * batch.num_columns))
        for part, part_bytes in parts(batch, most, coded):
            row_bytes = part_bytes / max(1, part.num_rows)
            if waiting and size + part_bytes > most:
                yield concatenated(waiting)
                waiting, count, size = [], 0, 0.0
            while part.num_rows:
                taken = part.slice(0, slice_rows - count)
                part = part.slice(taken.num_rows)
                waiting.append(taken)
                count, size = count + taken.num_rows, size + row_bytes * taken.num_rows
                if count == slice_rows:
                    yield concatenated(waiting)
                    waiting, count, size = [], 0, 0.0
    if waiting:
        yield concatenated(waiting)


def concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _evened(blocks: Iterator[RowBlock], unit: int, most_rows: int, most_bytes: float = math.inf) -> Iterator[RowBlock]:
    """The same rows, a multiple of `unit` rows at a time but for the last, and at most `most_rows`; fewer of rows that
    have more than `most_bytes`. The rest of a block is copied, because a block is valid until the next is asked for."""
    waiting: list[RowBlock] = []
    count = 0
    for block in blocks:
        while count + block.num_rows >= unit:
            rows = min(most_rows, (count + block.num_rows) // unit * unit)
            yield joined([*waiting, block.slice(0, rows - count)])
            block = block.slice(rows - count)
            waiting, count = [], 0
        if block.num_rows:
            waiting.append(block.lasting())
            count += block.num_rows
            if sum(one.nbytes for one in waiting) > most_bytes:
                yield joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield joined(waiting)


def rows_of_table(arrays: dict[str, pa.Array], columns: Columns) -> RowBlock:
    faults = np.zeros(len(next(iter(arrays.values()))), np.uint8)
    lists = arrays[INDICES] if INDICES in arrays else arrays[FEATURES]
    _mark_nulls(lists, faults)
    bounds, indices = bounds_of(lists), None
    if INDICES not in arrays:
        values: NDArray[np.generic] | None = entries_of(lists, whole=False)
    else:
        indices = entries_of(lists, whole=True)
        values = _aligned_values(arrays[VALUES], bounds, faults) if VALUES in arrays else None
    labels = [arrays[name] for name in columns.labels]
    weight, offset = (None if name is None else arrays[name] for name in (columns.weight, columns.offset))
    return checked_rows(faults, labels, weight, offset, bounds, indices, values, width_of(lists))


def _mark_nulls(lists: pa.Array, faults: NDArray[np.uint8]) -> None:
    if lists.null_count:
        faults[lists.is_null().to_numpy(zero_copy_only=False)] = FEATURES_NULL


def _aligned_values(lists: pa.Array, bounds: Ints, faults: NDArray[np.uint8]) -> NDArray[np.generic]:
    """Values in the places of their indices."""
    _mark_nulls(lists, faults)
    own_bounds, values = bounds_of(lists), entries_of(lists, whole=False)
    if np.array_equal(own_bounds, bounds):
        return values
    lengths = np.diff(bounds)
    differ = np.diff(own_bounds) != lengths
    faults[differ & (faults == 0)] = LENGTHS_DIFFER
    # Rows whose lengths differ get zeros, and are not used.
    source = np.repeat(own_bounds[:-1] - bounds[:-1], lengths) + np.arange(bounds[-1])
    source[np.repeat(differ, lengths)] = -1
    if not values.size:
        return np.zeros(int(bounds[-1]), values.dtype)
    return np.asarray(np.where(source >= 0, values[np.maximum(source, 0)], 0), values.dtype)
