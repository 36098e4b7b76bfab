"""Crosses: each different pair of two categories' values is a feature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import OptionError, did_you_mean
from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook
from streampgs.encoding.feature_names import Named
from streampgs.encoding.kinds.category import Category
from streampgs.encoding.kinds.kind import Arrays, CodeKind, Column, is_there
from streampgs.options.commands import EncodingOptions


class Cross(CodeKind):
    name, plural = "cross", "crosses"
    made_of = (2,)

    def combined(
        self, columns: list[Column], leaves: Mapping[str, pa.DataType], options: EncodingOptions
    ) -> list[Column]:
        categories = {column.name for column in columns if column.kind == Category.name}
        for first, second in options.cross:
            for name in (first, second):
                if name not in leaves:
                    raise OptionError(
                        f"`--cross {first},{second}`: there is no column '{name}'", did_you_mean(name, leaves)
                    )
                if name not in categories:
                    raise OptionError(
                        f"`--cross {first},{second}`: column '{name}' is not a category",
                        "cross columns of strings, or numbers that --category names",
                    )
        crosses = [Column(f"{pair[0]}×{pair[1]}", self.name, types.STRING, pair) for pair in options.cross]
        return [*columns, *crosses]

    def fits(self, column: Column, holds: str | None) -> bool:
        return True  # its two columns are categories, which are checked themselves

    def codes(self, book: Codebook, column: Column, arrays: Arrays, kept: dict[str, Any]) -> NDArray[np.uint32]:
        return book.pair_codes(*_hashes(book, column, arrays), column.name)

    def keys(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[NDArray[np.uint64]]:
        if is_there(column, arrays):
            yield book.pair_keys(*_hashes(book, column, arrays), column.name)

    def named(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[Named]:
        hashes = _hashes(book, column, arrays)
        parts = [(name, types.as_text(types.undictionaried(types.leaf(arrays, name)))) for name in column.parts]
        codes, keys = book.pair_codes(*hashes, column.name), book.pair_keys(*hashes, column.name)
        yield Named.of_pairs(codes, keys, parts)


def _hashes(book: Codebook, column: Column, arrays: Arrays) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    first, second = (book.hashes_of(types.leaf(arrays, name), name) for name in column.parts)
    return first, second
