"""JSON, one object a line. A field that appears late joins the schema; one that is a string on some line is one on all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.json

from streampgs.checks import depth_of_json, most_brackets
from streampgs.errors import DataError
from streampgs.packing import source as sources
from streampgs.packing.schemas import TYPES
from streampgs.packing.source import Chunk, Shape, Source, ahead, text_chunks

_NO_OBJECT = "not a JSON object on one line"
_TOO_DEEP = "lists and objects nested too deeply"
_DEEPEST = 32  # Arrow files hold 64 levels, and pyarrow's parser crashes at some ten thousand


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    asked = pa.schema([(name, TYPES[kind]) for name, kind in source.options.types])
    for chunk in ahead(text_chunks(source, sources.CHUNK_BYTES)):
        batch = _batch(chunk.data, shape, asked) if most_brackets(chunk.data) <= _DEEPEST else None
        if batch is None:
            good = _good_lines(source, chunk)
            batch = _batch(good, shape, asked) or _batch(_with_strings(good, shape), shape, asked)
        if batch is None:
            raise _refused(source, chunk, asked)
        yield batch


def _batch(data: bytes, shape: Shape, asked: pa.Schema) -> pa.RecordBatch | None:
    """Under the schema so far if it holds all fields, else as the lines are; None: look at each line."""
    try:
        if len(shape.schema):
            return _parsed(data, shape.schema, "error")
    except pa.ArrowException:
        pass
    try:
        batch = _parsed(data, asked, "infer")
    except pa.ArrowException:
        return None
    return None if any(_becomes_string(field, shape) for field in batch.schema) else batch


def _becomes_string(field: pa.Field, shape: Shape) -> bool:
    """A number or a truth value of a field that is a string elsewhere: pyarrow has lost its spelling."""
    return shape.type_of(field.name) == pa.string() and not (
        field.type == pa.string() or pa.types.is_nested(field.type) or pa.types.is_null(field.type)
    )


def _parsed(data: bytes, schema: pa.Schema, unexpected: str) -> pa.RecordBatch:
    if not data.strip():
        return pa.RecordBatch.from_arrays([], schema=pa.schema([]))
    table = pa.json.read_json(
        pa.BufferReader(data),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )
    return table.combine_chunks().to_batches()[0]


def _good_lines(source: Source, chunk: Chunk) -> bytes:
    good = []
    for number, line in enumerate(chunk.data.split(b"\n"), start=chunk.first_line):
        if not line.strip():
            continue
        try:
            is_object = isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            is_object = False
        is_flat = depth_of_json(line) <= _DEEPEST
        if is_object and is_flat:
            good.append(line)
        else:
            source.bad_rows(_NO_OBJECT if is_flat else _TOO_DEEP, f"line {number:,}", line)
    return b"\n".join(good)


class _Spelled:
    """A number that keeps its spelling."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Number(_Spelled, float):
    pass


class _Whole(_Spelled, int):
    pass


def _with_strings(data: bytes, shape: Shape) -> bytes:
    """The lines, with strings for the plain values of fields of several types."""
    rows = [json.loads(line, parse_int=_Whole, parse_float=_Number) for line in data.split(b"\n") if line.strip()]
    types: dict[str, set[type]] = {field.name: {str} for field in shape.schema if field.type == pa.string()}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                types.setdefault(name, set()).add(_Number if isinstance(value, _Whole) else type(value))
    mixed = {name for name, found in types.items() if len(found) > 1 and not found & {dict, list}}
    for row in rows:
        for name in mixed & row.keys():
            row[name] = _string_of(row[name])
    return b"\n".join(json.dumps(row).encode() for row in rows)


def _string_of(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.text if isinstance(value, _Spelled) else json.dumps(value)


def _refused(source: Source, chunk: Chunk, asked: pa.Schema) -> DataError:
    try:
        _parsed(chunk.data, asked, "infer")
        found = "its types do not fit those of the rows before"
    except pa.ArrowException as error:
        found = str(error)
    return DataError(
        f"'{source.path}', in the lines from {chunk.first_line:,} on: {found}",
        "give the field one type on all lines: plain values, lists or objects",
    )
