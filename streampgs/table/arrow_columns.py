"""Slices of the columns of a record batch, fetched buffer by buffer: only the bytes of the rows asked for are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.table.arrow_metadata import BatchMetadata, MetadataDamaged

Bytes = NDArray[np.uint8]
ReadBody = Callable[[int, int], Bytes]
"""(offset in the body, bytes) → the bytes."""


@dataclass(frozen=True)
class ColumnPlace:
    """Where a column stands in the depth-first lists of nodes and buffers."""

    type: pa.DataType
    node: int
    buffer: int
    children: tuple[ColumnPlace, ...]


def column_places(schema: pa.Schema, names: list[str]) -> dict[str, ColumnPlace]:
    """The places of the named columns. Columns behind the last named one may be of any type."""
    places: dict[str, ColumnPlace] = {}
    node = buffer = 0
    for field in schema:
        if len(places) == len(names):
            break
        place, node, buffer = _place(field.type, node, buffer)
        if field.name in names:
            places[field.name] = place
    return places


def _place(kind: pa.DataType, node: int, buffer: int) -> tuple[ColumnPlace, int, int]:
    own_node, own_buffer = node, buffer
    node += 1
    buffer += _own_buffers(kind)
    children = []
    for i in range(0 if pa.types.is_dictionary(kind) else kind.num_fields):
        child, node, buffer = _place(kind.field(i).type, node, buffer)
        children.append(child)
    return ColumnPlace(kind, own_node, own_buffer, tuple(children)), node, buffer


def _own_buffers(kind: pa.DataType) -> int:
    """Buffers of a type itself, its children's not counted, by the columnar format's table of buffer layouts."""
    types = pa.types
    if types.is_null(kind) or types.is_run_end_encoded(kind):
        return 0
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        return 1
    if types.is_union(kind):
        return 1 if kind.mode == "sparse" else 2
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return 3
    if (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    ):
        return 3
    if types.is_string_view(kind) or types.is_binary_view(kind):
        raise MetadataDamaged("a column of view type stands before the ones that are needed")
    return 2


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def list_offsets(
    place: ColumnPlace, batch: BatchMetadata, start: int, stop: int, read: ReadBody
) -> NDArray[np.int64]:
    """The stop - start + 1 offsets of a list column's rows [start, stop), checked to be in order and in range."""
    wide = pa.types.is_large_list(place.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    offset, size = batch.buffers[place.buffer + 1]
    if start == stop:
        return np.zeros(1, np.int64)
    if (stop + 1) * dtype.itemsize > size:
        raise MetadataDamaged("list offsets that are shorter than the column")
    raw = read(offset + start * dtype.itemsize, (stop + 1 - start) * dtype.itemsize)
    offsets = raw.view(dtype).astype(np.int64)
    if offsets[0] < 0 or offsets[-1] > batch.node_lengths[place.node + 1] or (np.diff(offsets) < 0).any():
        raise MetadataDamaged("list offsets that are out of order or out of range")
    return offsets


def read_column(place: ColumnPlace, batch: BatchMetadata, start: int, stop: int, read: ReadBody) -> pa.Array:
    """Rows [start, stop) of a column."""
    if stop > batch.node_lengths[place.node]:
        raise MetadataDamaged("a column shorter than its batch")
    # Bits can be fetched by whole bytes only, so a column with any begins at the last multiple of 8.
    has_nulls = batch.node_nulls[place.node] > 0 and batch.buffers[place.buffer][1] > 0
    kind = place.type
    begin = start - start % 8 if has_nulls or pa.types.is_boolean(kind) else start
    validity = None
    if has_nulls:
        validity = pa.py_buffer(_part(batch, place.buffer, begin // 8, -(-stop // 8), read))
    if _is_list(kind):
        offsets = list_offsets(place, batch, begin, stop, read)
        child = read_column(place.children[0], batch, int(offsets[0]), int(offsets[-1]), read)
        wide = pa.types.is_large_list(kind)
        relative = (offsets - offsets[0]).astype(np.int64 if wide else np.int32)
        buffers, children = [validity, pa.py_buffer(relative)], [child]
    elif pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        buffers = [validity]
        children = [read_column(place.children[0], batch, begin * width, stop * width, read)]
    elif pa.types.is_boolean(kind):
        bits = _part(batch, place.buffer + 1, begin // 8, -(-stop // 8), read)
        buffers, children = [validity, pa.py_buffer(bits)], []
    elif pa.types.is_primitive(kind):
        width = kind.bit_width // 8
        data = _part(batch, place.buffer + 1, begin * width, stop * width, read)
        buffers, children = [validity, pa.py_buffer(data)], []
    else:
        raise MetadataDamaged(f"a column of type {kind}, which has no rows of numbers")
    return pa.Array.from_buffers(kind, stop - start, buffers, offset=start - begin, children=children or None)


def _part(batch: BatchMetadata, number: int, first: int, stop: int, read: ReadBody) -> Bytes:
    """Bytes [first, stop) of a buffer."""
    offset, size = batch.buffers[number]
    if stop > size:
        raise MetadataDamaged("a buffer shorter than its column")
    return read(offset + first, stop - first)
