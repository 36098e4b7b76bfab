"""Record batches of a table's columns to record batches of its rows: `indices` and `values`, or `features`; with labels
and weights as numbers. Whatever is slow is compiled; strings are hashed once where they come with a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.encoding import types
from streampgs.encoding.encoding import (
    BAGS,
    CYCLES,
    NULL_TEXT,
    EncodedColumn,
    Encoding,
    hash_text,
    second_seed,
)
from streampgs.encoding.labels import LabelSpec
from streampgs.encoding.plan import CATEGORY, CROSS, LIST, NUMBER, TOKENS, VECTOR, WEIGHED_TOKENS
from streampgs.kernels.encoder_loop import (
    BINARY,
    COUNTED,
    LOG_COUNTED,
    assembled_rows,
    bags,
    beside,
    merged_bags,
    rows_from_columns,
)
from streampgs.kernels.grams import character_grams, word_grams, words_of
from streampgs.kernels.hashing import NO_CODE, hash_pairs, hash_spans, hashed_codes, known_codes, wide_keys

INDICES, VALUES, FEATURES, FAULTS = "indices", "values", "features", "faults"
"""Columns of encoded rows; `faults`: why a row cannot be used, 0 where nothing is wrong with it."""
WEIGHT, OFFSET = "weight", "offset"

# Reasons among those of table.layout.
LENGTHS_DIFFER, WIDTH_DIFFERS = 21, 22

_WEIGHTINGS = {"tf-idf": LOG_COUNTED, "tf": COUNTED, "binary": BINARY}
_NO_RARITY = np.empty(0, np.float32)
_NO_OFFSETS = np.zeros(1, np.int64)
_BEYOND = np.int64(2**31 - 1)
_LONGEST_TEXTS = 1 << 29  # spans have 31 bits, and a text has several for each byte
_STRIDE_ROOM = 16  # columns that lie a power of two apart would all fall into the same lines of the cache

Entries = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float32]]


def label_name(number: int) -> str:
    return f"label {number}"


@dataclass
class Tokens:
    """Tokens of some rows: spans of a buffer."""

    data: NDArray[np.uint8]
    starts: NDArray[Any]
    stops: NDArray[Any]
    offsets: NDArray[np.int64]
    namespace: str
    """Equal strings of two namespaces are different tokens."""


class Encoder:
    """Encodes batch after batch in one thread. With `reusing` the rows of a batch are there until the next is encoded:
    memory that comes and goes in a thread costs as much as the encoding."""

    def __init__(self, encoding: Encoding, reusing: bool = False) -> None:
        self.encoding = encoding
        self._before = None if encoding.before is None else Encoder(encoding.before, reusing)
        self._reusing = reusing
        self._index_room: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._value_room: NDArray[np.float32] = np.empty(0, np.float32)
        self._room: NDArray[np.float32] = np.empty((encoding.numbers, 0), np.float32)
        self._code_room: NDArray[np.uint32] = np.empty((len(self._coded), 0), np.uint32)
        self._dictionaries: dict[str, tuple[pa.Array, NDArray[np.uint32]]] = {}
        self._null_codes: dict[str, int] = {}

    @cached_property
    def _numbers(self) -> list[EncodedColumn]:
        return [column for column in self.encoding.columns if column.kind == NUMBER]

    @cached_property
    def _lists(self) -> list[EncodedColumn]:
        return [column for column in self.encoding.columns if column.kind == LIST]

    @cached_property
    def _coded(self) -> list[EncodedColumn]:
        return [column for column in self.encoding.columns if column.kind in (CATEGORY, CROSS)]

    @cached_property
    def _bags(self) -> list[EncodedColumn]:
        return [column for column in self.encoding.columns if column.kind in BAGS]

    @cached_property
    def _vectors(self) -> list[EncodedColumn]:
        return [column for column in self.encoding.columns if column.kind == VECTOR]

    # Whole batches.

    def encode(
        self,
        columns: dict[str, pa.Array],
        rows: int,
        labels: Sequence[tuple[str, LabelSpec]],
        weight: str | None,
        offset: str | None = None,
    ) -> pa.RecordBatch:
        """`labels`, `weight` and `offset` are columns to be taken along; those that are not there are left out."""
        faults = np.zeros(rows, np.uint8)
        arrays: dict[str, pa.Array] = {}
        for number, (name, spec) in enumerate(labels):
            arrays[label_name(number)] = spec.codes(types.leaf(columns, name))
        if weight is not None:
            arrays[WEIGHT] = _as_float64(types.leaf(columns, weight))
        if offset is not None:
            arrays[OFFSET] = _as_float64(types.leaf(columns, offset))
        if self.encoding.dense:
            dense = self._dense(columns, rows, faults)
            arrays[FEATURES] = pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), dense.shape[1])
        else:
            offsets, indices, values = self.entries(columns, rows, faults)
            bounds = pa.array(offsets.astype(np.int32))
            arrays[INDICES] = pa.ListArray.from_arrays(bounds, pa.array(indices.view(np.int32)))
            arrays[VALUES] = pa.ListArray.from_arrays(bounds, pa.array(values))
        if self.may_find_faults:
            arrays[FAULTS] = pa.array(faults)
        return pa.RecordBatch.from_pydict(arrays)

    @property
    def may_find_faults(self) -> bool:
        earlier = self._before is not None and self._before.may_find_faults
        return bool(self._lists or self._vectors) or earlier

    def entries(self, columns: dict[str, pa.Array], rows: int, faults: NDArray[np.uint8]) -> Entries:
        found = self._bounded_entries(columns, rows, faults)
        if self._before is not None:
            offsets, indices, values = found
            shifted = indices + np.uint32(self.encoding.first_feature)
            found = beside(*self._before.entries(columns, rows, faults), offsets, shifted, values)
        for column in self._vectors:
            if is_there(column, columns):
                found = beside(*found, *self._vector_entries(column, columns, faults))
        return found

    def _bounded_entries(self, columns: dict[str, pa.Array], rows: int, faults: NDArray[np.uint8]) -> Entries:
        """Of the columns that are its own, but for vectors."""
        numbers = self._number_rows(columns, rows)
        codes = self._codes(columns, rows)
        bagged = self._joined([self.bag(column, array) for column, array in _there(self._bags, columns)])
        most = rows * (self.encoding.numbers + len(self._coded)) + len(bagged[1]) + 1
        room = self._room_for(most)
        offsets = assembled_rows(rows, numbers, codes, *bagged, *room)
        found: Entries = (offsets, room[0][: offsets[-1]], room[1][: offsets[-1]])
        for column, array in _there(self._lists, columns):
            found = beside(*found, *self._list_entries(column, array, rows, faults))
        return found

    def _room_for(self, most: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        if not self._reusing or len(self._index_room) < most:
            self._index_room, self._value_room = np.empty(most, np.uint32), np.empty(most, np.float32)
        return self._index_room, self._value_room

    def _dense(self, columns: dict[str, pa.Array], rows: int, faults: NDArray[np.uint8]) -> NDArray[np.float32]:
        width = self.encoding.unbounded_first
        out = np.empty((rows, width), np.float32)
        rows_from_columns(self._number_rows(columns, rows)[:, :rows], out)
        for column in self._lists:
            array = types.leaf_if_there(columns, column.name)
            if array is None:
                out[:, column.first : column.first + column.width] = 0.0
            else:
                self._fill_list(column, array, out, faults)
        return (
            out if self._before is None else np.concatenate([self._before._dense(columns, rows, faults), out], axis=1)
        )

    def _joined(self, parts: list[Entries]) -> Entries:
        if not parts:
            return _NO_OFFSETS, np.empty(0, np.uint32), np.empty(0, np.float32)
        found = parts[0]
        for part in parts[1:]:
            found = beside(*found, *part)
        return merged_bags(*found) if len(parts) > 1 else found

    # Numbers.

    def _number_rows(self, columns: dict[str, pa.Array], rows: int) -> NDArray[np.float32]:
        """A line for each feature of the columns of numbers."""
        count = self.encoding.numbers
        if self._room.shape[1] < rows:
            self._room = np.empty((count, rows + _STRIDE_ROOM), np.float32)
        for column in self._numbers:
            array = types.leaf_if_there(columns, column.name)
            if array is None:
                self._room[column.first : column.first + column.width, :rows] = 0.0
            else:
                self._fill_numbers(column, array, self._room[:, :rows])
        return self._room

    def _fill_numbers(self, column: EncodedColumn, array: pa.Array, out: NDArray[np.float32]) -> None:
        array = types.undictionaried(array)
        values, nulls, first = types.numbers_of(array), types.nulls_of(array), column.first
        with np.errstate(over="ignore", invalid="ignore"):  # what leaves the range is found where rows are checked
            _scaled(values, column.centre, column.scale, out[first])
            for number, period in enumerate(CYCLES.values() if column.cyclic else ()):
                turns = (values / period) % 1.0 * (2.0 * np.pi)
                out[first + 1 + 2 * number] = np.sin(turns)
                out[first + 2 + 2 * number] = np.cos(turns)
        if nulls is not None:
            out[first : first + column.width, nulls] = 0.0
        if column.null_flag:
            out[first + column.width - 1] = 0.0 if nulls is None else nulls

    def _fill_list(
        self, column: EncodedColumn, array: pa.Array, out: NDArray[np.float32], faults: NDArray[np.uint8]
    ) -> None:
        """Into columns [first, first + width) of the rows."""
        width = column.width - column.null_flag
        offsets, child = types.lists_of(array)
        values, child_nulls, nulls = types.numbers_of(child), types.nulls_of(child), types.nulls_of(array)
        rows = out[:, column.first : column.first + width]
        lengths = np.diff(offsets)
        usable = lengths == width
        whole = bool(usable.all())
        if not whole:
            unusable = ~usable if nulls is None else ~usable & ~nulls
            faults[unusable & (faults == 0)] = WIDTH_DIFFERS
            rows[~usable] = 0.0
            kept = np.repeat(usable, lengths)
            values = values[kept]
            child_nulls = None if child_nulls is None else child_nulls[kept]
        matrix = values.reshape(-1, width)
        with np.errstate(over="ignore", invalid="ignore"):
            if column.scale:
                matrix = (matrix - np.asarray(column.centre)) * np.asarray(column.scale)
            if child_nulls is not None:
                matrix = np.where(child_nulls.reshape(-1, width), 0.0, matrix)
            rows[slice(None) if whole else usable] = matrix
        if column.null_flag:
            out[:, column.first + width] = 0.0 if nulls is None else nulls

    def _list_entries(self, column: EncodedColumn, array: pa.Array, rows: int, faults: NDArray[np.uint8]) -> Entries:
        shifted = np.empty((rows, column.width), np.float32)
        own = EncodedColumn(**{**vars(column), "first": 0})
        self._fill_list(own, array, shifted, faults)
        offsets = np.arange(rows + 1, dtype=np.int64) * column.width
        indices = np.tile(np.arange(column.first, column.first + column.width, dtype=np.uint32), rows)
        return offsets, indices, shifted.ravel()

    def _vector_entries(
        self, column: EncodedColumn, columns: dict[str, pa.Array], faults: NDArray[np.uint8]
    ) -> Entries:
        first = self.encoding.first_feature + column.first
        offsets, indices, values, differ = vector_parts(column, columns)
        if differ is not None:
            faults[differ & (faults == 0)] = LENGTHS_DIFFER
        # Indices that cannot be keep what is wrong with them, so that the row's check finds it.
        moved = np.where(indices < 0, -1, np.minimum(indices, _BEYOND - first) + first)
        with np.errstate(over="ignore", invalid="ignore"):
            return offsets, moved.astype(np.int32).view(np.uint32), values.astype(np.float32)

    # Categories and tokens.

    def _codes(self, columns: dict[str, pa.Array], rows: int) -> NDArray[np.uint32]:
        """A line for each category and each cross."""
        if self._code_room.shape[1] < rows:
            self._code_room = np.empty((len(self._coded), rows + _STRIDE_ROOM), np.uint32)
        for line, column in zip(self._code_room, self._coded, strict=True):
            line[:rows] = self.category_codes(column, columns) if is_there(column, columns) else NO_CODE
        return self._code_room

    def category_codes(self, column: EncodedColumn, columns: dict[str, pa.Array]) -> NDArray[np.uint32]:
        if column.kind == CROSS:
            first, second = (self.hashes_alone(columns, name) for name in column.parts)
            seed = self.encoding.seed_of(column.name)
            return self._coded_hashes(
                hash_pairs(first, second, seed), lambda: hash_pairs(first, second, second_seed(seed))
            )
        array = types.leaf(columns, column.name)
        if not pa.types.is_dictionary(array.type):
            return self._string_codes(column, array)
        dictionary, codes = self._dictionaries.get(column.name, (None, None))
        if dictionary is None or codes is None or not dictionary.equals(array.dictionary):
            dictionary, codes = array.dictionary, self._string_codes(column, types.plain(array.dictionary))
            codes = np.append(codes, np.uint32(self.null_code(column.name)))
            self._dictionaries[column.name] = (dictionary, codes)
        places = array.indices
        if places.null_count:
            places = places.cast(pa.int64()).fill_null(len(codes) - 1)
        found: NDArray[np.uint32] = codes[types.raw_values(places)]
        return found

    def _string_codes(self, column: EncodedColumn, array: pa.Array) -> NDArray[np.uint32]:
        texts = as_text(array)
        data, bounds = types.bytes_of(texts)
        codes = self.codes_of(Tokens(data, bounds[:-1], bounds[1:], _NO_OFFSETS, column.name))
        nulls = types.nulls_of(texts)
        if nulls is not None:
            codes[nulls] = self.null_code(column.name)
        return codes

    def null_code(self, column: str) -> int:
        if column not in self._null_codes:
            data = np.frombuffer(NULL_TEXT, np.uint8)
            tokens = Tokens(data, np.zeros(1, np.int32), np.ones(1, np.int32), _NO_OFFSETS, column)
            self._null_codes[column] = int(self.codes_of(tokens)[0])
        return self._null_codes[column]

    def hashes_alone(self, columns: dict[str, pa.Array], name: str) -> NDArray[np.uint32]:
        """Of the values of a column, whatever it holds."""
        texts = as_text(types.undictionaried(types.leaf(columns, name)))
        data, bounds = types.bytes_of(texts)
        seed = self.encoding.seed_of(name)
        hashes: NDArray[np.uint32] = hash_spans(data, bounds[:-1], bounds[1:], seed)
        nulls = types.nulls_of(texts)
        if nulls is not None:
            hashes[nulls] = hash_text(NULL_TEXT, seed)
        return hashes

    def codes_of(self, tokens: Tokens) -> NDArray[np.uint32]:
        seed = self.encoding.seed_of(tokens.namespace)
        hashes = hash_spans(tokens.data, tokens.starts, tokens.stops, seed)
        return self._coded_hashes(
            hashes, lambda: hash_spans(tokens.data, tokens.starts, tokens.stops, second_seed(seed))
        )

    def _coded_hashes(self, hashes: NDArray[np.uint32], second_hashes: Any) -> NDArray[np.uint32]:
        encoding = self.encoding
        codes: NDArray[np.uint32] = hashed_codes(hashes, encoding.slots_first, encoding.hash_mask)
        if len(encoding.words):
            wanted = wide_keys(hashes, second_hashes())
            known_codes(wanted, encoding.word_table, encoding.words, encoding.hashed_first, codes)
        return codes

    def bag(self, column: EncodedColumn, array: pa.Array) -> Entries:
        """A row's tokens as entries."""
        if column.kind == WEIGHED_TOKENS:
            offsets, keys, weights = types.pairs_of(array)
            data, bounds = types.bytes_of(keys)
            codes = self.codes_of(Tokens(data, bounds[:-1], bounds[1:], offsets, column.name))
            signs = np.where(codes >> 31, np.float32(-1.0), np.float32(1.0))
            values = types.numbers_of(weights).astype(np.float32) * signs
            nulls = types.nulls_of(weights)
            if nulls is not None:
                values[nulls] = 0.0
            merged: Entries = merged_bags(offsets, codes & np.uint32(2**31 - 1), values)
            return merged
        parts = self.tokens(column, array)
        found = [self._weighted(column, part) for part in parts]
        return found[0] if len(found) == 1 else self._normalised(self._joined(found))

    def _weighted(self, column: EncodedColumn, tokens: Tokens) -> Entries:
        rarity = self.encoding.rarities.get(column.name, _NO_RARITY)
        weighting = _WEIGHTINGS[self.encoding.options.text_weights]
        codes = self.codes_of(tokens)
        entries: Entries = bags(codes, tokens.offsets, weighting, rarity, self.encoding.hashed_first, True)
        return entries

    @staticmethod
    def _normalised(entries: Entries) -> Entries:
        offsets, indices, values = entries
        lengths = np.diff(offsets)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        # Added up one after the other: no row's sum may depend on what stands beside the row.
        squares = np.bincount(rows, values.astype(np.float64) ** 2, len(lengths))
        scale = 1.0 / np.sqrt(np.where(squares > 0.0, squares, 1.0))
        return offsets, indices, (values * scale[rows]).astype(np.float32)

    def tokens(self, column: EncodedColumn, array: pa.Array) -> list[Tokens]:
        """Of a text: its runs of words, its runs of characters."""
        if column.kind == TOKENS:
            offsets, child = types.lists_of(array)
            data, bounds = types.bytes_of(child)
            return [Tokens(data, bounds[:-1], bounds[1:], offsets, column.name)]
        options = self.encoding.options
        data, bounds = types.bytes_of(lowered(array))
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


def is_there(column: EncodedColumn, arrays: dict[str, pa.Array]) -> bool:
    return all(types.leaf_if_there(arrays, name) is not None for name in column.sources)


def _there(columns: list[EncodedColumn], arrays: dict[str, pa.Array]) -> Iterator[tuple[EncodedColumn, pa.Array]]:
    """Those of the columns that a table has, each with its array: of the others its rows have no entries."""
    for column in columns:
        array = types.leaf_if_there(arrays, column.name)
        if array is not None:
            yield column, array


def lowered(array: pa.Array) -> pa.Array:
    """In lower case beyond ASCII as well, where it is text; the loops see to ASCII."""
    array = types.undictionaried(array)
    data, bounds = types.bytes_of(array)
    if types.class_of(array.type) != types.STRING or not (data[bounds[0] : bounds[-1]] >= 0x80).any():
        return array
    try:
        return pc.utf8_lower(array)
    except pa.ArrowInvalid:  # one is no UTF-8, whatever its type says; the others are lowered all the same
        return pa.concat_arrays([_lowered_alone(array[r : r + 1]) for r in range(len(array))])


def _lowered_alone(text: pa.Array) -> pa.Array:
    try:
        return pc.utf8_lower(text)
    except pa.ArrowInvalid:
        return text


def as_text(array: pa.Array) -> pa.Array:
    """Numbers as the text that they are written as; whole ones are written alike whatever their type."""
    if types.class_of(array.type) != types.NUMBER:
        return array
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pa.types.is_decimal(array.type):
        written = array.cast(pa.string())
        if array.type.scale <= 0:
            return written
        return pc.replace_substring_regex(written, r"^(?:-?(0)E.*|([^.E]*)(?:\.0*|(\.[0-9]*[1-9])0*))$", r"\1\2\3")
    if not pa.types.is_floating(array.type):
        return array.cast(pa.string())
    values = types.numbers_of(array)
    whole = (np.abs(values) < 2.0**63) & (values == np.floor(values))
    integers = pa.array(np.where(whole, values, 0.0).astype(np.int64)).cast(pa.string())
    written = integers if whole.all() else pc.if_else(pa.array(whole), integers, array.cast(pa.string()))
    return written if not array.null_count else pc.if_else(array.is_null(), None, written)


def vector_parts(
    column: EncodedColumn, columns: dict[str, pa.Array]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[np.bool_] | None]:
    """Offsets, indices, values, and the rows in which there are not as many of the ones as of the others."""
    if column.parts:
        index_lists, value_lists = (types.leaf(columns, name) for name in column.parts)
        return _two_lists(index_lists, value_lists, None)
    array = types.leaf(columns, column.name)
    if pa.types.is_struct(array.type):
        fields = {array.type.field(i).name: part for i, part in enumerate(array.flatten())}
        dense = None
        if "type" in fields:
            kinds = fields["type"].fill_null(0).to_numpy(zero_copy_only=False)
            dense = (kinds == 1) & fields["indices"].is_null().to_numpy(zero_copy_only=False)
        return _two_lists(types.plain(fields["indices"]), types.plain(fields["values"]), dense)
    offsets, keys, values = types.pairs_of(array)
    return offsets, _indices(keys), _with_nan(values), None


def _two_lists(
    index_lists: pa.Array, value_lists: pa.Array, dense: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], NDArray[np.bool_] | None]:
    offsets, index_child = types.lists_of(index_lists)
    value_offsets, value_child = types.lists_of(value_lists)
    indices, values = _indices(index_child), _with_nan(value_child)
    if dense is not None and dense.any():  # their indices go without saying
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
    """Null is an index that cannot be."""
    with np.errstate(over="ignore"):
        indices = types.numbers_of(array).astype(np.int64)
    nulls = types.nulls_of(array)
    if nulls is not None:
        indices[nulls] = -1
    return indices


def _with_nan(array: pa.Array) -> NDArray[Any]:
    values, nulls = types.numbers_of(array), types.nulls_of(array)
    return values if nulls is None else np.where(nulls, np.nan, values)


def _as_float64(array: pa.Array) -> pa.Array:
    array = types.undictionaried(array)
    values, nulls = types.numbers_of(array), types.nulls_of(array)
    return pa.array(np.asarray(values, np.float64), mask=nulls)


def _scaled(
    values: NDArray[Any], centre: tuple[float, ...], scale: tuple[float, ...], out: NDArray[np.float32]
) -> None:
    if not scale:
        out[:] = values
        return
    centred = np.subtract(values, np.float64(centre[0]), dtype=np.float64)
    np.multiply(centred, scale[0], out=out, casting="same_kind")
