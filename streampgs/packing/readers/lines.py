"""A row a line: a text as it is, or a JSON object. A field of objects that appears late joins the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from streampgs.base.checks import most_brackets
from streampgs.packing.schemas import TYPES
from streampgs.packing.source import BadLine, Source, decoded, rows_of_lines

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_TOO_LARGE = re.compile(rb"(?<![0-9.])[0-9]{19,}(?![0-9.eE])")
_DEEPEST = 32  # Arrow files hold 64 levels, and pyarrow's parser crashes at some ten thousand


def read_text(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    name = source.options.names[0] if source.options.names else "text"

    def parse(data: bytes) -> pa.RecordBatch:
        lines = decoded(data).replace("\r\n", "\n").split("\n")[:-1]
        return pa.record_batch({name: pa.array(lines, pa.string())})

    return rows_of_lines(source, parse)


def read_json(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    asked = pa.schema([(name, TYPES[kind]) for name, kind in source.options.types])
    known = pa.schema([*asked, *(field for field in schema if field.name not in asked.names)])

    def parse(data: bytes) -> pa.RecordBatch:
        if most_brackets(data) > _DEEPEST and most_brackets(_STRING.sub(b"", data)) > _DEEPEST:
            raise BadLine("lists and objects nested too deeply")
        decoded(data)
        try:
            return _parsed(data, known)
        except pa.ArrowInvalid:
            return _parsed(data, asked)

    return rows_of_lines(source, parse)


def _parsed(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the types of the schema for its fields, and with their own for others."""
    if not data.strip():
        return pa.record_batch([], schema=pa.schema([]))
    table = pa.json.read_json(
        pa.BufferReader(data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema),
    )
    if not table.num_columns:
        raise BadLine("objects without fields, in a place where no fields are known")
    batch = table.combine_chunks().to_batches()[0]
    floats = [column for column in batch.columns if pa.types.is_floating(column.type)]
    if any(pc.any(pc.greater_equal(pc.abs(column), 2.0**63)).as_py() for column in floats) and _TOO_LARGE.search(data):
        raise BadLine("a whole number that 64 bits do not hold would be rounded; write it as a string")
    return batch
