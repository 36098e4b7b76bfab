"""Arrow IPC files: slices of uncompressed record batches are read in place, compressed batches are decoded whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from streampgs.encoding import types
from streampgs.formats.arrow_columns import (
    ColumnPlace,
    can_be_sliced,
    check_places,
    column_places,
    list_offsets,
    read_column,
    without_view_data,
)
from streampgs.formats.arrow_metadata import BatchMetadata, FileBlock, read_batch_metadata, read_footer
from streampgs.formats.format import (
    Bytes,
    Damaged,
    Fingerprint,
    FooterPlace,
    Ints,
    OpenShard,
    Seen,
    ShardFile,
    ShardFormat,
    Take,
    shared,
)

_WORTH_READING_WHOLE = 0.75
_MOST_ANNOUNCED = 256
_MAGIC = b"ARROW1"


@dataclass(frozen=True)
class ArrowFooter:
    schema: pa.Schema
    blocks: list[FileBlock]
    nbytes: int


class ArrowFormat(ShardFormat):
    name = "arrow"
    group_name = "record batch"
    suffixes = frozenset({".arrow", ".ipc", ".feather"})
    magic = _MAGIC
    decodes_whole_groups = True

    def read_footer(self, file: ShardFile, place: FooterPlace, seen: Seen) -> ArrowFooter:
        footer = file.read(file.size - place.start, place.start)
        seen(footer)
        blocks = read_footer(footer[: place.stop - place.start])
        # pyarrow reads the schema from the footer at the end of any bytes.
        schema = pa.ipc.open_file(pa.BufferReader(_MAGIC + b"\0\0" + footer)).schema
        return ArrowFooter(shared(schema), blocks, 2 * len(footer))

    def open(self, file: ShardFile, footer: ArrowFooter, fingerprint: Fingerprint) -> ArrowShard:
        return ArrowShard(file, footer, fingerprint, self)


class ArrowShard(OpenShard):
    def __init__(self, file: ShardFile, footer: ArrowFooter, fingerprint: Fingerprint, arrow: ArrowFormat) -> None:
        super().__init__(file, footer, fingerprint, arrow)
        self.blocks = footer.blocks
        self._dictionaries: dict[str, pa.Array] = {}
        self._known_places: dict[tuple[str, ...], dict[str, ColumnPlace]] = {}
        self._announced: dict[tuple[int, tuple[str, ...]], ArrowSlices] = {}

    @cached_property
    def _batches(self) -> list[BatchMetadata]:
        return self._metadata(range(len(self.blocks)), [])

    def group_rows(self, columns: Sequence[str]) -> tuple[int, ...]:
        places = self._places(columns)
        for number, batch in enumerate(self._batches):
            try:
                check_places(places, batch)
            except Damaged as error:
                raise self.damaged(error, number) from error
        return tuple(batch.rows for batch in self._batches)

    def group_values(self, column: str) -> tuple[int, ...]:
        self.group_rows([column])
        node = self._places([column])[column].node + 1
        return tuple(batch.node_lengths[node] for batch in self._batches)

    def must_decode(self) -> bool:
        return any(batch.compressed for batch in self._batches)

    def _places(self, columns: Sequence[str]) -> dict[str, ColumnPlace]:
        key = tuple(columns)
        if key not in self._known_places:
            try:
                places = column_places(self.schema, list(columns))
            except Damaged as error:
                raise self.damaged(error) from error
            self.check_columns(columns)
            self._known_places[key] = places
        return self._known_places[key]

    def _metadata(self, groups: Sequence[int], columns: Sequence[str]) -> list[BatchMetadata]:
        """The metadata of record batches, which must have all bytes of these columns."""
        places, number = self._places(columns), 0
        try:
            for number in groups:
                block = self.blocks[number]
                end = block.offset + block.metadata_bytes + block.body_bytes
                if block.metadata_bytes <= 0 or block.offset < 0 or end > self.file.size:
                    raise Damaged("a record batch outside the file")
            ranges = [(self.blocks[number].metadata_bytes, self.blocks[number].offset) for number in groups]
            found = []
            for number, message in zip(groups, self.file.read_all(ranges), strict=True):
                batch = without_view_data(self.schema, read_batch_metadata(message))
                check_places(places, batch)
                if batch.body_bytes > self.blocks[number].body_bytes:
                    raise Damaged("a body longer than its place in the file")
                found.append(batch)
            return found
        except Damaged as error:
            raise self.damaged(error, number) from error

    def slices(self, group: int, columns: Sequence[str]) -> ArrowSlices:
        """They are kept for a while: a record batch is announced, and read soon after."""
        key = group, tuple(columns)
        if key not in self._announced:
            if len(self._announced) >= _MOST_ANNOUNCED:
                self._announced.clear()
            block, (batch,) = self.blocks[group], self._metadata([group], columns)
            self._announced[key] = ArrowSlices(self._places(columns), batch, block.offset + block.metadata_bytes)
        return self._announced[key]

    def decode(
        self, group: int, slice_rows: int, columns: Sequence[str], categories: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        slices = self.slices(group, columns)
        if slices.can_be_read:
            for start in range(0, slices.batch.rows, slice_rows):
                yield self._slice(group, slices, start, min(start + slice_rows, slices.batch.rows))
            return
        batch = self._whole(group, columns)
        for start in range(0, batch.num_rows, slice_rows):
            yield batch.slice(start, slice_rows)

    def _slice(self, group: int, slices: ArrowSlices, start: int, stop: int) -> pa.RecordBatch:
        try:
            arrays = slices.columns(self.file, start, stop, lambda size: np.empty(size, np.uint8))
            for name, place in slices.places.items():
                if pa.types.is_dictionary(place.type):
                    arrays[name] = pa.DictionaryArray.from_arrays(arrays[name], self._dictionary(name))
            batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
            batch.validate(full=True)
        except (Damaged, pa.ArrowException) as error:
            raise self.damaged(error, group) from error
        return batch

    def _dictionary(self, column: str) -> pa.Array:
        """The values of a column that refers to them by number; they are in messages of their own."""
        if column not in self._dictionaries:
            smallest = min(range(len(self.blocks)), key=lambda group: self.blocks[group].body_bytes)
            self._dictionaries[column] = types.plain(self._whole(smallest, [column]).column(column)).dictionary
        return self._dictionaries[column]

    def _whole(self, group: int, columns: Sequence[str]) -> pa.RecordBatch:
        try:
            with self.file.native() as file:
                fields = [self.schema.get_field_index(name) for name in columns]
                options = pa.ipc.IpcReadOptions(included_fields=fields)
                batch = pa.ipc.open_file(file, options=options).get_batch(group)
                batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(error, group) from error
        return batch


@dataclass
class ArrowSlices:
    """A record batch of an uncompressed file."""

    places: dict[str, ColumnPlace]
    batch: BatchMetadata
    body: int
    """Where the body begins in the file."""

    @property
    def can_be_read(self) -> bool:
        return not self.batch.compressed and all(can_be_sliced(place) for place in self.places.values())

    def _reader(self, file: ShardFile, take: Take) -> Callable[[int, int], Bytes]:
        def read(offset: int, size: int) -> Bytes:
            target = take(size)
            file.read_into(target, self.body + offset)
            return target

        return read

    @cached_property
    def _span(self) -> tuple[int, int, int]:
        """Where in the body the needed buffers begin and end, and their bytes in all."""
        parts = [self.batch.buffers[number] for place in self.places.values() for number in place.all_buffers()]
        parts = [part for part in parts if part[1]]
        if not parts:
            return 0, 0, 0
        return min(p[0] for p in parts), max(p[0] + p[1] for p in parts), sum(p[1] for p in parts)

    def _is_whole(self, start: int, stop: int) -> bool:
        """Whether all rows are wanted, and the needed buffers are most of the bytes between the first and the last."""
        first, last, needed = self._span
        return stop - start == self.batch.rows and needed >= _WORTH_READING_WHOLE * (last - first)

    def announce(self, file: ShardFile, start: int, stop: int) -> None:
        """An estimate that needs no reading."""
        if self._is_whole(start, stop):
            begin, end, _ = self._span
            file.announce(self.body + begin, end - begin)
            return
        rows = max(1, self.batch.rows)
        for place in self.places.values():
            for buffer in place.all_buffers():
                offset, size = self.batch.buffers[buffer]
                first, last = size * start // rows, -(-size * stop // rows)
                if last > first:
                    file.announce(self.body + offset + first, last - first)

    def lengths(self, file: ShardFile, start: int, stop: int, lists: str, take: Take) -> Ints:
        return np.diff(list_offsets(self.places[lists], self.batch, start, stop, self._reader(file, take)))

    def columns(self, file: ShardFile, start: int, stop: int, take: Take) -> dict[str, pa.Array]:
        """Columns with a dictionary come as places in it."""
        read = self._reader(file, take)
        if self._is_whole(start, stop):
            begin, end, _ = self._span
            whole = read(begin, end - begin)

            def read(offset: int, size: int) -> Bytes:
                return whole[offset - begin : offset - begin + size]

        return {name: read_column(place, self.batch, start, stop, read) for name, place in self.places.items()}
