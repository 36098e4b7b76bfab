"""Vowpal Wabbit: `label [weight [base]] [tag]|namespace[:factor] name[:value] … |…`.

Features become indices while all are whole numbers of one namespace, and a map from their names otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streampgs.packing.source import Shape, Source
from streampgs.packing.tokens import BAR, BLANK, COLON, Ints, Mask, Tokens, check_utf8, lists, parsed, tokens_of
from streampgs.reading.array_slices import index_array

SPACE_KEY = b"namespace"
"""Key of the namespace of the numbers, in the metadata of the field 'indices'."""
_QUOTE = ord("'")


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    return parsed(source, partial(_parse, shape))


def _parse(shape: Shape, data: bytes) -> pa.RecordBatch | None:
    check_utf8(data)
    tokens = tokens_of(data, b" \n:|")
    first = tokens.firsts
    if not first.size:
        return None
    rows, place = np.cumsum(first) - 1, tokens.places_in_row()
    bars = np.cumsum(tokens.before == BAR)
    bars -= (bars - (tokens.before == BAR))[first][rows]
    last = np.append(np.flatnonzero(first)[1:], len(first)) - 1
    tokens.refuse(last[bars[last] == 0], "no bar between label and features")
    labels, weights, any_weight = _heads(tokens, np.flatnonzero(bars == 0), place, rows, int(rows[-1]) + 1)
    columns: dict[str, pa.Array] = {"label": pa.array(labels)}
    if any_weight or shape.type_of("weight") is not None:
        columns["weight"] = pa.array(weights)
    fields = [pa.field(name, pa.float64()) for name in columns]
    for field, column in _features(tokens, bars > 0, rows, len(labels), shape):
        fields.append(field)
        columns[field.name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _heads(
    tokens: Tokens, heads: Ints, place: Ints, rows: Ints, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    """Labels and weights. A word that starts with a quote or touches the bar is a tag; it ends the numbers."""
    after_colon = tokens.before[heads] == COLON
    words = heads[~after_colon]
    word_of = np.cumsum(~after_colon) - 1
    is_tag = (tokens.letters[tokens.starts[words]] == _QUOTE) & (tokens.ends[words] > tokens.starts[words])
    is_tag[word_of[tokens.letters[tokens.ends[heads]] == BAR]] = True
    tag_place = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(tag_place, rows[words[is_tag]], place[words[is_tag]])
    numbers = heads[place[heads] < tag_place[rows[heads]]]
    tokens.refuse(numbers[(tokens.before[numbers] == COLON) & (place[numbers] == 1)], "the label is not a number")
    tokens.refuse(numbers[(tokens.before[numbers] == COLON) | (place[numbers] > 2)], "a weight is not a number")
    has_label = np.zeros(count, bool)
    has_label[rows[numbers]] = True
    tokens.refuse(np.flatnonzero(tokens.firsts)[~has_label], "no label")
    labels = tokens.numbers(numbers[place[numbers] == 0], "the label is not a number")
    others = numbers[place[numbers] > 0]
    found, weights = tokens.numbers(others, "a weight is not a number"), np.ones(count)
    is_weight = place[others] == 1
    weights[rows[others[is_weight]]] = found[is_weight]
    return labels, weights, bool(is_weight.any())


def _features(
    tokens: Tokens, in_body: Mask, rows: Ints, count: int, shape: Shape
) -> Iterator[tuple[pa.Field, pa.Array]]:
    before = tokens.before
    tokens.refuse(in_body & (before == COLON) & np.append(False, before[:-1] == COLON), "a value is not a number")
    spaces, names = np.flatnonzero(before == BAR), np.flatnonzero(in_body & (before == BLANK))
    tokens.refuse(names[tokens.ends[names] == tokens.starts[names]], "a feature without a name")
    factors = _factors(tokens, spaces, "a weight is not a number")
    space_of = np.cumsum(before == BAR)[names] - 1
    values = pa.array(factors[space_of] * _factors(tokens, names, "a value is not a number"))
    counts = np.bincount(rows[names], minlength=count)
    space_texts = tokens.texts_at(spaces[space_of])
    numbered = _numbered(tokens, names, space_texts, shape)
    if numbered is None:
        prefixed = pc.binary_join_element_wise(space_texts, tokens.texts_at(names), "^")
        keys = pc.if_else(pc.equal(space_texts, ""), tokens.texts_at(names), prefixed)
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
        yield pa.field("features", pa.map_(pa.string(), pa.float64())), pa.MapArray.from_arrays(offsets, keys, values)
        return
    indices, space = numbered
    for name, child, metadata in (("indices", index_array(indices), space), ("values", values, None)):
        column = lists(counts, child)
        yield pa.field(name, column.type, metadata=metadata), column


def _factors(tokens: Tokens, which: Ints, reason: str) -> NDArray[np.float64]:
    """The numbers after the colons of names; 1 where there is none."""
    factors = np.ones(len(which))
    given = np.append(tokens.before, 0)[which + 1] == COLON
    factors[given] = tokens.numbers(which[given] + 1, reason)
    return factors


def _numbered(
    tokens: Tokens, names: Ints, spaces: pa.Array, shape: Shape
) -> tuple[Ints, dict[bytes, bytes] | None] | None:
    """The names as numbers, and their namespace; None unless all are numbers of the one namespace."""
    known = shape.type_of("features")
    if known is not None and pa.types.is_map(known):
        return None
    found = {space.encode() for space in pc.unique(spaces).to_pylist()}
    if shape.type_of("indices") is not None:
        found |= {space for key, space in (shape.schema.field("indices").metadata or {}).items() if key == SPACE_KEY}
    if len(found) > 1:
        return None
    numbers, good = tokens.wholes(names)
    return (numbers, {SPACE_KEY: found.pop()} if found else None) if good.all() else None
