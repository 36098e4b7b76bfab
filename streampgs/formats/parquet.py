"""Parquet files: row groups are decoded one by one. A footer is parsed once and shared by all readers of the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streampgs.encoding import types
from streampgs.errors import DataError
from streampgs.expressions.bounds import Bounds
from streampgs.formats.format import Damaged, Fingerprint, OpenShard, ShardFile, ShardFormat
from streampgs.formats.parquet_footer import values_of_column

_MAGIC = b"PAR1"
_READ_BYTES = 1 << 20
_SMALLEST_READ_BYTES = 1 << 16
_READING_BYTES = 1 << 24
_CHUNK_METADATA_BYTES = 1200  # of a column of a row group, as pyarrow holds it; measured


@dataclass(frozen=True)
class ParquetFooter:
    metadata: Any
    """Its `schema` must not be touched: pyarrow's objects then refer to each other, and are freed by the cyclic garbage
    collector alone, which may not run for gigabytes of them."""
    schema: pa.Schema

    @property
    def nbytes(self) -> int:
        return int(_CHUNK_METADATA_BYTES * self.metadata.num_columns * self.metadata.num_row_groups)


class ParquetFormat(ShardFormat):
    name = "parquet"
    group_name = "row group"
    suffixes = frozenset({".parquet", ".pq"})
    magic = _MAGIC

    def parse(self, footer: bytes) -> ParquetFooter:
        with pq.ParquetFile(pa.BufferReader(_MAGIC + footer)) as file:
            return ParquetFooter(file.metadata, file.schema_arrow)

    def open(self, file: ShardFile, footer: ParquetFooter, fingerprint: Fingerprint) -> ParquetShard:
        return ParquetShard(file, footer, fingerprint, self)


class ParquetShard(OpenShard):
    def __init__(
        self, file: ShardFile, footer: ParquetFooter, fingerprint: Fingerprint, parquet: ParquetFormat
    ) -> None:
        super().__init__(file, footer, fingerprint, parquet)
        self._metadata = footer.metadata

    def group_rows(self, columns: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._metadata.row_group(g).num_rows for g in range(self._metadata.num_row_groups))

    def group_values(self, column: str) -> tuple[int, ...]:
        leaf = 0
        for field in self.schema:
            if field.name == column:
                break
            leaf += _leaves(field.type)
        footer = self.format.read_footer(self.file)
        try:
            counts = values_of_column(footer[: -4 - len(_MAGIC)], leaf)
            if len(counts) != self._metadata.num_row_groups:
                raise Damaged("its row groups are counted in two ways")
        except Damaged as error:
            raise self.damaged(error) from error
        return counts

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        leaves, found = dict(types.leaves_of(self.schema)), {}
        part = self._metadata.row_group(group)
        for number in range(part.num_columns):
            chunk = part.column(number)
            name = chunk.path_in_schema
            bounds = _bounds(chunk.statistics, part.num_rows, leaves[name]) if name in columns else None
            if bounds is not None:
                found[name] = bounds
        return found

    def must_decode(self) -> bool:
        return True

    def decode(
        self, group: int, slice_rows: int, columns: Sequence[str], categories: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """With page checksums verified where the writer left any."""
        # A stream for each column at a time: hundreds of them must not take hundreds of megabytes.
        buffer_bytes = max(_SMALLEST_READ_BYTES, min(_READ_BYTES, _READING_BYTES // max(1, len(columns))))
        options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": buffer_bytes}
        self.check_columns(columns)
        coded = sorted(set(categories) & set(_paths(self.schema)))
        try:
            with (
                self.file.native() as source,
                pq.ParquetFile(source, metadata=self._metadata, read_dictionary=coded, **options) as file,
            ):
                for batch in file.iter_batches(slice_rows, row_groups=[group], columns=columns, use_threads=False):
                    batch.validate()
                    for column in batch.columns:
                        _check_dictionaries(column)
                    yield batch
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise DataError(
                f"shard '{self.file.path}', row group {group}: damaged or shortened: {error}", "write the file again"
            ) from error


def _bounds(statistics: Any, rows: int, kind: pa.DataType) -> Bounds | None:
    if statistics is None:
        return None
    nulls = statistics.null_count if statistics.has_null_count else None
    if nulls == rows:
        return Bounds(None, True)
    if not statistics.has_min_max:
        return None
    try:
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        return Bounds(pa.array([statistics.min, statistics.max], plain), nulls != 0)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # another type than that of the schema
        return None


def _leaves(kind: pa.DataType) -> int:
    """Columns that a Parquet file has for a column of this type."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


def _paths(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Names of the columns outside of lists; in a struct with a dot."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _paths((field.type.field(i) for i in range(field.type.num_fields)), f"{above}{field.name}.")
        elif not field.type.num_fields:
            yield above + field.name


def _check_dictionaries(array: pa.Array) -> None:
    """A damaged page may refer to values that its dictionary does not have."""
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            _check_dictionaries(field)
    elif pa.types.is_dictionary(array.type):
        ends = pc.min_max(array.indices)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if most is not None and not 0 <= least <= most < len(array.dictionary):
            raise pa.ArrowInvalid("a value that its dictionary does not have")
