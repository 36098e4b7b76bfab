"""Lines of text cut into words, and numbers made of words, all lines at once with pyarrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.packing.source import BadLine

_COMMENT = re.compile(rb"#[^\n]*")
_LONELY_RETURN = re.compile(rb"\r(?!\n)")


def lines_of(data: bytes, comments: bool = False) -> pa.Array:
    """The lines that are not blank, without blanks at their ends."""
    if b"\r" in data and _LONELY_RETURN.search(data):
        # It ends lines in some old files. Taken for a blank, it would join two rows.
        raise BadLine("a carriage return without a line feed: tr '\\r' '\\n' converts it")
    if comments and b"#" in data:
        data = _COMMENT.sub(b"", data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadLine("a line that is not UTF-8") from None
    lines = pc.ascii_trim_whitespace(pa.array(text.split("\n"), pa.string()))
    return lines.filter(pc.not_equal(lines, ""))


def all_of(good: Any, reason: str) -> None:
    if not pc.all(good, min_count=0).as_py():
        raise BadLine(reason)


def numbers(texts: Any, reason: str) -> Any:
    """The doubles nearest to the texts."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        raise BadLine(reason) from None


def whole_numbers(texts: Any) -> Any | None:
    """Whole numbers from 0 up; None if a text is not one. pyarrow reads hexadecimal numbers, too."""
    try:
        found = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    good = pc.and_(pc.greater_equal(found, 0), pc.invert(pc.match_substring_regex(texts, r"^-|^0[xX]")))
    return found if pc.all(good, min_count=0).as_py() else None
