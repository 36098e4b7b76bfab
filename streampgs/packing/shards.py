"""Record batches become shards with blocks of an even size. A shard is complete under its name, or absent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.base.errors import DataError
from streampgs.base.files import (
    explaining,
    make_folder,
    new_file,
    refuse_unless_empty,
    sole_writer,
    sync_folder,
)
from streampgs.packing.options import DEFAULT_BLOCK_BYTES, DEFAULT_SHARD_BYTES
from streampgs.packing.schemas import plain_batch

_ROW_GROUP_BLOCKS = 16  # a row group is decoded whole, and large ones compress better


@dataclass(frozen=True)
class Shard:
    name: str
    rows: int
    file_bytes: int


def shard_name(number: int, format: str) -> str:
    return f"part-{number:05d}.{format}"


class _OpenShard:
    """A shard that is being written under a hidden name."""

    def __init__(self, out: Path, name: str, schema: pa.Schema, format: str, block_bytes: int) -> None:
        self._path, self._hidden = out / name, out / f".{name}.writing"
        self._block_bytes = block_bytes if format == "arrow" else _ROW_GROUP_BLOCKS * block_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.rows = self.bytes = 0
        with explaining(self._path):
            self._file = open(new_file(self._hidden), "wb")  # noqa: SIM115 -- closed by seal and abandon
            self._writer = _new_writer(self._file, schema, format)
        self._is_whole = False

    def add(self, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        self._waiting.append(batch)
        self._waiting_bytes += size
        self.bytes += size
        self.rows += batch.num_rows
        if self._waiting_bytes >= self._block_bytes:
            self._write_blocks(keep_rest=True)

    def _write_blocks(self, keep_rest: bool) -> None:
        if not self._waiting:
            return
        joined = self._waiting[0] if len(self._waiting) == 1 else pa.concat_batches(self._waiting)
        rows = max(1, int(self._block_bytes * joined.num_rows / max(1, self._waiting_bytes)))
        start = 0
        while start < joined.num_rows and (not keep_rest or start + rows <= joined.num_rows):
            with explaining(self._path):
                self._writer.write_batch(joined.slice(start, rows))
            start += rows
        rest = joined.slice(start)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_bytes = rest.nbytes if rest.num_rows else 0

    def seal(self) -> Shard:
        self._write_blocks(keep_rest=False)
        with explaining(self._path):
            self._writer.close()
            self._is_whole = True  # closing the writer again would write to a file that may have its name by then
            self._file.flush()
            os.fsync(self._file.fileno())
            shard = Shard(self._path.name, self.rows, self._file.tell())
            os.rename(self._hidden, self._path)
            self._file.close()
            sync_folder(self._path.parent)
        return shard

    def abandon(self) -> None:
        with suppress(OSError, ValueError, pa.ArrowException):
            if not self._is_whole:
                self._writer.close()
        with suppress(OSError):  # the first error matters more; the next pack removes the file
            self._file.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)


def _new_writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    # Numbers hardly repeat; words do.
    words = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=words, write_page_checksum=True)


def written(
    batches: Iterable[pa.RecordBatch],
    out: Path,
    format: str = "arrow",
    rows_per_shard: int | None = None,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> Iterator[Shard]:
    """Write batches of one schema and give each shard when it is complete."""
    number, shard = 0, None
    try:
        for batch in batches:
            start = 0
            while start < batch.num_rows:
                if shard is None:
                    shard = _OpenShard(out, shard_name(number, format), batch.schema, format, block_bytes)
                rest = batch.slice(start)
                if rows_per_shard is None:
                    taken = int((DEFAULT_SHARD_BYTES - shard.bytes) * rest.num_rows / max(1, rest.nbytes)) + 1
                else:
                    taken = rows_per_shard - shard.rows
                shard.add(rest.slice(0, taken))
                start += taken
                if shard.bytes >= DEFAULT_SHARD_BYTES if rows_per_shard is None else shard.rows >= rows_per_shard:
                    sealed, shard = shard.seal(), None
                    number += 1
                    yield sealed
        if shard is not None:
            sealed, shard = shard.seal(), None
            yield sealed
    finally:
        if shard is not None:
            shard.abandon()


def write_shards(
    batches: Iterable[pa.RecordBatch],
    out: Path,
    *,
    format: str = "arrow",
    rows_per_shard: int | None = None,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> list[Shard]:
    """Write record batches of one schema into the folder `out`, which must be absent or empty."""
    out = Path(out)
    refuse_unless_empty(out)
    make_folder(out)
    with sole_writer(out):
        refuse_unless_empty(out)
        return list(written(_of_one_schema(batches), out, format, rows_per_shard, block_bytes))


def _of_one_schema(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = None
    for batch in batches:
        plain = plain_batch(batch)
        schema = schema or plain.schema
        if plain.schema != schema:
            raise DataError(
                f"batches of different columns: {schema}, then {plain.schema}", "give all the same columns and types"
            )
        yield plain
