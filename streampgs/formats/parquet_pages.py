"""What decoding a row group takes: a page and a dictionary of each column are in memory, and the rows of a slice.

A dictionary of a few kilobytes on disk may hold a string of a gigabyte, and many rows may refer to it. So the headers of
pages are read before pyarrow reads the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

SLICE_BYTES = 1 << 24
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4_raw"}
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_STRINGS = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_SMALL_PAGES = 1 << 22  # of a column chunk, all together
_SMALL_DICTIONARY, _OPENED_DICTIONARY = 1 << 21, 1 << 26
_MOST_HEADERS = 1 << 9
_HEADER_BYTES = 1 << 12
_LONG_VALUE = 1 << 12  # such strings are read as a dictionary, so that each is in memory once
_COPIES_OF_PAGE, _COPIES_OF_DICTIONARY, _COPIES_OF_ROW = 2, 4, 5  # in pyarrow and while rows are encoded, as measured

# Thrift's compact protocol, and fields of PageHeader in parquet.thrift.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_KIND, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_DICTIONARY_PAGE = 2

Read = Callable[[int, int], bytes]
"""So many bytes from an offset."""


@dataclass(frozen=True)
class _Page:
    kind: int
    header: int
    compressed: int
    uncompressed: int


@dataclass(frozen=True)
class ChunkWork:
    """Of one column in a row group."""

    path: str
    page: int
    """Bytes of the largest page."""
    dictionary: int
    longest: int
    """The longest string in the dictionary."""
    row_bytes: float
    """On average, as they are stored."""

    @property
    def column(self) -> str:
        """Its name as options have it."""
        return self.path.split(".list.")[0].split(".key_value.")[0]

    @property
    def held(self) -> int:
        """In memory at a time, if it is more than usual."""
        page = self.page if self.page > _SMALL_PAGES else 0
        dictionary = self.dictionary if self.dictionary > _SMALL_DICTIONARY else 0
        row = self.row_bytes if self.row_bytes > SLICE_BYTES else 0.0
        value = self.longest if self.longest > SLICE_BYTES else 0
        return int(_COPIES_OF_PAGE * page + _COPIES_OF_DICTIONARY * dictionary + _COPIES_OF_ROW * max(row, value))


@dataclass(frozen=True)
class GroupWork:
    chunks: tuple[ChunkWork, ...]
    rows: int
    """The rows of a slice."""
    coded: frozenset[str]
    """Columns to be read as dictionaries, because of their long values."""

    @property
    def total(self) -> int:
        """Memory for pages, dictionaries and values that are larger than usual."""
        return sum(chunk.held for chunk in self.chunks)

    @property
    def largest(self) -> ChunkWork:
        return max(self.chunks, key=lambda chunk: chunk.held)


def group_work(
    read: Read | None, group: Any, leaves: Sequence[int], slice_rows: int, can_be_coded: Callable[[Any], bool]
) -> GroupWork:
    """`group`: pyarrow's metadata of a row group; `leaves`: the numbers of its columns; `read`: None if the headers of
    pages are too far away."""
    rows = max(1, group.num_rows)
    chunks, coded, slice_rows = [], set(), min(rows, slice_rows)
    for number in leaves:
        chunk = group.column(number)
        work = _chunk_work(read, chunk, rows, slice_rows)
        chunks.append(work)
        if work.longest > _LONG_VALUE and can_be_coded(chunk):
            coded.add(work.path)
        elif work.longest:
            slice_rows = min(slice_rows, max(1, SLICE_BYTES // work.longest))
    total = sum(chunk.row_bytes for chunk in chunks)
    return GroupWork(tuple(chunks), max(1, min(slice_rows, int(SLICE_BYTES / max(total, 1.0)))), frozenset(coded))


def _chunk_work(read: Read | None, chunk: Any, rows: int, slice_rows: int) -> ChunkWork:
    size, values, is_text = chunk.total_uncompressed_size, max(0, chunk.num_values), chunk.physical_type in _STRINGS
    width = _WIDTHS.get(chunk.physical_type, 0)  # the decoder refuses an unknown type
    stored = size / rows if is_text else max(size, values * width) / rows
    expands = is_text and chunk.has_dictionary_page and size * min(values, slice_rows) > SLICE_BYTES
    if read is None or (size <= _SMALL_PAGES and not expands):
        return ChunkWork(chunk.path_in_schema, min(size, _SMALL_PAGES), 0, 0, stored)
    start, dictionary, longest = chunk.data_page_offset, 0, 0
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    stop = start + chunk.total_compressed_size
    if expands:
        page = _page_at(read, start, stop)
        if page is not None and page.kind == _DICTIONARY_PAGE:
            dictionary = page.uncompressed
            longest = (
                _longest_value(read, chunk.compression, start, page) if dictionary <= _OPENED_DICTIONARY else dictionary
            )
    largest = _largest_page(read, start, stop, size) if size > _SMALL_PAGES else size
    return ChunkWork(chunk.path_in_schema, largest, dictionary, longest, stored)


def _largest_page(read: Read, start: int, stop: int, size: int) -> int:
    largest = 0
    for _ in range(_MOST_HEADERS):
        page = _page_at(read, start, stop)
        if page is None:  # its header is very long, or it is damaged, which the decoder finds
            return max(largest, min(size, _SMALL_PAGES))
        if page.kind != _DICTIONARY_PAGE:
            largest = max(largest, page.uncompressed)
        start += page.header + page.compressed
        if start >= stop:
            break
    return largest


def _longest_value(read: Read, compression: str, start: int, page: _Page) -> int:
    """In a page of a dictionary, each value of which follows its length."""
    data = read(page.compressed, start + page.header)
    if compression != "UNCOMPRESSED":
        if compression not in _CODECS:
            return page.uncompressed
        try:
            data = pa.Codec(_CODECS[compression]).decompress(data, page.uncompressed, asbytes=True)
        except (pa.ArrowException, OSError):  # the decoder raises its own error
            return 0
    longest = place = 0
    lengths = np.frombuffer(data, np.uint8)
    while place + 4 <= len(lengths):
        length = int.from_bytes(data[place : place + 4], "little")
        longest = max(longest, length)
        place += 4 + length
    return min(longest, len(data))


def _page_at(read: Read, start: int, stop: int) -> _Page | None:
    """None: its header cannot be understood, or is longer than usual."""
    try:
        data = read(min(_HEADER_BYTES, stop - start), start)
        return _parsed(data)
    except (IndexError, ValueError, OSError):
        return None


def _parsed(data: bytes) -> _Page:
    found = dict.fromkeys((_KIND, _UNCOMPRESSED, _COMPRESSED), -1)
    place = field = 0
    while data[place]:
        delta, kind = data[place] >> 4, data[place] & 0x0F
        place += 1
        if delta:
            field += delta
        else:
            field, place = _number(data, place)
        if field in found and kind == _I32:
            found[field], place = _number(data, place)
        else:
            place = _skipped(data, place, kind, 0)
    if min(found.values()) < 0:
        raise ValueError("not a page")
    return _Page(found[_KIND], place + 1, found[_COMPRESSED], found[_UNCOMPRESSED])


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number of too many bytes")


def _number(data: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _skipped(data: bytes, place: int, kind: int, depth: int) -> int:
    if depth > 8 or kind > _STRUCT or kind < _TRUE:
        raise ValueError("not a page")
    if kind in (_TRUE, _FALSE):
        return place
    if kind == _BYTE:
        return place + 1
    if kind in (_I16, _I32, _I64):
        return _varint(data, place)[1]
    if kind == _DOUBLE:
        return place + 8
    if kind == _BINARY:
        size, place = _varint(data, place)
        return place + size
    if kind == _STRUCT:
        while data[place]:
            delta, inner = data[place] >> 4, data[place] & 0x0F
            place = place + 1 if delta else _number(data, place + 1)[1]
            place = _skipped(data, place, inner, depth + 1)
        return place + 1
    raise ValueError("not a page")
