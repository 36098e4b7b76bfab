"""Slices of the columns of a record batch, read buffer by buffer: only the bytes of the requested rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.formats.arrow_metadata import BatchMetadata
from streampgs.formats.format import Bytes, Damaged

ReadBody = Callable[[int, int], Bytes]
"""(offset in the body, bytes) → the bytes."""


@dataclass(frozen=True)
class ColumnPlace:
    """The place of a column in the depth-first lists of nodes and buffers."""

    type: pa.DataType
    node: int
    buffer: int
    children: tuple[ColumnPlace, ...]
    own_buffers: int

    def all_buffers(self) -> Iterator[int]:
        """Numbers of the column's buffers, with those of its children."""
        yield from range(self.buffer, self.buffer + self.own_buffers)
        for child in self.children:
            yield from child.all_buffers()


def column_places(schema: pa.Schema, names: list[str]) -> dict[str, ColumnPlace]:
    """The places of the named columns, for batches without view data (see `without_view_data`)."""
    places: dict[str, ColumnPlace] = {}
    wanted = set(names)
    node = buffer = 0
    for field in schema:
        place, node, buffer = _place(field.type, node, buffer)
        if field.name in wanted:
            places[field.name] = place
    return places


def without_view_data(schema: pa.Schema, batch: BatchMetadata) -> BatchMetadata:
    """The batch with only the buffers that follow from its schema: a column of string views has any number of additional
    data buffers, which each batch counts separately."""
    if not batch.view_data:
        return batch
    views = list(_view_places(schema))
    if len(views) != len(batch.view_data):
        raise Damaged("counts of buffers that do not match its columns")
    kept: list[tuple[int, int]] = []
    seen = 0
    for view, extra in zip(views, batch.view_data, strict=True):
        wanted = view.buffer + view.own_buffers - len(kept)
        kept += batch.buffers[seen : seen + wanted]
        seen += wanted + extra
    return replace(batch, buffers=(*kept, *batch.buffers[seen:]), view_data=())


def _view_places(schema: pa.Schema) -> Iterator[ColumnPlace]:
    node = buffer = 0
    for field in schema:
        column, node, buffer = _place(field.type, node, buffer)
        waiting = [column]
        while waiting:
            place = waiting.pop()
            if pa.types.is_string_view(place.type) or pa.types.is_binary_view(place.type):
                yield place
            waiting += reversed(place.children)


def check_places(places: dict[str, ColumnPlace], batch: BatchMetadata) -> None:
    """Check that the batch has the bytes for its number of rows, so that no memory is requested for a damaged number."""
    for place in places.values():
        _check_place(place, batch, batch.rows)


def _check_place(place: ColumnPlace, batch: BatchMetadata, rows: int) -> None:
    kind = place.type
    if place.node >= len(batch.node_lengths) or place.buffer + place.own_buffers > len(batch.buffers):
        raise Damaged("a column without its buffers")
    length = batch.node_lengths[place.node]
    if length < rows:
        raise Damaged("a column shorter than its batch")
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    for child in place.children:
        _check_place(child, batch, rows * width)
    if pa.types.is_primitive(kind) and not batch.compressed:
        _, size = batch.buffers[place.buffer + 1]
        if length * kind.bit_width > 8 * size:
            raise Damaged("a buffer shorter than its column")


def _place(kind: pa.DataType, node: int, buffer: int) -> tuple[ColumnPlace, int, int]:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind) and kind.list_size < 0:
        raise Damaged("a list of negative length")
    own_node, own_buffer, own_buffers = node, buffer, _own_buffers(kind)
    node += 1
    buffer += own_buffers
    children = []
    for i in range(0 if pa.types.is_dictionary(kind) else kind.num_fields):
        child, node, buffer = _place(kind.field(i).type, node, buffer)
        children.append(child)
    return ColumnPlace(kind, own_node, own_buffer, tuple(children), own_buffers), node, buffer


def _own_buffers(kind: pa.DataType) -> int:
    """Buffers of a type without its children, from the table of buffer layouts of the columnar format."""
    types = pa.types
    if types.is_null(kind) or types.is_run_end_encoded(kind):
        return 0
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        return 1
    if types.is_union(kind):
        return 1 if kind.mode == "sparse" else 2
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return 3
    return 3 if _is_bytes(kind) else 2


def _is_list(kind: pa.DataType) -> bool:
    """Also true for maps, which are lists of pairs."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _is_wide_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) or _is_wide_bytes(kind)


def _offset_type(kind: pa.DataType) -> np.dtype[Any]:
    return np.dtype(np.int64 if pa.types.is_large_list(kind) or _is_wide_bytes(kind) else np.int32)


def _fixed_width(kind: pa.DataType) -> int:
    """Bytes of a value; 0: not fixed."""
    types = pa.types
    if types.is_dictionary(kind):
        return _fixed_width(kind.index_type)
    fixed = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return 0 if not fixed or types.is_boolean(kind) else kind.bit_width // 8


def can_be_sliced(place: ColumnPlace) -> bool:
    """Whether `read_column` can read some of a column's rows."""
    kind = place.type
    known = _fixed_width(kind) or _is_bytes(kind) or _is_list(kind) or pa.types.is_boolean(kind)
    if not (known or pa.types.is_fixed_size_list(kind) or pa.types.is_struct(kind)):
        return False
    # Only dictionaries of top-level columns are supported.
    return all(can_be_sliced(child) and not pa.types.is_dictionary(child.type) for child in place.children)


def list_offsets(place: ColumnPlace, batch: BatchMetadata, start: int, stop: int, read: ReadBody) -> NDArray[np.int64]:
    """The stop - start + 1 offsets of a list column's rows [start, stop), checked to be in order and in range."""
    return _offsets(place, batch, start, stop, batch.node_lengths[place.node + 1], read)


def _offsets(
    place: ColumnPlace, batch: BatchMetadata, start: int, stop: int, end: int, read: ReadBody
) -> NDArray[np.int64]:
    """Offsets of lists or strings into `end` entries or bytes."""
    dtype = _offset_type(place.type)
    offset, size = batch.buffers[place.buffer + 1]
    if start == stop:
        return np.zeros(1, np.int64)
    if (stop + 1) * dtype.itemsize > size:
        raise Damaged("list offsets that are shorter than the column")
    raw = read(offset + start * dtype.itemsize, (stop + 1 - start) * dtype.itemsize)
    offsets = raw.view(dtype).astype(np.int64)
    if offsets[0] < 0 or offsets[-1] > end or (np.diff(offsets) < 0).any():
        raise Damaged("list offsets that are out of order or out of range")
    return offsets


def read_column(place: ColumnPlace, batch: BatchMetadata, start: int, stop: int, read: ReadBody) -> pa.Array:
    """Rows [start, stop) of a column; of a dictionary column, the indices."""
    if stop > batch.node_lengths[place.node]:
        raise Damaged("a column shorter than its batch")
    # Bits can only be read in whole bytes, so the rows begin at the previous multiple of 8.
    has_nulls = batch.node_nulls[place.node] > 0 and batch.buffers[place.buffer][1] > 0
    kind = place.type
    begin = start - start % 8 if has_nulls or pa.types.is_boolean(kind) else start
    validity = None
    if has_nulls:
        validity = pa.py_buffer(_part(batch, place.buffer, begin // 8, -(-stop // 8), read))
    if _is_list(kind):
        offsets = list_offsets(place, batch, begin, stop, read)
        child = read_column(place.children[0], batch, int(offsets[0]), int(offsets[-1]), read)
        relative = (offsets - offsets[0]).astype(_offset_type(kind))
        buffers, children = [validity, pa.py_buffer(relative)], [child]
    elif _is_bytes(kind):
        offsets = _offsets(place, batch, begin, stop, batch.buffers[place.buffer + 2][1], read)
        relative = (offsets - offsets[0]).astype(_offset_type(kind))
        data = _part(batch, place.buffer + 2, int(offsets[0]), int(offsets[-1]), read)
        buffers, children = [validity, pa.py_buffer(relative), pa.py_buffer(data)], []
    elif pa.types.is_struct(kind):
        buffers, children = [validity], [read_column(child, batch, begin, stop, read) for child in place.children]
    elif pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        buffers = [validity]
        children = [read_column(place.children[0], batch, begin * width, stop * width, read)]
    elif pa.types.is_boolean(kind):
        bits = _part(batch, place.buffer + 1, begin // 8, -(-stop // 8), read)
        buffers, children = [validity, pa.py_buffer(bits)], []
    elif _fixed_width(kind):
        width = _fixed_width(kind)
        data = _part(batch, place.buffer + 1, begin * width, stop * width, read)
        buffers, children = [validity, pa.py_buffer(data)], []
    else:
        raise Damaged(f"a column of type {kind}, which cannot be sliced")
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    return pa.Array.from_buffers(kind, stop - start, buffers, offset=start - begin, children=children or None)


def _part(batch: BatchMetadata, number: int, first: int, stop: int, read: ReadBody) -> Bytes:
    """Bytes [first, stop) of a buffer."""
    offset, size = batch.buffers[number]
    if stop > size:
        raise Damaged("a buffer shorter than its column")
    return read(offset + first, stop - first)
