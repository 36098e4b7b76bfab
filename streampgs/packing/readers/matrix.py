"""Lines of numbers, the same number of them on each, with blanks or commas between them: dense rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from streampgs.packing.source import Shape, Source
from streampgs.packing.tokens import BLANK, COMMA, Mask, Tokens, parsed, tokens_of

_COMMENT = re.compile(rb"#[^\n]*")
_AROUND_COMMA = re.compile(rb"[ \t\v\f\r]*,[ \t\v\f\r]*")
_FIRST_COMMA = re.compile(rb"^,", re.MULTILINE)


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    return parsed(source, partial(_parse, shape))


def _parse(shape: Shape, data: bytes) -> pa.RecordBatch | None:
    data = _COMMENT.sub(b"", data)
    if b"," in data:
        data = _AROUND_COMMA.sub(b",", data).replace(b",,", b", ,")
        # A comma before the first number is an error, also in a line of nothing else; one after the last is ignored.
        data = _FIRST_COMMA.sub(b"?,", data).replace(b",\n", b"\n")
    tokens = tokens_of(data, b" \n,")
    first = tokens.firsts
    _refuse_two_separators(tokens, first)
    numbers = tokens.numbers(np.arange(len(first)), "a value is not a number")
    starts = np.flatnonzero(first)
    if not starts.size:
        return None
    widths = np.diff(starts, append=len(first))
    known = shape.type_of("features")
    width = known.list_size if known is not None and pa.types.is_fixed_size_list(known) else int(widths[0])
    tokens.refuse(starts[widths != width], "another number of columns than in the rows before")
    return pa.record_batch({"features": pa.FixedSizeListArray.from_arrays(pa.array(numbers), width)})


def _refuse_two_separators(tokens: Tokens, first: Mask) -> None:
    """In a line like `1,5 2,5` the commas may be decimal points."""
    by_comma, by_blank = (~first & (tokens.before == separator) for separator in (COMMA, BLANK))
    if not (by_comma.any() and by_blank.any()):
        return
    lines = np.cumsum(first) - 1
    both = [np.bincount(lines[where], minlength=int(lines[-1]) + 1) > 0 for where in (by_comma, by_blank)]
    tokens.refuse(first & (both[0] & both[1])[lines], "both commas and blanks between numbers")
