"""Texts, of which words or characters are features, and lists of tokens: weighted counts, scaled to length 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.kinds.kind import Arrays, BagKind, Column, Entries, RowMarks, joined, stacked
from streampgs.encoding.sizes import runs
from streampgs.kernels.encoder_loop import BINARY, COUNTED, LOG_COUNTED, bags, counted_rows
from streampgs.kernels.grams import character_grams, word_grams, words_of
from streampgs.options.commands import EncodingOptions

_WEIGHTINGS = {"tf-idf": LOG_COUNTED, "tf": COUNTED, "binary": BINARY}
_NO_RARITY = np.empty(0, np.float32)
PIECE_TOKENS = 1 << 19
"""At a time; each takes some twenty bytes."""
_LARGEST_ROW = 1 << 30
"""The largest row of a table in memory, in bytes or tokens: the loops count with 32 bits. Rows of files are limited by the
memory budget."""
_WORDS_PER_BYTE = 0.25
_ENTRY_WORK = 16.0  # bytes for a token of a text


class TokenList(BagKind):
    """Tokens are found and counted for a bounded number of bytes at a time, however long a batch is."""

    name, plural = "token list", "token lists"
    takes: ClassVar[tuple[str, ...]] = (types.TOKENS,)
    has_rarity = True
    usual_work = 4.0

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        for piece in self._row_pieces(column, array, options):
            yield from self.whole(column, piece, options)

    def bag(self, book: Codebook, column: Column, arrays: Arrays, marks: RowMarks) -> Entries:
        array = types.leaf(arrays, column.name)
        rarity = book.rarities.get(column.name, _NO_RARITY)
        weighting = _WEIGHTINGS[book.options.text_weights]
        found = []
        for piece in self._row_pieces(column, array, book.options):
            bagged = [
                bags(book.codes(tokens), tokens.offsets, weighting, rarity, book.first, True)
                for tokens in self.whole(column, piece, book.options)
            ]
            found.append(bagged[0] if len(bagged) == 1 else normalized(joined(bagged)))
        return stacked(found)

    def _row_pieces(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[pa.Array]:
        """Consecutive rows of about `piece_size` in all. A row that is larger is alone."""
        array, most = types.undictionaried(array), self.piece_size(options)
        sizes = self.sizes(array)
        if sizes.max(initial=0) > _LARGEST_ROW:
            found = f"column '{column.name}' holds a row of {int(sizes.max()):,} bytes or tokens"
            raise DataError(found, f"write it as several rows, or leave it out with `--ignore {column.name}`")
        return (array[start:stop] for start, stop, _ in runs(sizes, most))

    def piece_size(self, options: EncodingOptions) -> int:
        return PIECE_TOKENS

    def sizes(self, array: pa.Array) -> NDArray[np.int64]:
        """The size of each row, in the unit of `piece_size`."""
        return np.diff(types.lists_of(array)[0])

    def whole(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        """The tokens of some rows, once for each namespace."""
        offsets, child = types.lists_of(array)
        yield Tokens.of(child, column.name, offsets)


class Text(TokenList):
    name, plural = "text", "texts"
    takes = ()
    option, allowed, remedy = "text", (types.STRING, types.BINARY), "text is in columns of strings"

    def work(self, options: EncodingOptions) -> float:
        return 1.0 + _ENTRY_WORK * _tokens_per_byte(options)

    def piece_size(self, options: EncodingOptions) -> int:
        return max(1, int(PIECE_TOKENS / _tokens_per_byte(options)))

    def sizes(self, array: pa.Array) -> NDArray[np.int64]:
        bounds = np.asarray(types.bytes_of(array)[1], np.int64)
        return bounds[1:] - bounds[:-1]

    def whole(self, column: Column, array: pa.Array, options: EncodingOptions) -> Iterator[Tokens]:
        data, bounds = types.bytes_of(_lowered(array))
        if options.ngrams is not None:
            text, starts, stops, row_words = words_of(data, bounds)
            spans = word_grams(starts, stops, row_words, *options.ngrams)
            yield Tokens(text, spans[0], spans[1], spans[2], column.name)
        if options.char_ngrams is not None:
            text, starts, stops, offsets = character_grams(data, bounds, *options.char_ngrams)
            yield Tokens(text, starts, stops, offsets, f"{column.name} characters")


def _tokens_per_byte(options: EncodingOptions) -> float:
    found = 0.0
    if options.ngrams is not None:
        found += _WORDS_PER_BYTE * (options.ngrams[1] + 1 - options.ngrams[0])
    if options.char_ngrams is not None:
        found += options.char_ngrams[1] + 1 - options.char_ngrams[0]
    return max(_WORDS_PER_BYTE, found)


def rows_with(book: Codebook, tokens: Tokens, counts: NDArray[np.int64]) -> None:
    """Add to the counts in how many rows each feature of the book occurs."""
    _, indices, _ = bags(book.codes(tokens), tokens.offsets, BINARY, _NO_RARITY, 0, False)
    counted_rows(indices.astype(np.int64) - book.first, counts)


def normalized(entries: Entries) -> Entries:
    offsets, indices, values = entries
    lengths = np.diff(offsets)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    # bincount adds one after the other, so that the sum of a row does not depend on its neighbours.
    squares = np.bincount(rows, values.astype(np.float64) ** 2, len(lengths))
    scale = 1.0 / np.sqrt(np.where(squares > 0.0, squares, 1.0))
    return offsets, indices, (values * scale[rows]).astype(np.float32)


def _lowered(array: pa.Array) -> pa.Array:
    """In lower case beyond ASCII as well, where it is text; the loops handle ASCII."""
    array = types.undictionaried(array)
    data, bounds = types.bytes_of(array)
    if types.class_of(array.type) != types.STRING or not (data[bounds[0] : bounds[-1]] >= 0x80).any():
        return array
    try:
        return pc.utf8_lower(array)
    except pa.ArrowInvalid:  # one text is not valid UTF-8; the others are lowered all the same
        return pa.concat_arrays([_lowered_alone(array[r : r + 1]) for r in range(len(array))])


def _lowered_alone(text: pa.Array) -> pa.Array:
    try:
        return pc.utf8_lower(text)
    except pa.ArrowInvalid:
        return text
