"""Texts, of which words or characters are features, and lists of tokens: weighted counts, scaled to length 1."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.codebook import Codebook, Tokens
from streampgs.encoding.kinds.kind import BagKind, Column, Entries, RowMarks, joined
from streampgs.kernels.encoder_loop import BINARY, COUNTED, LOG_COUNTED, bags, counted_rows
from streampgs.kernels.grams import character_grams, word_grams, words_of
from streampgs.options import EncodingOptions

_WEIGHTINGS = {"tf-idf": LOG_COUNTED, "tf": COUNTED, "binary": BINARY}
_NO_RARITY = np.empty(0, np.float32)
_LONGEST_TEXTS = 1 << 29  # spans have 31 bits, and a text has several for each byte


class TokenList(BagKind):
    name, plural = "token list", "token lists"
    takes: ClassVar[tuple[str, ...]] = (types.TOKENS,)
    has_rarity = True

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> list[Tokens]:
        offsets, child = types.lists_of(array)
        return [Tokens.of(child, column.name, offsets)]

    def bag(self, book: Codebook, column: Column, array: pa.Array, marks: RowMarks) -> Entries:
        rarity = book.rarities.get(column.name, _NO_RARITY)
        weighting = _WEIGHTINGS[book.options.text_weights]
        found = [
            bags(book.codes(tokens), tokens.offsets, weighting, rarity, book.first, True)
            for tokens in self.tokens(column, array, book.options)
        ]
        return found[0] if len(found) == 1 else normalized(joined(found))


class Text(TokenList):
    name, plural = "text", "texts"
    takes = ()
    option, allowed, remedy = "text", (types.STRING, types.BINARY), "text is in columns of strings"

    def tokens(self, column: Column, array: pa.Array, options: EncodingOptions) -> list[Tokens]:
        data, bounds = types.bytes_of(_lowered(array))
        if bounds[-1] - bounds[0] > _LONGEST_TEXTS:
            raise pa.ArrowInvalid(f"texts of {bounds[-1] - bounds[0]:,} bytes at once in column '{column.name}'")
        found = []
        if options.ngrams is not None:
            text, starts, stops, row_words = words_of(data, bounds)
            spans = word_grams(starts, stops, row_words, *options.ngrams)
            found.append(Tokens(text, spans[0], spans[1], spans[2], column.name))
        if options.char_ngrams is not None:
            text, starts, stops, offsets = character_grams(data, bounds, *options.char_ngrams)
            found.append(Tokens(text, starts, stops, offsets, f"{column.name} characters"))
        return found


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
