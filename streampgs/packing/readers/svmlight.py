"""svmlight: `label [qid:query] index:value … [# comment]`, with the indices as written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streampgs.packing.source import Shape, Source
from streampgs.packing.tokens import COLON, Tokens, lists, parsed, tokens_of
from streampgs.reading.array_slices import index_array

_COMMENT = re.compile(rb"#[^\n]*")


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    return parsed(source, partial(_parse, shape))


def _parse(shape: Shape, data: bytes) -> pa.RecordBatch:
    tokens = tokens_of(_COMMENT.sub(lambda found: b" " * len(found[0]), data) if b"#" in data else data, b" \n:")
    place = tokens.places_in_row()
    _check_order(tokens, place)
    labels = tokens.numbers(np.flatnonzero(place == 0), "the label is not a number")
    names, queries = np.flatnonzero(place % 2 == 1), np.full(len(labels), -1)
    rows = np.cumsum(place == 0) - 1
    if b"qid:" in data:
        asked = names[place[names] == 1]
        # As bytes: the texts need not be UTF-8.
        asked = asked[np.asarray(pc.equal(tokens.texts_at(asked).cast(pa.binary()), b"qid"))]
        numbers, good = tokens.wholes(asked + 1)
        tokens.refuse(asked[~good], "the query is not a whole number")
        queries[rows[asked]] = numbers
        names = np.setdiff1d(names, asked, assume_unique=True)
    indices, good = tokens.wholes(names)
    tokens.refuse(names[~good], "an index is not a whole number")
    values = tokens.numbers(names + 1, "a value is not a number")
    columns = {"label": pa.array(labels)}
    if (queries >= 0).any() or shape.type_of("qid") is not None:
        columns["qid"] = pa.array(queries, mask=queries < 0)
    counts = np.bincount(rows[names], minlength=len(labels))
    columns["indices"], columns["values"] = lists(counts, index_array(indices)), lists(counts, pa.array(values))
    return pa.record_batch(columns)


def _check_order(tokens: Tokens, place: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """A label, then pairs of an index and, after a colon, a value."""
    after_colon = tokens.before == COLON
    tokens.refuse(after_colon & (place == 1), "no label")
    tokens.refuse(after_colon & (place % 2 == 1), "a value is not a number")
    is_last = np.append(place[1:] == 0, True)[: len(place)]
    lonely = np.flatnonzero((place > 0) & (place % 2 == 0) & ~after_colon) - 1
    tokens.refuse(np.append(lonely, np.flatnonzero(is_last & (place % 2 == 1))), "no colon in an entry")
