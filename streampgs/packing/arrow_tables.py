"""Parquet and Arrow: columns as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.errors import DataError
from streampgs.packing.byte_streams import Advance
from streampgs.packing.pieces import Piece, Shape
from streampgs.packing.schemas import plain_batch, plain_schema

_PIECE_BYTES = 1 << 22
_ARROW_FILE_MAGIC = b"ARROW1"


def _damaged(path: Path, error: Exception) -> Exception:
    if isinstance(error, OSError) and error.errno:  # the system's, not the file's
        return error
    return DataError(f"'{path}' is damaged: {error}", "fetch or write it again")


def slices_of(batch: pa.RecordBatch, mark: tuple[int, ...], offset: int) -> Iterator[Piece]:
    """Pieces of a few megabytes."""
    schema = plain_schema(batch.schema)
    rows = max(1, int(_PIECE_BYTES * batch.num_rows / max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        plain = part if schema == batch.schema else plain_batch(part, schema)
        yield Piece(plain.replace_schema_metadata(None), mark, offset + start)


class ParquetReader:
    as_text = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        size = self.path.stat().st_size
        told = 0
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True, pre_buffer=False) as file:
                groups = file.metadata.num_row_groups
                first = mark[0] if mark else 0
                for group in range(first, groups):
                    facts = file.metadata.row_group(group)
                    rows = max(1, int(_PIECE_BYTES * facts.num_rows / max(1, facts.total_byte_size)))
                    offset = 0
                    for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                        for piece in slices_of(batch, (group,), offset):
                            offset += piece.batch.num_rows
                            yield piece
                    advance(size * (group + 1) // groups - told)
                    told = size * (group + 1) // groups
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise _damaged(self.path, error) from error
        advance(size - told)


class ArrowReader:
    """Of IPC files and streams."""

    as_text = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def pieces(self, shape: Shape, mark: tuple[int, ...], skip: int, advance: Advance) -> Iterator[Piece]:
        told = 0
        try:
            with pa.OSFile(str(self.path)) as file:
                in_file = file.read(len(_ARROW_FILE_MAGIC)) == _ARROW_FILE_MAGIC
                file.seek(0)
                for group, batch in self._batches(file, in_file, mark[0] if mark else 0):
                    yield from slices_of(batch, (group,), 0)
                    advance(file.tell() - told)
                    told = file.tell()
                advance(file.size() - told)
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise _damaged(self.path, error) from error

    def _batches(self, file: Any, in_file: bool, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        if in_file:
            reader = pa.ipc.open_file(file)
            for group in range(first, reader.num_record_batches):
                yield group, reader.get_batch(group)
            return
        for group, batch in enumerate(pa.ipc.open_stream(file)):
            if group >= first:
                yield group, batch
