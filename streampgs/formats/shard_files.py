"""Open shards: what their footers say, and their rows.

An Arrow file is read by positional reads of just the bytes wanted; a Parquet row group (or a compressed record batch)
can only be decoded, from its start on, in slices of a given number of rows. Of a shard in an object store its copy on
this disk is read; what is read of it where it lies, see remote_shards.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streampgs.encoding import types
from streampgs.encoding.encoding import Encoding
from streampgs.errors import DataError, Unfinished
from streampgs.files import open_regular
from streampgs.formats.arrow_columns import (
    Bytes,
    ColumnPlace,
    can_be_sliced,
    check_places,
    column_places,
    read_column,
    without_view_data,
)
from streampgs.formats.arrow_metadata import (
    BatchMetadata,
    FileBlock,
    MetadataDamaged,
    read_batch_metadata,
    read_footer,
)
from streampgs.formats.parquet_footer import FooterDamaged, values_of_column
from streampgs.stores.access import RemoteObject
from streampgs.table.layout import Columns, Layout, TableSays, find_layout
from streampgs.table.locate import ARROW, ShardPath, kind_of

_ARROW_TAIL = 10  # footer length and ARROW1
_PARQUET_TAIL = 8  # footer length and PAR1
_PARQUET_READ_BYTES = 1 << 20
_SMALLEST_READ_BYTES = 1 << 16
_READING_BYTES = 1 << 24
_ARROW_HEAD, _PARQUET_HEAD = b"ARROW1\0\0", b"PAR1"


@dataclass(frozen=True)
class Fingerprint:
    """What tells whether a file is still the one that was catalogued, without reading its rows."""

    size: int
    modified_ns: int
    """0 for a shard in an object store: when its copy was written says nothing of it."""
    footer_digest: str
    version: str = ""
    """What its store calls this content; empty for files."""


@dataclass(frozen=True)
class ShardFacts:
    """What a shard's footers tell."""

    kind: str
    fingerprint: Fingerprint
    layout: Layout
    decoded: bool
    group_rows: tuple[int, ...]
    group_entries: tuple[int, ...]
    """Feature entries in each group (Parquet counts an empty list as one)."""
    schema: pa.Schema


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:32]


def read_exactly(fd: int, size: int, offset: int, path: ShardPath) -> bytes:
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise DataError(
                f"shard '{path}' ends at byte {offset + len(data)}, in the middle of what it should hold",
                "it was shortened while in use; restore it",
            )
        data += more
    return data


def fingerprint_of(path: ShardPath) -> Fingerprint:
    """Size, time stamp and a digest of the footer, from two small reads."""
    try:
        with _opened(path) as (fd, size, modified_ns):
            return fingerprint(path, size, modified_ns, _footer(fd, size, path)[1])
    except OSError as error:
        raise unreadable(path, error) from error


def fingerprint(path: ShardPath, size: int, modified_ns: int, footer: bytes) -> Fingerprint:
    if isinstance(path, RemoteObject):
        return Fingerprint(size, 0, _digest(footer), path.version)
    return Fingerprint(size, modified_ns, _digest(footer))


def unreadable(path: ShardPath, error: OSError) -> DataError:
    return DataError(
        f"shard '{path}' cannot be read: {error.strerror or error}",
        "check that it is there and that you may read it",
    )


class _opened:
    def __init__(self, path: ShardPath) -> None:
        self.path = path

    def __enter__(self) -> tuple[int, int, int]:
        self.fd = open_regular(self.path)
        status = os.fstat(self.fd)
        return self.fd, status.st_size, status.st_mtime_ns

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


ReadAt = Callable[[int, int], bytes]
"""(size, offset) to bytes, exactly so many."""


def _footer(fd: int, size: int, path: ShardPath) -> tuple[str, bytes]:
    return read_whole_footer(lambda size, offset: read_exactly(fd, size, offset, path), size, path)


def read_whole_footer(read: ReadAt, size: int, path: ShardPath) -> tuple[str, bytes]:
    """The kind of a file and its whole footer with the closing mark."""
    kind = kind_of(path, read(min(8, size), 0))
    tail_bytes, mark = (_ARROW_TAIL, b"ARROW1") if kind == ARROW else (_PARQUET_TAIL, b"PAR1")
    tail = read(min(tail_bytes, size), max(0, size - tail_bytes))
    whole = len(tail) == tail_bytes and tail.endswith(mark)
    length = struct.unpack("<I", tail[:4])[0] if whole else 0
    if not whole or length + tail_bytes + len(mark) > size:
        raise Unfinished(
            f"shard '{path}' has no footer: it is truncated, or still being written",
            "remove it, or wait until its writer has finished",
        )
    return kind, read(length + tail_bytes, size - length - tail_bytes)


def schema_of(path: Path) -> pa.Schema:
    """The columns of a shard."""
    try:
        with _opened(path) as (fd, size, _):
            return schema_in(path, *_footer(fd, size, path))
    except OSError as error:
        raise unreadable(path, error) from error


def schema_in(path: ShardPath, kind: str, footer: bytes) -> pa.Schema:
    try:
        if kind != ARROW:
            return pq.read_schema(pa.BufferReader(_PARQUET_HEAD + footer))
        return pa.ipc.open_file(pa.BufferReader(_ARROW_HEAD + footer)).schema
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"shard '{path}': its footer cannot be read: {error}", "write the file again") from error


def read_facts(path: Path, columns: Columns, says: TableSays | None = None) -> ShardFacts:
    try:
        with _opened(path) as (fd, size, modified_ns):
            kind, footer = _footer(fd, size, path)
            found = fingerprint(path, size, modified_ns, footer)
            if kind != ARROW:
                return parquet_facts(path, found, footer, columns, says)
        with ArrowFile(path, found, columns) as file:
            return arrow_facts(found, file, [file.metadata(g) for g in range(file.groups)])
    except OSError as error:
        raise unreadable(path, error) from error


class ArrowGroups(ABC):
    """What an Arrow IPC file's footer tells, and how its record batches can be read."""

    def __init__(self, path: ShardPath, size: int, footer: bytes, columns: Columns, read: ReadAt) -> None:
        self.path = path
        self.size = size
        self.read = read
        self.columns = columns
        try:
            self.blocks: list[FileBlock] = read_footer(footer[:-_ARROW_TAIL])
            # The schema stands in the footer: pyarrow finds it at the end of whatever it is given.
            self.schema = pa.ipc.open_file(pa.BufferReader(_ARROW_HEAD + footer)).schema
            self.layout = find_layout(self.schema, columns, str(path))
            self.places = column_places(self.schema, list(self.layout.columns))
        except (MetadataDamaged, pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception, group: int | None = None) -> DataError:
        where = f", record batch {group}" if group is not None else ""
        return DataError(f"shard '{self.path}'{where}: damaged: {error}", "write the file again")

    @property
    def groups(self) -> int:
        return len(self.blocks)

    def metadata(self, group: int) -> BatchMetadata:
        block = self.blocks[group]
        try:
            if (
                block.metadata_bytes <= 0
                or block.offset < 0
                or block.offset + block.metadata_bytes + block.body_bytes > self.size
            ):
                raise MetadataDamaged("a record batch outside the file")
            message = self.read(block.metadata_bytes, block.offset)
            batch = without_view_data(self.schema, read_batch_metadata(message))
            check_places(self.places, batch)
            if batch.body_bytes > block.body_bytes:
                raise MetadataDamaged("a body longer than its place in the file")
            return batch
        except MetadataDamaged as error:
            raise self._damaged(error, group) from error

    def entries(self, batch: BatchMetadata) -> int:
        if self.columns.encoding is not None:
            return encoded_entries(batch.rows, self.columns)
        return entries_of(self.places, self.layout, batch)

    def body_offset(self, group: int) -> int:
        return self.blocks[group].offset + self.blocks[group].metadata_bytes

    def decoded_slices(self, group: int, slice_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of a record batch from its first one on, slice by slice; a compressed one can only be read whole."""
        metadata = self.metadata(group)
        if not metadata.compressed and all(can_be_sliced(place) for place in self.places.values()):
            for start in range(0, metadata.rows, slice_rows):
                yield self._slice(group, metadata, start, min(start + slice_rows, metadata.rows))
            return
        batch = self._whole(group, list(self.layout.columns))
        for start in range(0, batch.num_rows, slice_rows):
            yield batch.slice(start, slice_rows)

    def _slice(self, group: int, metadata: BatchMetadata, start: int, stop: int) -> pa.RecordBatch:
        body = self.body_offset(group)

        def read(offset: int, size: int) -> Bytes:
            return np.frombuffer(self.read(size, body + offset), np.uint8)

        try:
            arrays = []
            for name, place in self.places.items():
                array = read_column(place, metadata, start, stop, read)
                if pa.types.is_dictionary(place.type):
                    array = pa.DictionaryArray.from_arrays(array, self._dictionaries[name])
                arrays.append(array)
            batch = pa.RecordBatch.from_arrays(arrays, list(self.places))
            batch.validate(full=True)
        except (MetadataDamaged, pa.ArrowException) as error:
            raise self._damaged(error, group) from error
        return batch

    @cached_property
    def _dictionaries(self) -> dict[str, pa.Array]:
        """The values of the columns that refer to them by number; they stand in messages of their own."""
        names = [name for name, place in self.places.items() if pa.types.is_dictionary(place.type)]
        smallest = min(range(self.groups), key=lambda group: self.metadata(group).rows)
        batch = self._whole(smallest, names)
        return {name: types.plain(batch.column(name)).dictionary for name in names}

    def _whole(self, group: int, columns: list[str]) -> pa.RecordBatch:
        try:
            with self._native() as file:
                fields = [self.schema.get_field_index(name) for name in columns]
                options = pa.ipc.IpcReadOptions(included_fields=fields)
                batch = pa.ipc.open_file(file, options=options).get_batch(group)
                batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, group) from error
        return batch

    @abstractmethod
    def _native(self) -> AbstractContextManager[Any]:
        """The file for pyarrow."""


class ArrowFile(ArrowGroups):
    """An Arrow IPC file, open for positional reads."""

    def __init__(self, path: ShardPath, expected: Fingerprint, columns: Columns) -> None:
        try:
            self.fd = open_regular(path)
        except OSError as error:
            raise unreadable(path, error) from error
        try:
            status = os.fstat(self.fd)
            if status.st_size != expected.size:
                raise DataError(
                    f"shard '{path}' has {status.st_size:,} bytes and not {expected.size:,} as catalogued",
                    "restore it, or start a new run",
                )
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
            _, footer = _footer(self.fd, status.st_size, path)
            if fingerprint(path, status.st_size, status.st_mtime_ns, footer) != expected:
                raise DataError(
                    f"shard '{path}' was replaced or written to: its footer or time stamp is not the catalogued one",
                    "restore it, or start a new run",
                )
            super().__init__(path, status.st_size, footer, columns, self._read_exactly)
        except OSError as error:
            os.close(self.fd)
            raise unreadable(path, error) from error
        except BaseException:
            os.close(self.fd)
            raise

    def _read_exactly(self, size: int, offset: int) -> bytes:
        return read_exactly(self.fd, size, offset, self.path)

    def __enter__(self) -> ArrowFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.fd)

    @contextmanager
    def _native(self) -> Iterator[Any]:
        with pa.OSFile(os.fspath(self.path)) as file:
            yield file


def entries_of(places: dict[str, ColumnPlace], layout: Layout, batch: BatchMetadata) -> int:
    """Feature entries in a record batch, told by the length of the list column's child."""
    lists = places["indices" if layout.kind == "sparse" else "features"]
    return batch.node_lengths[lists.node + 1]


def arrow_facts(found: Fingerprint, file: ArrowGroups, batches: list[BatchMetadata]) -> ShardFacts:
    return ShardFacts(
        ARROW,
        found,
        file.layout,
        file.columns.encoding is not None or any(batch.compressed for batch in batches),
        tuple(batch.rows for batch in batches),
        tuple(file.entries(batch) for batch in batches),
        file.schema,
    )


def encoded_entries(rows: int, columns: Columns) -> int:
    """About how many entries so many rows will have once they are encoded."""
    each = columns.encoding.entries_per_row if isinstance(columns.encoding, Encoding) else 1.0
    return math.ceil(rows * each)


def parquet_facts(
    path: ShardPath, found: Fingerprint, footer: bytes, columns: Columns, says: TableSays | None
) -> ShardFacts:
    try:
        with pq.ParquetFile(pa.BufferReader(_PARQUET_HEAD + footer)) as file:
            schema = file.schema_arrow
            layout = find_layout(schema, columns, str(path), says)
            if columns.encoding is not None:
                rows = tuple(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
                entries = tuple(encoded_entries(count, columns) for count in rows)
                return ShardFacts("parquet", found, layout, True, rows, entries, schema)
            lists = "indices" if layout.kind == "sparse" else "features"
            metadata = file.metadata
            leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
            # Only a list's leaf repeats; a column called "indices.count" has a path that looks like one.
            leaf = next(i for i, c in enumerate(leaves) if c.path.split(".")[0] == lists and c.max_repetition_level > 0)
            rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
            entries = values_of_column(footer[:-_PARQUET_TAIL], leaf)
    except (FooterDamaged, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(
            f"shard '{path}': its Parquet footer cannot be read: {error}", "write the file again"
        ) from error
    return ShardFacts("parquet", found, layout, True, rows, entries, schema)


class ParquetShard:
    """A Parquet file, decoded row group by row group, with page checksums verified where the writer left any."""

    def __init__(
        self, path: ShardPath, layout: Layout, source: Any = None, categories: frozenset[str] = frozenset()
    ) -> None:
        """`source`: what to read from, if not from the file at the path; `categories`: columns of strings of which each
        different one is wanted once."""
        self.path = path
        self.source = path if source is None else source
        self.columns = list(layout.columns)
        self.categories = categories

    @cached_property
    def _file(self) -> Any:
        # A stream for each column at a time: hundreds of them must not take hundreds of megabytes.
        buffer_bytes = max(_SMALLEST_READ_BYTES, min(_PARQUET_READ_BYTES, _READING_BYTES // max(1, len(self.columns))))
        schema = pq.read_metadata(self.source).schema
        known = {schema.column(i).path for i in range(len(schema))}
        return pq.ParquetFile(
            self.source,
            page_checksum_verification=True,
            pre_buffer=False,
            buffer_size=buffer_bytes,
            read_dictionary=sorted(self.categories & known),
        )

    def decoded_slices(self, group: int, slice_rows: int) -> Iterator[pa.RecordBatch]:
        """The row group in slices of `slice_rows` rows (the last may be shorter), decoded as they are asked for."""
        try:
            batches = self._file.iter_batches(
                batch_size=slice_rows, row_groups=[group], columns=self.columns, use_threads=False
            )
            for batch in batches:
                batch.validate()
                for column in batch.columns:
                    _check_dictionaries(column)
                yield batch
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise DataError(
                f"shard '{self.path}', row group {group}: damaged or shortened: {error}",
                "write the file again",
            ) from error

    def close(self) -> None:
        if "_file" in self.__dict__:
            self._file.close()


def _check_dictionaries(array: pa.Array) -> None:
    """Places in a dictionary are places in it: a damaged page may tell of others."""
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            _check_dictionaries(field)
    elif pa.types.is_dictionary(array.type):
        ends = pc.min_max(array.indices)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if most is not None and not 0 <= least <= most < len(array.dictionary):
            raise pa.ArrowInvalid("a value that its dictionary does not have")


def read_into(fd: int, target: Bytes, offset: int, path: ShardPath) -> None:
    """Fill `target` from the file."""
    view = target.data
    done = 0
    while done < len(view):
        got = os.preadv(fd, [view[done:]], offset + done)
        if got == 0:
            raise DataError(
                f"shard '{path}' ends at byte {offset + done}, in the middle of a block",
                "it was shortened while in use; restore it",
            )
        done += got


def announce(fd: int, offset: int, size: int) -> None:
    """Ask the system to read ahead what will be wanted soon.

    What is in memory already is not asked for: that costs as much as copying it. Whether it is, is told by two bytes
    from its inside, read without waiting. (Its ends say nothing: pages with them were read with what lies beside.)
    """
    probe = bytearray(1)
    try:
        if all(os.preadv(fd, [probe], place, os.RWF_NOWAIT) for place in (offset + size // 3, offset + size * 2 // 3)):
            return
    except OSError:
        pass  # not in memory, or a file system that cannot tell
    os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)
