"""Record batches become shards: blocks of an even size, each shard whole under its name or absent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.errors import DataError, OptionError
from streampgs.files import new_file
from streampgs.packing.options import DEFAULT_BLOCK_BYTES, DEFAULT_SHARD_BYTES
from streampgs.packing.schemas import plain_batch, plain_schema

_ROW_GROUP_BLOCKS = 16  # a row group can only be decoded whole, and compresses better when it is not small


@dataclass(frozen=True)
class Shard:
    name: str
    rows: int
    file_bytes: int


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def shard_name(number: int, format: str) -> str:
    return f"part-{number:05d}.{format}"


class ShardWriter:
    """Fills one shard after the other. What a shard holds depends on its rows and how they come, on nothing before."""

    def __init__(
        self,
        out: Path,
        schema: pa.Schema,
        format: str = "arrow",
        rows_per_shard: int | None = None,
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        first_number: int = 0,
    ) -> None:
        self._out, self._schema, self._format = out, schema, format
        self._most_rows = rows_per_shard
        self._block_bytes = block_bytes if format == "arrow" else _ROW_GROUP_BLOCKS * block_bytes
        self._number = first_number
        self._file: Any = None
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.rows = 0
        """In the shard at hand."""
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._bytes >= DEFAULT_SHARD_BYTES if self._most_rows is None else self.rows >= self._most_rows

    def add(self, batch: pa.RecordBatch) -> int:
        """Take rows until the shard is full; gives how many."""
        if self._most_rows is not None:
            taken: int = min(batch.num_rows, self._most_rows - self.rows)
        else:
            room = DEFAULT_SHARD_BYTES - self._bytes
            taken = min(batch.num_rows, int(room * batch.num_rows / max(1, batch.nbytes)) + 1)
        part = batch.slice(0, taken)
        size = part.nbytes
        self._waiting.append(part)
        self._waiting_bytes += size
        self._bytes += size
        self.rows += taken
        if self._waiting_bytes >= self._block_bytes:
            self._write_blocks(keep_rest=True)
        return taken

    def finish(self) -> Shard:
        """Seal the shard at hand, which must have rows, and begin the next."""
        self._write_blocks(keep_rest=False)
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        shard = Shard(shard_name(self._number, self._format), self.rows, self._file.tell())
        os.replace(self._hidden, self._out / shard.name)
        self._file.close()
        sync_folder(self._out)
        self._file = self._writer = None
        self._number += 1
        self.rows = self._bytes = 0
        return shard

    def abandon(self) -> None:
        """Leave nothing of the shard at hand."""
        if self._file is not None:
            with suppress(OSError, ValueError, pa.ArrowException):
                self._writer.close()
            self._file.close()
            self._hidden.unlink(missing_ok=True)
            self._file = self._writer = None

    @property
    def _hidden(self) -> Path:
        return self._out / f".{shard_name(self._number, self._format)}.writing"

    def _write_blocks(self, keep_rest: bool) -> None:
        if not self._waiting:
            return
        joined = self._waiting[0] if len(self._waiting) == 1 else _joined(self._waiting)
        rows = max(1, int(self._block_bytes * joined.num_rows / max(1, self._waiting_bytes)))
        start = 0
        while start < joined.num_rows and (not keep_rest or start + rows <= joined.num_rows):
            self._write(joined.slice(start, rows))
            start += rows
        rest = joined.slice(start)
        self._waiting = [rest] if rest.num_rows else []
        self._waiting_bytes = rest.nbytes if rest.num_rows else 0

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._file is None:
            self._file = open(new_file(self._hidden), "wb")  # noqa: SIM115 -- closed with the shard
            self._writer = _new_writer(self._file, self._schema, self._format)
        self._writer.write_batch(batch)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _new_writer(file: Any, schema: pa.Schema, format: str) -> Any:
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    # Numbers hardly come twice; words do.
    words = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=words, write_page_checksum=True)


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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OptionError(f"'{out}' is there already and not empty", "name an absent or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    shards: list[Shard] = []
    writer: ShardWriter | None = None
    schema = None
    try:
        for batch in batches:
            plain = plain_schema(batch.schema).remove_metadata()
            if writer is None:
                schema = plain
                writer = ShardWriter(out, schema, format, rows_per_shard, block_bytes)
            if plain != schema:
                raise DataError(
                    f"batches of different columns: after {schema} come {plain}",
                    "give all the same columns and types",
                )
            batch = plain_batch(batch, plain)
            start = 0
            while start < batch.num_rows:
                start += writer.add(batch.slice(start))
                if writer.full:
                    shards.append(writer.finish())
        if writer is not None and writer.rows:
            shards.append(writer.finish())
    finally:
        if writer is not None:
            writer.abandon()
    return shards
