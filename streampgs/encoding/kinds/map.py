"""Maps from strings to numbers: each string is a feature, with the number as its value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.kinds.kind import Arrays, BagKind, Column, Entries, RowMarks, arrays_of, scaled, scaled_values
from streampgs.kernels.encoder_loop import merged_bags
from streampgs.options.commands import EncodingOptions

_WORK = 4.0  # bytes of memory for a byte of a column


class Map(BagKind):
    name, plural = "map", "maps"
    takes = (types.MAP,)
    scales = True

    def learn(self, column: Column, options: EncodingOptions, sample: Sequence[Arrays], alone: bool) -> Column:
        found = [types.pairs_of(array) for array in arrays_of(sample, column.name)]
        return scaled(column, options, [types.floats_of(weights) for _, _, weights in found], sample, alone)

    def work(self, column: Column, options: EncodingOptions) -> float:
        return _WORK

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        offsets, keys, _ = types.pairs_of(array)
        yield Tokens.of(keys, column.name, offsets)

    def bag(self, book: Codebook, column: Column, array: pa.Array, marks: RowMarks) -> Entries:
        offsets, keys, weights = types.pairs_of(array)
        codes = book.codes(Tokens.of(keys, column.name, offsets))
        signs = np.where(codes >> 31, np.float32(-1.0), np.float32(1.0))
        given, nulls = types.numbers_of(weights), types.nulls_of(weights)
        values = given if nulls is None else np.where(nulls, 0.0, given)
        values = scaled_values(column, values, given, offsets, marks) * signs
        merged: Entries = merged_bags(offsets, codes & np.uint32(2**31 - 1), values)
        return merged
