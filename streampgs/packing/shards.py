"""Record batches become shards with blocks of an even size, in a folder that has all of them or none."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.base.errors import DataError, OptionError
from streampgs.base.faults import exists, names_in
from streampgs.base.files import explaining, make_folder, sole_writer, sync_folder, writing
from streampgs.base.globs import is_folder
from streampgs.packing.options import DEFAULT_BLOCK_BYTES, DEFAULT_SHARD_BYTES, FORMATS
from streampgs.packing.schemas import plain_batch
from streampgs.table.locate import PUBLISHING

_STAGING = ".writing"
"""Hidden folders with shards that are being written, and with complete ones that are getting their names."""
_SHARD_NAME = re.compile(rf"part-\d{{5,}}\.({'|'.join(FORMATS)})")
_ROW_GROUP_BLOCKS = 16  # a row group is decoded whole, and large ones compress better


@dataclass(frozen=True)
class Shard:
    rows: int
    file_bytes: int


def shard_name(number: int, format: str) -> str:
    return f"part-{number:05d}.{format}"


def shards_to_replace(out: Path, overwrite: bool = False) -> list[Path]:
    """The shards in a folder. Other files are refused; so are shards, unless `overwrite` is set or they are some of those
    that a process that was killed was giving their names."""
    overwrite = overwrite or exists(out / PUBLISHING)
    if exists(out) and not is_folder(out):
        raise OptionError(f"'{out}' is a file", "name a new or empty folder")
    names = [name for name in names_in(out) if not name.startswith(".")]
    other = next((name for name in names if not _SHARD_NAME.fullmatch(name)), None)
    if other is not None or (names and not overwrite):
        raise OptionError(
            f"the folder '{out}' is not empty: it holds '{other or names[0]}'",
            "name a new or empty folder" + ("" if other else ", or add --overwrite to replace shards"),
        )
    return [out / name for name in names]


@contextmanager
def complete_or_absent(out: Path, overwrite: bool = False) -> Iterator[Path]:
    """A hidden folder for shards. They get their names in `out` at the end, and are removed if there is an error. A process
    that was killed has left nothing but the hidden folder, which the next one removes."""
    shards_to_replace(out, overwrite)
    make_folder(out)
    staging = out / _STAGING
    with sole_writer(out):
        replaced = shards_to_replace(out, overwrite)
        remove_folder(staging)
        with explaining(staging):
            staging.mkdir()
        try:
            yield staging
            with explaining(out):
                remove_folder(out / PUBLISHING)
                os.rename(staging, out / PUBLISHING)
                for path in replaced:
                    path.unlink()
                for name in names_in(out / PUBLISHING):
                    os.rename(out / PUBLISHING / name, out / name)
                sync_folder(out)
            remove_folder(out / PUBLISHING)
        finally:
            remove_folder(staging)


def remove_folder(folder: Path) -> None:
    """Remove a folder of temporary files, as far as that is possible."""
    with suppress(OSError):  # rmtree ignores errors, except those of closing a folder
        shutil.rmtree(folder, ignore_errors=True)


def shard_writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    # Numbers hardly repeat; words do.
    words = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=words, write_page_checksum=True)


def _blocks(batches: Iterable[pa.RecordBatch], block_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about the same size."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= block_bytes:
            joined = pa.concat_batches(waiting)
            rows = max(1, int(block_bytes * joined.num_rows / size))
            whole = joined.num_rows - joined.num_rows % rows
            yield from (joined.slice(start, rows) for start in range(0, whole, rows))
            waiting = [joined.slice(whole)]
            size = waiting[0].nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def written(
    batches: Iterable[pa.RecordBatch], out: Path, format: str, rows_per_shard: int | None, block_bytes: int
) -> list[Shard]:
    """Write batches of one schema to shards in `out`."""
    shards: list[Shard] = []
    blocks = _blocks(batches, block_bytes if format == "arrow" else _ROW_GROUP_BLOCKS * block_bytes)
    rest = next(blocks, None)
    while rest is not None:
        name, rows, size = shard_name(len(shards), format), 0, 0
        with writing(out / name, replace=False) as file:
            with shard_writer(file, rest.schema, format) as writer:
                while rest is not None and (
                    size < DEFAULT_SHARD_BYTES if rows_per_shard is None else rows < rows_per_shard
                ):
                    if rows_per_shard is None:
                        taken = int((DEFAULT_SHARD_BYTES - size) * rest.num_rows / max(1, rest.nbytes)) + 1
                    else:
                        taken = rows_per_shard - rows
                    block = rest.slice(0, taken)
                    writer.write_batch(block)
                    rows, size = rows + block.num_rows, size + block.nbytes
                    rest = rest.slice(taken) if taken < rest.num_rows else next(blocks, None)
            shards.append(Shard(rows, file.tell()))
    return shards


def write_shards(batches: Iterable[pa.RecordBatch], out: Path, rows_per_shard: int | None = None) -> list[Shard]:
    """Write record batches of one schema as Arrow shards into the folder `out`, which must be absent or empty."""
    with complete_or_absent(Path(out)) as staging:
        return written(_of_one_schema(batches), staging, "arrow", rows_per_shard, DEFAULT_BLOCK_BYTES)


def _of_one_schema(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = None
    for plain in map(plain_batch, batches):
        schema = schema or plain.schema
        if plain.schema != schema:
            raise DataError(
                f"batches of different columns: {schema}, then {plain.schema}", "give all the same columns and types"
            )
        yield plain
