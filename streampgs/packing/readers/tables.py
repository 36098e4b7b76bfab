"""Parquet, Arrow (IPC files and streams), and the result of a query: the columns as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.base.errors import DataError, OptionError
from streampgs.base.files import closed_after_reading, native_path
from streampgs.packing.schemas import plain_batch
from streampgs.packing.source import Source, naming_damage
from streampgs.reading.array_slices import sliced

_ARROW_FILE_MAGIC = b"ARROW1"
_ROWS = 1 << 13


def read_parquet(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with (
        naming_damage(source.path),
        native_path(source.path) as path,
        closed_after_reading(pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)) as file,
    ):
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from map(plain_batch, sliced(batch))


def read_arrow(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with naming_damage(source.path), native_path(source.path) as path, closed_after_reading(pa.OSFile(path)) as file:
        is_file = file.read(len(_ARROW_FILE_MAGIC)) == _ARROW_FILE_MAGIC
        file.seek(0)
        reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            batch.validate(full=True)  # lengths and offsets of a damaged file lead anywhere
            yield from map(plain_batch, sliced(batch))
            source.place = file.tell()


def rows_of_query(query: str, memory: int, folder: Path) -> Iterator[pa.RecordBatch]:
    """The result of a DuckDB query. One thread computes it, so that the rows have the same order every time."""
    try:
        import duckdb
    except ImportError as error:
        raise OptionError("--sql needs DuckDB", "install it: pip install 'streampgs[sql]'") from error
    try:
        query.encode()
    except UnicodeEncodeError:
        raise OptionError("--sql is not UTF-8", "give files other names, which the query can hold") from None
    config: Any = {"threads": "1", "memory_limit": f"{memory // 2 >> 10}KiB", "temp_directory": str(folder)}
    try:
        with duckdb.connect(":memory:", config=config) as connection:
            relation = connection.sql(query)
            if relation is None:
                raise OptionError("the query gives no rows", "write a SELECT")
            for batch in relation.to_arrow_reader(_ROWS):
                yield from map(plain_batch, sliced(batch))
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            f"the query needs more than its {memory / 2e6:,.0f} MB, half of --memory",
            "give more --memory, or write a query that groups and joins less at a time",
        ) from error
    except duckdb.Error as error:
        words = " ".join(str(error).split())
        raise DataError(f"the query failed: {words}", "fix it; the duckdb shell is a quick way to try it") from error
