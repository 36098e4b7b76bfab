"""How many bytes the rows of a batch take, and batches in parts of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types

Ints = NDArray[np.int64]
_PLACE_BYTES = 4  # of a string or list, or of a value in a dictionary
_VIEW_WORDS = 4
_WIDTHS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8, pa.float32(): 4, pa.float64(): 8}


def row_bytes(array: pa.Array) -> Ints:
    """The size of each row, with the values of dictionaries and of runs written out."""
    array = types.stored(array)
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
        offsets, values = types.lists_of(array)
        if is_.is_primitive(values.type):
            return np.asarray(np.diff(offsets) * max(1, values.type.bit_width // 8), np.int64)
        ends = np.concatenate([[0], np.cumsum(row_bytes(values))])
        return np.asarray(np.diff(ends[offsets]) + _PLACE_BYTES, np.int64)
    if is_.is_string_view(kind) or is_.is_binary_view(kind):  # a view begins with the length of its string
        views = np.frombuffer(array.buffers()[1], np.int32)[::_VIEW_WORDS] if len(array) else np.empty(0)
        lengths = views[array.offset : array.offset + len(array)].astype(np.int64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    if types.class_of(kind) in (types.STRING, types.BINARY):
        lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, np.int64) + _PLACE_BYTES
    return np.full(len(array), 0 if is_.is_null(kind) else max(1, kind.bit_width // 8), np.int64)


def _taken(sizes: Ints, places: pa.Array) -> Ints:
    """The sizes by the number of each row's value; a null has its place only."""
    found = np.append(sizes, _PLACE_BYTES)
    return found[np.asarray(places.cast(pa.int64()).fill_null(len(sizes)).to_numpy(zero_copy_only=False), np.int64)]


@cache
def _is_coded(kind: pa.DataType) -> bool:
    """Whether values may be stored once and used many times."""
    kind, is_ = types.storage_of(kind), pa.types
    views = (is_.is_list_view, is_.is_large_list_view, is_.is_string_view, is_.is_binary_view)
    if any(is_kind(kind) for is_kind in (is_.is_dictionary, is_.is_run_end_encoded, *views)):
        return True
    return any(_is_coded(kind.field(number).type) for number in range(kind.num_fields))


def _bytes_of(array: pa.Array) -> float:
    """Asking pyarrow takes far longer, which counts where there are thousands of columns."""
    width = _WIDTHS.get(array.type)
    return array.nbytes if width is None else width * len(array)


def parts(
    batch: pa.RecordBatch, most: int, coded: Collection[str] = (), work: Mapping[str, float] | None = None
) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Slices of at most so many bytes, and their sizes; a row that is larger is alone. `coded`: columns whose dictionaries
    are used as they are; `work`: the bytes that count for a byte of a column, if not 1."""
    columns = [
        (
            column.indices if name in coded and pa.types.is_dictionary(column.type) else column,
            (work or {}).get(name, 1.0),
        )
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    if not any(_is_coded(column.type) for column, _ in columns):
        size = sum(factor * _bytes_of(column) for column, factor in columns)
        if size <= most or batch.num_rows <= 1:
            yield batch, size
            return
    sizes = sum((factor * row_bytes(column) for column, factor in columns), np.zeros(batch.num_rows))
    for start, stop, size in runs(sizes, most):
        yield batch.slice(start, stop - start), size


def runs(sizes: NDArray[Any], most: int) -> Iterator[tuple[int, int, float]]:
    """Consecutive rows of at most so much in all, each run with its size; a row that is larger is alone."""
    ends, start, done = np.cumsum(sizes), 0, 0.0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield start, stop, float(ends[stop - 1]) - done
        start, done = stop, float(ends[stop - 1])
