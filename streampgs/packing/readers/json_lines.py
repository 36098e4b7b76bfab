"""JSON, one object a line. A field that appears late joins the schema; one that is a string on some line is one on all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.json

from streampgs.base.checks import depth_of_json, most_brackets
from streampgs.base.errors import DataError
from streampgs.packing import source as sources
from streampgs.packing.schemas import TYPES
from streampgs.packing.source import Chunk, Shape, Source, ahead, text_chunks

_NO_OBJECT = "not a JSON object on one line"
_NOT_UTF8 = "not UTF-8"
_KEY_TWICE = "a key that is there twice"
_NOT_UNICODE = "a string that is not valid Unicode"
_KEY = re.compile(rb'"\s*:')
_NULL_FIELD = re.compile(rb":\s*null\b")
_LARGE_NUMBER = re.compile(rb"(?<![0-9.])[0-9]{19,}(?![0-9.eE])")
_ZONED_TIME = re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}[^"]*(?:Z|[+-][0-9]{2}:?[0-9]{2})"')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TOO_DEEP = "lists and objects nested too deeply"
_DEEPEST = 32  # Arrow files hold 64 levels, and pyarrow's parser crashes at some ten thousand


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    asked = pa.schema([(name, TYPES[kind]) for name, kind in source.options.types])
    for chunk in ahead(text_chunks(source, sources.CHUNK_BYTES)):
        is_plain = most_brackets(chunk.data) <= _DEEPEST and _is_utf8(chunk.data)
        batch = _batch(chunk.data, shape, asked) if is_plain else None
        if batch is None or _keys_in(chunk.data) != _fields_of(batch) + len(_NULL_FIELD.findall(chunk.data)):
            good = _good_lines(source, chunk)
            batch = _batch(good, shape, asked) or _batch(_with_strings(good, shape), shape, asked, exact=False)
        if batch is None:
            raise _refused(source, chunk, asked)
        yield batch


def _batch(data: bytes, shape: Shape, asked: pa.Schema, exact: bool = True) -> pa.RecordBatch | None:
    """Under the schema so far if it holds all fields, else as the lines are; None: look at each line. With `exact`, large
    whole numbers are not rounded."""
    has_zones = _ZONED_TIME.search(data) is not None
    try:
        if len(shape.schema) and not (has_zones and any(pa.types.is_timestamp(kind) for kind in shape.schema.types)):
            return _parsed(data, shape.schema, "error")
    except pa.ArrowException:
        pass
    try:
        batch = _parsed(data, asked, "infer")
        if has_zones:
            batch = _with_zones(batch, data, asked)
    except pa.ArrowException:
        return None
    if exact and any(map(pa.types.is_floating, batch.schema.types)) and _LARGE_NUMBER.search(data):
        return None
    return None if any(_becomes_string(field, shape) for field in batch.schema) else batch


def _with_zones(batch: pa.RecordBatch, data: bytes, asked: pa.Schema) -> pa.RecordBatch:
    """pyarrow forgets the zones of times. Where some times of a field have one and others do not, they are strings."""
    times = [f.name for f in batch.schema if pa.types.is_timestamp(f.type) and f.name not in asked.names]
    batch = _parsed(data, pa.schema([*asked, *((name, pa.string()) for name in times)]), "infer")
    for name in times:
        place = batch.schema.get_field_index(name)
        for kind in (pa.timestamp("us", "UTC"), pa.timestamp("us")):
            with suppress(pa.ArrowInvalid):
                batch = batch.set_column(place, name, batch.column(place).cast(kind))
                break
    return batch


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
        fault = _fault_of(line)
        if fault is None:
            good.append(line)
        else:
            source.bad_rows(fault, f"line {number:,}", line)
    return b"\n".join(good)


class _KeyTwice(ValueError):
    pass


def _fault_of(line: bytes) -> str | None:
    """The reason why a line cannot be used."""
    if depth_of_json(line) > _DEEPEST:
        return _TOO_DEEP
    if not _is_utf8(line):
        return _NOT_UTF8
    try:
        found = json.loads(line, object_pairs_hook=_object)
        if _ESCAPED_SURROGATE.search(line):
            json.dumps(found, ensure_ascii=False).encode()
    except _KeyTwice:
        return _KEY_TWICE
    except UnicodeEncodeError:
        return _NOT_UNICODE
    except (ValueError, RecursionError):
        return _NO_OBJECT
    return None if isinstance(found, dict) else _NO_OBJECT


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _KeyTwice
    return found


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# pyarrow uses the last value of a key that is there twice. Then there are more keys in the text than fields and nulls in
# the rows. The text of a string may look like a key or a null: then the lines are looked at one by one.


def _keys_in(data: bytes) -> int:
    return len(_KEY.findall(data))


def _fields_of(rows: Any) -> int:
    """Fields of rows, or of structs, that are not null."""
    if isinstance(rows, pa.RecordBatch):
        return sum(len(column) - column.null_count + _fields_of(column) for column in rows.columns)
    if pa.types.is_struct(rows.type):
        return sum(len(part) - part.null_count + _fields_of(part) for part in rows.flatten())
    return _fields_of(rows.flatten()) if pa.types.is_list(rows.type) else 0


class _Spelled:
    """A number that keeps its spelling."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Number(_Spelled, float):
    pass


class _Whole(_Spelled, int):
    pass


def _with_strings(data: bytes, shape: Shape) -> bytes:
    """The lines, with strings for the plain values of fields of several types, and of whole numbers that are too large."""
    rows = [json.loads(line, parse_int=_Whole, parse_float=_Number) for line in data.split(b"\n") if line.strip()]
    types: dict[str, set[type]] = {field.name: {str} for field in shape.schema if field.type == pa.string()}
    large: set[str] = set()
    for row in rows:
        for name, value in row.items():
            if value is not None:
                types.setdefault(name, set()).add(type(value))
            if isinstance(value, _Whole) and abs(value) >= 1 << 63:
                large.add(name)
    mixed = {name for name, found in types.items() if name in large and found == {_Whole}}
    for name, found in types.items():
        plain = {_Number if one is _Whole else one for one in found}
        if len(plain) > 1 and not plain & {dict, list}:
            mixed.add(name)
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
