"""Lines of numbers (dense rows), and lines of text."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.packing.source import BadLine, Source, all_of, lines_of, numbers, rows_of_lines


def read_matrix(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Dense rows of the same number of columns. Blanks or commas are between the numbers."""
    place = schema.get_field_index("features")
    width = schema.types[place].list_size if place >= 0 else None

    def parse(data: bytes) -> pa.RecordBatch:
        nonlocal width
        lines = pc.replace_substring_regex(lines_of(data, comments=True), r"\s*,\s*", ",")
        lines = pc.utf8_rtrim(lines, ",") if b"," in data else lines
        both = pc.and_(pc.match_substring(lines, ","), pc.match_substring_regex(lines, r"\s"))
        if pc.any(both).as_py():
            raise BadLine("both commas and blanks between numbers")
        words = pc.split_pattern_regex(lines, r",|\s+")
        if width is None and len(words):
            width = len(words[0])
        all_of(pc.equal(pc.list_value_length(words), width), "another number of columns than in the rows before")
        values = numbers(words.flatten(), "a value is not a number")
        return pa.record_batch({"features": pa.FixedSizeListArray.from_arrays(values, width or 1)})

    return rows_of_lines(source, parse)


def read_lines(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Every line is a row with one string."""
    name = source.options.names[0] if source.options.names else "text"

    def parse(data: bytes) -> pa.RecordBatch:
        try:
            lines = data.decode().replace("\r\n", "\n").split("\n")[:-1]
        except UnicodeDecodeError:
            raise BadLine("a line that is not UTF-8") from None
        return pa.record_batch({name: pa.array(lines, pa.string())})

    return rows_of_lines(source, parse)
