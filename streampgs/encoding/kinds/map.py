"""Maps from strings to numbers: each string is a feature, with the number as its value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.kinds.kind import BagKind, Column, Entries
from streampgs.kernels.encoder_loop import merged_bags
from streampgs.options import EncodingOptions


class Map(BagKind):
    name, plural = "map", "maps"
    takes = (types.MAP,)

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> list[Tokens]:
        offsets, keys, _ = types.pairs_of(array)
        return [Tokens.of(keys, column.name, offsets)]

    def bag(self, book: Codebook, column: Column, array: pa.Array) -> Entries:
        offsets, keys, weights = types.pairs_of(array)
        codes = book.codes(Tokens.of(keys, column.name, offsets))
        signs = np.where(codes >> 31, np.float32(-1.0), np.float32(1.0))
        values = types.numbers_of(weights).astype(np.float32) * signs
        nulls = types.nulls_of(weights)
        if nulls is not None:
            values[nulls] = 0.0
        merged: Entries = merged_bags(offsets, codes & np.uint32(2**31 - 1), values)
        return merged
