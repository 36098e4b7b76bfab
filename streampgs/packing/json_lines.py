"""JSON, one object a line. pyarrow reads it chunk by chunk; a field that first comes late joins the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from streampgs.errors import DataError
from streampgs.packing.ahead import ahead
from streampgs.packing.byte_streams import Advance, Chunk, text_chunks
from streampgs.packing.options import PackOptions
from streampgs.packing.pieces import Piece, Shape
from streampgs.packing.schemas import TYPES
from streampgs.packing.text import bad_row

_NO_OBJECT = "no JSON object"


class JsonReader:
    as_text = True

    def __init__(self, path: Path, options: PackOptions) -> None:
        self.path = path
        self._options = options
        self._types = [(name, TYPES[kind]) for name, kind in options.types]

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        longest = self._options.memory // 8
        for chunk in ahead(text_chunks(self.path, advance, self._options.skip_lines, mark, longest)):
            faults: dict[str, int] = {}
            batch = self._batch(chunk.data, shape)
            if batch is None:
                good, bad = self._good_lines(chunk)
                faults = {_NO_OBJECT: bad} if bad else {}
                batch = self._batch(good, shape)
                if batch is None:
                    batch = self._batch(self._with_texts(good, shape), shape)
            if batch is None:
                raise self._refused(chunk)
            yield Piece(batch, (chunk.start, chunk.first_line), 0, faults)

    def _batch(self, data: bytes, shape: Shape) -> pa.RecordBatch | None:
        """None if the lines have to be looked at one by one."""
        batch = self._as_known(data, shape)
        if batch is None:
            batch = self._as_is(data)
            if batch is not None and _needs_texts(batch.schema, shape):
                return None
        return batch

    def _read(self, data: bytes, schema: pa.Schema, unexpected: str) -> pa.RecordBatch:
        if not data.strip():
            return pa.RecordBatch.from_arrays([], schema=pa.schema([]))
        table = pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        return table.combine_chunks().to_batches()[0]

    def _as_known(self, data: bytes, shape: Shape) -> pa.RecordBatch | None:
        """Under the schema so far; None if it does not hold all that is here."""
        if not len(shape.schema):
            return None
        try:
            return self._read(data, shape.schema, "error")
        except pa.ArrowException:
            return None

    def _as_is(self, data: bytes) -> pa.RecordBatch | None:
        try:
            return self._read(data, pa.schema(self._types), "infer")
        except pa.ArrowException:
            return None

    def _good_lines(self, chunk: Chunk) -> tuple[bytes, int]:
        good, bad = [], 0
        for number, line in enumerate(chunk.data.split(b"\n"), start=chunk.first_line):
            if not line.strip():
                continue
            try:
                whole = isinstance(json.loads(line), dict)
            except (ValueError, RecursionError):
                whole = False
            if whole:
                good.append(line)
            elif self._options.skips_bad_rows:
                bad += 1
            else:
                raise bad_row(self.path, number, _NO_OBJECT + " on one line", line)
        return b"\n".join(good), bad

    def _with_texts(self, data: bytes, shape: Shape) -> bytes:
        """Where a field is a text in some rows, it is in all: numbers are taken as they are written."""
        rows = [json.loads(line, parse_int=_Whole, parse_float=_Real) for line in data.split(b"\n") if line.strip()]
        kinds: dict[str, set[str]] = {field.name: {"text"} for field in shape.schema if field.type == pa.string()}
        for row in rows:
            for name, value in row.items():
                kinds.setdefault(name, set()).add(_kind_of(value))
        mixed = {name for name, found in kinds.items() if len(found - {"null"}) > 1 and "nested" not in found}
        for row in rows:
            for name in mixed & row.keys():
                if row[name] is not None:
                    row[name] = _text_of(row[name])
        return b"\n".join(json.dumps(row).encode() for row in rows)

    def _refused(self, chunk: Chunk) -> DataError:
        try:
            self._read(chunk.data, pa.schema(self._types), "infer")
            found = "its types do not fit those of the rows before"
        except pa.ArrowException as error:
            found = str(error)
        return DataError(
            f"'{self.path}', in the lines from {chunk.first_line:,} on: {found}",
            "make the field of one kind on all lines: plain values, lists or objects",
        )


class _Whole(int):
    """That remembers how it was written."""

    def __new__(cls, text: str) -> _Whole:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


class _Real(float):
    """That remembers how it was written."""

    def __new__(cls, text: str) -> _Real:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "nested"


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.text if isinstance(value, _Whole | _Real) else str(value)


def _needs_texts(schema: pa.Schema, shape: Shape) -> bool:
    """Whether a field that is a text elsewhere came as something plain that is none."""
    return any(
        shape.type_of(field.name) == pa.string()
        and field.type != pa.string()
        and not (pa.types.is_nested(field.type) or pa.types.is_null(field.type))
        for field in schema
    )
