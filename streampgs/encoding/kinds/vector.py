"""Sparse vectors, in any of Arrow's forms: each index is a feature. Maps from strings to numbers: each string is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.kinds.kind import (
    LARGEST_FEATURE,
    UNBOUNDED,
    Arrays,
    BagKind,
    Column,
    Entries,
    Kind,
    RowMarks,
    arrays_of,
    is_there,
    scaled,
    scaled_values,
)
from streampgs.encoding.kinds.list import List
from streampgs.encoding.rows import LENGTHS_DIFFER
from streampgs.kernels.encoder_loop import merged_bags
from streampgs.options.commands import EncodingOptions

_PAIR = ("indices", "values")
_Parts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_] | None]
"""Offsets, indices, values, and the rows with unequal numbers of indices and values."""


class Vector(Kind):
    name, plural = "vector", "vectors"
    section = UNBOUNDED
    takes = (types.VECTOR,)
    fault = LENGTHS_DIFFER
    usual_work = 6.0

    def combined(
        self, columns: list[Column], leaves: Mapping[str, pa.DataType], options: EncodingOptions
    ) -> list[Column]:
        """Two lists `indices` and `values` are one vector. So are `indices` alone, with ones as values."""
        lists = [column for column in columns if column.name in _PAIR and column.kind == List.name]
        names = tuple(sorted(column.name for column in lists))
        alone = names == _PAIR[:1] and "values" not in leaves and is_list_of_integers(leaves["indices"])
        if names != _PAIR and not alone:
            return columns
        return [c for c in columns if c not in lists] + [Column(names[-1], self.name, types.LIST, names)]

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        there = (batch for batch in sample if is_there(column, batch))
        return scaled(column, options, [_parts(column, batch)[2] for batch in there], sample, alone)

    def name_of(self, column: Column, place: int) -> str:
        return f"{column.name}[{place}]"

    def entries(self, column: Column, arrays: Arrays, first: int, marks: RowMarks) -> Entries:
        """`first`: the number of the feature with index 0."""
        offsets, indices, values, differ = _parts(column, arrays)
        if differ is not None:
            marks.faults[differ & (marks.faults == 0)] = LENGTHS_DIFFER
        # An invalid index stays invalid, so that it is found where the rows are checked.
        moved = np.where(indices < 0, -1, np.minimum(indices, np.int64(LARGEST_FEATURE) - first) + first)
        values32 = scaled_values(column, values, values, offsets, marks)
        return offsets, moved.astype(np.int32).view(np.uint32), values32


def is_list_of_integers(kind: pa.DataType) -> bool:
    kind = types.storage_of(kind)
    return types.is_list(kind) and bool(pa.types.is_integer(types.storage_of(kind.value_type)))


def _parts(column: Column, arrays: Arrays) -> _Parts:
    if column.parts:
        index_lists = types.leaf(arrays, column.parts[0])
        if len(column.parts) == 1:
            offsets, indices = types.lists_of(index_lists)
            return offsets, _indices(indices), np.ones(len(indices)), None
        return _two_lists(index_lists, types.leaf(arrays, column.parts[1]), None)
    array = types.leaf(arrays, column.name)
    if pa.types.is_struct(array.type):
        fields = {array.type.field(i).name: part for i, part in enumerate(array.flatten())}
        dense = None
        if "type" in fields:  # as Spark writes them
            kinds = fields["type"].fill_null(0).to_numpy(zero_copy_only=False)
            dense = (kinds == 1) & fields["indices"].is_null().to_numpy(zero_copy_only=False)
        return _two_lists(types.plain(fields["indices"]), types.plain(fields["values"]), dense)
    offsets, keys, values = types.pairs_of(array)
    return offsets, _indices(keys), types.with_nan(values), None


def _two_lists(index_lists: pa.Array, value_lists: pa.Array, dense: NDArray[np.bool_] | None) -> _Parts:
    offsets, index_child = types.lists_of(index_lists)
    value_offsets, value_child = types.lists_of(value_lists)
    indices, values = _indices(index_child), types.with_nan(value_child)
    if dense is not None and dense.any():  # a dense row has values only
        lengths = np.where(dense, np.diff(value_offsets), np.diff(offsets))
        spread = np.zeros(len(dense) + 1, np.int64)
        np.cumsum(lengths, out=spread[1:])
        counted = np.arange(spread[-1]) - np.repeat(spread[:-1], lengths)
        counted[~np.repeat(dense, lengths)] = indices
        offsets, indices = spread, counted
    if np.array_equal(offsets, value_offsets):
        return offsets, indices, values, None
    lengths, value_lengths = np.diff(offsets), np.diff(value_offsets)
    same = lengths == value_lengths
    kept = np.zeros(len(same) + 1, np.int64)
    np.cumsum(np.where(same, lengths, 0), out=kept[1:])
    return kept, indices[np.repeat(same, lengths)], values[np.repeat(same, value_lengths)], ~same


def _indices(array: pa.Array) -> NDArray[np.int64]:
    """Null becomes an invalid index."""
    with np.errstate(over="ignore"):
        indices = types.numbers_of(array).astype(np.int64)
    nulls = types.nulls_of(array)
    if nulls is not None:
        indices[nulls] = -1
    return indices


class Map(BagKind):
    name, plural = "map", "maps"
    takes = (types.MAP,)
    usual_work = 4.0

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        found = [types.pairs_of(array) for array in arrays_of(sample, column.name)]
        return scaled(column, options, [types.floats_of(weights) for _, _, weights in found], sample, alone)

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        offsets, keys, _ = types.pairs_of(array)
        yield Tokens.of(keys, column.name, offsets)

    def bag(self, book: Codebook, column: Column, arrays: Arrays, marks: RowMarks) -> Entries:
        offsets, keys, weights = types.pairs_of(types.leaf(arrays, column.name))
        codes = book.codes(Tokens.of(keys, column.name, offsets))
        signs = np.where(codes >> 31, np.float32(-1.0), np.float32(1.0))
        given, nulls = types.numbers_of(weights), types.nulls_of(weights)
        values = given if nulls is None else np.where(nulls, 0.0, given)
        values = scaled_values(column, values, given, offsets, marks) * signs
        merged: Entries = merged_bags(offsets, codes & np.uint32(2**31 - 1), values)
        return merged
