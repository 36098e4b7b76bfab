"""Every line is a row with one string."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from streampgs.packing.source import Shape, Source
from streampgs.packing.tokens import check_utf8, parsed


def read(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    return parsed(source, partial(_parse, source.options.names[0] if source.options.names else "text"))


def _parse(name: str, data: bytes) -> pa.RecordBatch:
    check_utf8(data)
    return pa.record_batch({name: pa.array(data.decode().replace("\r\n", "\n").split("\n")[:-1], pa.string())})
