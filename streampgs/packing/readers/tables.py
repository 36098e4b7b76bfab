"""Parquet and Arrow (IPC files and streams): the columns as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from streampgs.base.errors import DataError
from streampgs.base.faults import naming_faults
from streampgs.base.files import closed_after_reading, native_path
from streampgs.packing.schemas import plain_batch, plain_schema
from streampgs.packing.source import Shape, Source
from streampgs.reading.array_slices import rows_a_slice, sliced

_ARROW_FILE_MAGIC = b"ARROW1"


@contextmanager
def _damage_named(source: Source) -> Iterator[None]:
    try:
        with naming_faults(source.path):
            yield
    except MemoryError as error:
        raise DataError(
            f"'{source.path}' has a part that does not fit into memory: {error}",
            "write it with smaller record batches or row groups; if it is damaged, fetch it again",
        ) from error
    except (pa.ArrowException, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the file was removed
            raise
        raise DataError(f"'{source.path}' is damaged: {error}", "fetch or write it again") from error


def plain_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A few megabytes each, without dictionaries."""
    schema = plain_schema(batch.schema)
    for rows in sliced(batch):
        yield plain_batch(rows, schema).replace_schema_metadata(None)


def read_parquet(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    size = source.path.stat().st_size
    with (
        _damage_named(source),
        native_path(source.path) as path,
        closed_after_reading(pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False)) as file,
    ):
        for group in range(file.metadata.num_row_groups):
            facts = file.metadata.row_group(group)
            rows = rows_a_slice(facts.total_byte_size / max(1, facts.num_rows))
            for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                yield from plain_slices(batch)
            source.place = size * (group + 1) // file.metadata.num_row_groups


def read_arrow(source: Source, shape: Shape) -> Iterator[pa.RecordBatch]:
    with _damage_named(source), native_path(source.path) as path, closed_after_reading(pa.OSFile(path)) as file:
        is_file = file.read(len(_ARROW_FILE_MAGIC)) == _ARROW_FILE_MAGIC
        file.seek(0)
        reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            batch.validate(full=True)  # lengths and offsets of a damaged file lead anywhere
            yield from plain_slices(batch)
            source.place = file.tell()
