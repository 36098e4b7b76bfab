"""Categories: each different value is a feature, null as well. Crosses: each different pair of two categories' values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import OptionError, did_you_mean
from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.feature_names import Named
from streampgs.encoding.kinds.kind import Arrays, CodeKind, Column, arrays_of, is_there
from streampgs.encoding.kinds.number import Number
from streampgs.encoding.kinds.surface import BETWEEN_KINDS, SURFACE
from streampgs.kernels.encoder_loop import codes_of_places
from streampgs.kernels.jit import frozen
from streampgs.options.commands import EncodingOptions

_NO_NULLS = np.empty(0, np.bool_)
_HINT_VALUES = 1000
_MANY_WORDS, _MOSTLY_DIFFERENT = 5.0, 0.5
_ENOUGH_VALUES, _NEARLY_ALL = 500, 0.95


class Category(CodeKind):
    name, plural = "category", "categories"
    takes = (types.STRING,)
    option, allowed, remedy = "category", (types.NUMBER, types.STRING), "categories are strings or numbers"
    between = "="
    reads_dictionaries = True

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        array = types.as_text(types.undictionaried(array))
        array = array.filter(array.is_valid())
        yield Tokens.of(array, column.name, np.arange(len(array) + 1))

    def codes(self, book: Codebook, column: Column, arrays: Arrays, kept: dict[str, Any]) -> NDArray[np.uint32]:
        array = types.leaf(arrays, column.name)
        if not pa.types.is_dictionary(array.type):
            return _coded(book, column.name, array)
        dictionary, codes = kept.get(column.name, (None, None))
        if dictionary is None or codes is None or not dictionary.equals(array.dictionary):
            dictionary, codes = array.dictionary, _coded(book, column.name, types.plain(array.dictionary))
            kept[column.name] = (dictionary, codes)
        nulls, places = types.nulls_of(array.indices), types.raw_values(array.indices)
        nulls = _NO_NULLS if nulls is None else nulls
        places = places if places.dtype == np.int32 else places.astype(np.int64)
        found = np.empty(len(array), np.uint32)
        if not codes_of_places(codes, frozen(places), frozen(nulls), np.uint32(book.null_code(column.name)), found):
            raise pa.ArrowInvalid(f"column '{column.name}' refers to a value that its dictionary does not have")
        return found

    def named(self, book: Codebook, column: Column, arrays: Arrays) -> Iterator[Named]:
        array = types.leaf(arrays, column.name)
        nulls = array.null_count + (array.dictionary.null_count if pa.types.is_dictionary(array.type) else 0)
        yield from super().named(book, column, arrays)
        yield Named.of_null(book, column.name, nulls)

    def hints(self, column: Column, sample: Sequence[Arrays]) -> list[str]:
        if column.holds != types.STRING:
            return []
        array = types.undictionaried(next(arrays_of(sample, column.name))).drop_null()[:_HINT_VALUES]
        data, bounds = types.bytes_of(array)
        known = [data[start:stop].tobytes() for start, stop in pairwise(bounds.tolist())]  # may not be valid UTF-8
        words = float(np.mean([len(text.split()) for text in known])) if known else 0.0
        if words >= _MANY_WORDS and len(set(known)) > _MOSTLY_DIFFERENT * len(known):
            return [
                f"column '{column.name}' looks like text but is used as a category: `--text {column.name}` uses its words"
            ]
        if len(known) >= _ENOUGH_VALUES and len(set(known)) > _NEARLY_ALL * len(known) and words < _MANY_WORDS:
            return [
                f"nearly every row has its own value in column '{column.name}', which is used as a category: "
                f"`--ignore {column.name}` leaves it out"
            ]
        return []


def _coded(book: Codebook, column: str, array: pa.Array) -> NDArray[np.uint32]:
    texts = types.as_text(array)
    codes = book.codes(Tokens.of(texts, column))
    nulls = types.nulls_of(texts)
    if nulls is not None:
        codes[nulls] = book.null_code(column)
    return codes


class Cross(CodeKind):
    name, plural = "cross", "crosses"
    of_others = True

    def combined(
        self, columns: list[Column], leaves: Mapping[str, pa.DataType], options: EncodingOptions
    ) -> list[Column]:
        kinds = {column.name: column.kind for column in columns if column.kind in (Category.name, Number.name)}
        for first, second in options.cross:
            for name in (first, second):
                if name not in leaves:
                    raise OptionError(
                        f"`--cross {first},{second}`: there is no column '{name}'", did_you_mean(name, leaves)
                    )
                if name not in kinds:
                    raise OptionError(
                        f"`--cross {first},{second}`: column '{name}' is neither a category nor a number",
                        "cross columns of strings or numbers",
                    )
        for pair in options.cross:
            if name_of_cross(pair) in leaves:
                raise OptionError(
                    f"`--cross {','.join(pair)}`: there is a column '{name_of_cross(pair)}' already", "rename it"
                )
            of_parts = [kinds[name] for name in pair]
            kind = self.name if of_parts == [Category.name] * 2 else SURFACE
            holds = types.STRING if kind == self.name else BETWEEN_KINDS.join(of_parts)
            columns = [*columns, Column(name_of_cross(pair), kind, holds, pair)]
        return columns

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


def name_of_cross(pair: tuple[str, str]) -> str:
    return "×".join(pair)


def _hashes(book: Codebook, column: Column, arrays: Arrays) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    first, second = (book.hashes_of(types.leaf(arrays, name), name) for name in column.parts)
    return first, second
