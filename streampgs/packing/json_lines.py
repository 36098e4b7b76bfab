"""JSON, one object a line. pyarrow reads it chunk by chunk; a field that first comes late joins the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json

from streampgs.errors import DataError
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
        for chunk in text_chunks(self.path, advance, self._options.skip_lines, mark, longest):
            faults: dict[str, int] = {}
            batch = self._as_known(chunk.data, shape)
            if batch is None:
                batch = self._as_is(chunk.data)
            if batch is None:
                good, bad = self._good_lines(chunk)
                faults = {_NO_OBJECT: bad} if bad else {}
                batch = self._as_known(good, shape) or self._as_is(good)
            if batch is None:
                raise self._refused(chunk.data, chunk.first_line)
            yield Piece(batch, (chunk.start, chunk.first_line), 0, faults)

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

    def _refused(self, data: bytes, first_line: int) -> DataError:
        try:
            self._read(data, pa.schema(self._types), "infer")
            found = "its types do not fit"
        except pa.ArrowException as error:
            found = str(error)
        return DataError(
            f"'{self.path}', in the lines from {first_line:,} on: {found}",
            "make the field of one kind on all lines: numbers, texts, lists or objects",
        )
