"""Every line is a row with one string."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streampgs.packing.source import BadLine, Source, rows_of_lines


def read(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    name = source.options.names[0] if source.options.names else "text"

    def parse(data: bytes) -> pa.RecordBatch:
        try:
            lines = data.decode().replace("\r\n", "\n").split("\n")[:-1]
        except UnicodeDecodeError:
            raise BadLine("a line that is not UTF-8") from None
        return pa.record_batch({name: pa.array(lines, pa.string())})

    return rows_of_lines(source, parse)
