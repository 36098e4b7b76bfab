"""How many bytes the rows of a batch take, and batches in parts of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types

Ints = NDArray[np.int64]
_PLACE_BYTES = 4  # of a string or list, or of a value in a dictionary
_VIEW_WORDS = 4


def row_bytes(array: pa.Array) -> Ints:
    """Of each row, with the values of dictionaries and of runs written out."""
    if isinstance(array, pa.ChunkedArray):
        return np.concatenate([np.zeros(0, np.int64), *map(row_bytes, array.chunks)])
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind, is_ = array.type, pa.types
    if is_.is_dictionary(kind):
        return _taken(row_bytes(array.dictionary), array.indices)
    if is_.is_run_end_encoded(kind):
        numbers = pa.array(np.arange(len(array.values), dtype=np.int64))
        places = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(array.run_ends, numbers))
        return _taken(row_bytes(array.values), places[array.offset : array.offset + len(array)])
    if is_.is_struct(kind):
        fields = [np.zeros(len(array), np.int64), *map(row_bytes, array.flatten())]
        return np.asarray(np.sum(fields, axis=0), np.int64)
    if is_.is_map(kind) or types.is_list(kind):
        return _of_lists(array)
    if is_.is_string_view(kind) or is_.is_binary_view(kind):
        return _of_views(array)
    if types.class_of(kind) in (types.STRING, types.BINARY):
        lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, np.int64) + _PLACE_BYTES
    return np.full(len(array), 0 if is_.is_null(kind) else max(1, kind.bit_width // 8), np.int64)


def _of_views(array: pa.Array) -> Ints:
    """A view begins with the length of its string. Many views may refer to the same bytes."""
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, _VIEW_WORDS) if len(array) else np.empty((0, 4))
    lengths = views[array.offset : array.offset + len(array), 0].astype(np.int64)
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0) if array.null_count else lengths


def _taken(sizes: Ints, places: pa.Array) -> Ints:
    """By the number of each row's value; null: only its place."""
    found = np.append(sizes, _PLACE_BYTES)
    return found[np.asarray(places.cast(pa.int64()).fill_null(len(sizes)).to_numpy(zero_copy_only=False), np.int64)]


def _of_lists(array: pa.Array) -> Ints:
    """Of any layout of lists. The lists of a view may overlap."""
    if pa.types.is_map(array.type):
        starts, lengths, values = _places_of_map(pa.concat_arrays([array]))
        return _sums(row_bytes(values), starts, lengths)
    lengths = np.asarray(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if not _has_sizes(types.storage_of(array.type.value_type)):
        return np.asarray(lengths * max(1, types.storage_of(array.type.value_type).bit_width // 8), np.int64)
    elif pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        starts, values = (array.offset + np.arange(len(array), dtype=np.int64)) * width, array.values
    else:
        is_view = pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type)
        offsets = np.asarray(array.offsets.to_numpy(), np.int64)
        starts, values = offsets if is_view else offsets[:-1], array.values
    return _sums(row_bytes(values), starts, lengths)


def _places_of_map(array: pa.Array) -> tuple[Ints, Ints, pa.Array]:
    offsets = np.asarray(array.offsets.to_numpy(), np.int64)
    lengths = np.diff(offsets) * array.is_valid().to_numpy(zero_copy_only=False)
    return offsets[:-1], lengths, pa.StructArray.from_arrays([array.keys, array.items], ["key", "item"])


def _sums(sizes: Ints, starts: Ints, lengths: Ints) -> Ints:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    starts = np.where(lengths > 0, starts, 0)
    found: Ints = ends[starts + lengths] - ends[starts] + _PLACE_BYTES
    return found


def _has_sizes(kind: pa.DataType) -> bool:
    """Whether values of this type have different sizes."""
    if _is_coded(kind):
        return True
    try:
        return int(kind.bit_width) <= 0
    except ValueError:
        return True


def _is_coded(kind: pa.DataType) -> bool:
    """Whether values may be stored once and used many times."""
    kind = types.storage_of(kind)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return True
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return True
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return True
    return any(_is_coded(kind.field(number).type) for number in range(kind.num_fields))


def parts(
    batch: pa.RecordBatch, most: int, coded: Collection[str] = (), factors: Mapping[str, float] | None = None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices of at most so many bytes, and their sizes; a row that is larger is alone. `coded`: columns whose dictionaries
    are used as they are; `factors`: the work for a byte of a column."""
    factors = factors or {}
    columns = [
        (column, factors.get(name, 1.0), _is_coded(column.type) and not _stays(name, column, coded))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    if not any(written for _, _, written in columns):
        size = sum(factor * _stored(column) for column, factor, _ in columns)
        if size <= most or batch.num_rows <= 1:
            yield batch, size
            return
    sizes = np.zeros(batch.num_rows)
    for (column, factor, _), name in zip(columns, batch.schema.names, strict=True):
        sizes += factor * (_PLACE_BYTES if _stays(name, column, coded) else row_bytes(column))
    ends, start, done = np.cumsum(sizes), 0, 0.0
    while start < batch.num_rows:
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield batch.slice(start, stop - start), float(ends[stop - 1]) - done
        start, done = stop, float(ends[stop - 1])


def _stays(name: str, column: pa.Array, coded: Collection[str]) -> bool:
    return name in coded and pa.types.is_dictionary(column.type)


def _stored(column: pa.Array) -> int:
    return int((column.indices if pa.types.is_dictionary(column.type) else column).nbytes)
