"""The metadata of Arrow IPC files and messages, read straight from their flatbuffers.

pyarrow gives a record batch only with its body: read whole from an ordinary file, or mapped. Mapped pages count as
resident memory without bound, and a file that shrinks under a mapping kills the process. Slices can be fetched by
positional reads once the places of a batch's buffers are known; they are in a few fields of a stable format
(https://arrow.apache.org/docs/format/Columnar.html). Every offset is bounds-checked by `struct`, so damaged metadata
raises Damaged and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from streampgs.formats.format import Damaged

_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH_HEADER = 3
_LITTLE_ENDIAN = 0
_MOST_ENTRIES = 1 << 28


@dataclass(frozen=True)
class FileBlock:
    """Where a file keeps a message: its metadata, followed by its body."""

    offset: int
    metadata_bytes: int
    body_bytes: int


@dataclass(frozen=True)
class BatchMetadata:
    rows: int
    node_lengths: tuple[int, ...]
    node_nulls: tuple[int, ...]
    buffers: tuple[tuple[int, int], ...]
    """(offset in the body, bytes) of each buffer."""
    compressed: bool
    body_bytes: int
    view_data: tuple[int, ...] = ()
    """Data buffers of each column of view type, which are among `buffers`."""


class _Flatbuffer:
    """A reader of the few flatbuffer shapes that Arrow's metadata uses."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def at(self, form: str, place: int) -> int:
        if place < 0:
            raise Damaged("a negative offset")
        return int(struct.unpack_from("<" + form, self.data, place)[0])

    def root(self) -> int:
        return self.at("I", 0)

    def field(self, table: int, number: int) -> int | None:
        """Where field `number` of a table is stored, or None if it is absent."""
        vtable = table - self.at("i", table)
        entry = 4 + 2 * number
        if entry >= self.at("H", vtable):
            return None
        offset = self.at("H", vtable + entry)
        return table + offset if offset else None

    def scalar(self, table: int, number: int, form: str) -> int:
        place = self.field(table, number)
        return 0 if place is None else self.at(form, place)

    def child(self, table: int, number: int) -> int | None:
        place = self.field(table, number)
        return None if place is None else place + self.at("I", place)

    def structs(self, table: int, number: int, form: str) -> Iterator[tuple[int, ...]]:
        start = self.child(table, number)
        if start is None:
            return iter(())
        count, size = self.at("I", start), struct.calcsize("<" + form)
        if count > _MOST_ENTRIES or start + 4 + count * size > len(self.data):
            raise Damaged("a vector that reaches past the end")
        return struct.iter_unpack("<" + form, self.data[start + 4 : start + 4 + count * size])


def read_footer(footer: bytes) -> list[FileBlock]:
    """The record batches that the footer of an IPC file lists."""
    try:
        buffer = _Flatbuffer(footer)
        schema = buffer.child(buffer.root(), 1)
        if schema is not None and buffer.scalar(schema, 0, "h") != _LITTLE_ENDIAN:
            raise Damaged("numbers in another byte order than this machine's")
        blocks = buffer.structs(buffer.root(), 3, "qi4xq")
        return [FileBlock(*block) for block in blocks]
    except struct.error as error:
        raise Damaged(str(error)) from error


def metadata_length(prefix: bytes) -> int:
    """Bytes from a message's start to its body, given by its first 8 bytes."""
    first, second = struct.unpack("<II", prefix[:8])
    return 8 + int(second) if first == _CONTINUATION else 4 + int(first)


def read_batch_metadata(message: bytes) -> BatchMetadata:
    """The metadata of an encapsulated record batch message; `message` holds at least all of the metadata."""
    try:
        start = 8 if struct.unpack_from("<I", message)[0] == _CONTINUATION else 4
        buffer = _Flatbuffer(message[start:])
        root = buffer.root()
        if buffer.scalar(root, 1, "B") != _RECORD_BATCH_HEADER:
            raise Damaged("the message is not a record batch")
        batch = buffer.child(root, 2)
        if batch is None:
            raise Damaged("the message has no header")
        nodes = list(buffer.structs(batch, 1, "qq"))
        buffers = tuple((offset, size) for offset, size in buffer.structs(batch, 2, "qq"))
        body_bytes = buffer.scalar(root, 3, "q")
        rows = buffer.scalar(batch, 0, "q")
        if rows < 0 or any(n < 0 or nulls < 0 for n, nulls in nodes):
            raise Damaged("a negative length")
        if any(offset < 0 or size < 0 or offset + size > body_bytes for offset, size in buffers):
            raise Damaged("a buffer outside the body")
        view_data = tuple(count for (count,) in buffer.structs(batch, 4, "q"))
        if any(count < 0 for count in view_data):
            raise Damaged("a negative count")
        return BatchMetadata(
            rows,
            tuple(length for length, _ in nodes),
            tuple(nulls for _, nulls in nodes),
            buffers,
            buffer.field(batch, 3) is not None,
            body_bytes,
            view_data,
        )
    except struct.error as error:
        raise Damaged(str(error)) from error
