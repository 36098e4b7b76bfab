"""Parquet files: row groups are decoded one by one, each with the part of the footer that describes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streampgs.base.errors import DataError, sized
from streampgs.encoding import types
from streampgs.expressions.bounds import Bounds
from streampgs.formats.allowance import allowance, memory_for_row
from streampgs.formats.format import Damaged, Fingerprint, FooterPlace, OpenShard, Seen, ShardFile, ShardFormat, shared
from streampgs.formats.local import unreadable
from streampgs.formats.parquet_footer import MAGIC, FooterMap, read_map, values_of_column

_READ_BYTES = 1 << 20
_SMALLEST_READ_BYTES = 1 << 16
_READING_BYTES = 1 << 24
_PROBED_ROWS = 1 << 12
_SLICE_BYTES = 1 << 24
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_INTO_DICTIONARIES = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"})
"""The encodings of strings that pyarrow can decode into a dictionary, and those of nulls."""


@dataclass(frozen=True)
class ParquetFooter:
    schema: pa.Schema
    groups: FooterMap

    @property
    def nbytes(self) -> int:
        return self.groups.nbytes


class ParquetFormat(ShardFormat):
    name = "parquet"
    group_name = "row group"
    suffixes = frozenset({".parquet", ".pq"})
    magic = MAGIC
    column_bytes = 9_000

    def read_footer(self, file: ShardFile, place: FooterPlace, seen: Seen) -> ParquetFooter:
        groups = read_map(file, place, seen)
        with pq.ParquetFile(pa.BufferReader(groups.footer_of(file, None))) as alone:
            return ParquetFooter(shared(alone.schema_arrow), groups)

    def open(self, file: ShardFile, footer: ParquetFooter, fingerprint: Fingerprint) -> ParquetShard:
        return ParquetShard(file, footer, fingerprint, self)


class ParquetShard(OpenShard):
    def __init__(
        self, file: ShardFile, footer: ParquetFooter, fingerprint: Fingerprint, parquet: ParquetFormat
    ) -> None:
        super().__init__(file, footer, fingerprint, parquet)
        self._groups = footer.groups

    def group_rows(self, columns: Sequence[str]) -> tuple[int, ...]:
        return tuple(self._groups.rows.tolist())

    def group_values(self, column: str) -> tuple[int, ...]:
        leaf = 0
        for field in self.schema:
            if field.name == column:
                break
            leaf += _leaves(field.type)
        try:
            return tuple(values_of_column(self.file, self._groups, leaf).tolist())
        except Damaged as error:
            raise self.damaged(error) from error

    def _metadata(self, group: int) -> Any:
        """The metadata of a row group alone. Its `schema` must not be touched: pyarrow's objects then refer to each other, and
        are freed by the cyclic garbage collector alone, which may not run for gigabytes of them."""
        try:
            found = pq.read_metadata(pa.BufferReader(self._groups.footer_of(self.file, group)))
            if found.num_row_groups != 1 or found.row_group(0).num_rows != self._groups.rows[group]:
                raise Damaged("its footer has changed")
            if found.row_group(0).num_columns != found.num_columns:
                raise Damaged("a row group without all of the columns")
        except (Damaged, pa.ArrowException, UnicodeDecodeError, OSError) as error:
            raise self.damaged(error, group) from error
        return found

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        leaves, found = dict(types.leaves_of(self.schema)), {}
        part = self._metadata(group).row_group(0)
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
        self.check_columns(columns)
        metadata = self._metadata(group)
        coded: list[str] = []
        try:
            coded = _read_as_dictionaries(self.schema, metadata.row_group(0), categories)
            rows = self._rows_at_once(group, metadata.row_group(0), slice_rows, columns)
            for batch in self._batches(metadata, rows, columns, coded):
                batch.validate()
                for column in batch.columns:
                    _check_dictionaries(column)
                yield batch
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            if _is_unsupported(error):
                raise self._unsupported(group, metadata, columns, coded, error) from error
            if isinstance(error, OSError) and error.errno is not None:
                raise unreadable(self.file.path, error) from error
            raise DataError(
                f"shard '{self.file.path}', row group {group}: damaged or shortened: {error}", "write the file again"
            ) from error

    def _rows_at_once(self, number: int, group: Any, slice_rows: int, columns: Sequence[str]) -> int:
        """At most `slice_rows` rows, fewer if rows are long. Rows that are longer than decoding allows are refused."""
        row_bytes, first = 0.0, 0
        for field in self.schema:
            stop = first + _leaves(field.type)
            if field.name in columns:
                size = sum(_stored_bytes(group.column(leaf)) for leaf in range(first, stop)) / max(1, group.num_rows)
                if size > max(_SLICE_BYTES, allowance()):
                    raise DataError(
                        f"shard '{self.file.path}', row group {number}: the values of column '{field.name}' have {sized(size)}",
                        f"give at least `--memory {memory_for_row(size) // 10**6 + 1:,}MB`, or leave it out with "
                        f"`--ignore {field.name}`",
                    )
                row_bytes += size
            first = stop
        return max(1, min(slice_rows, int(_SLICE_BYTES / max(row_bytes, 1.0))))

    def _batches(
        self, metadata: Any, slice_rows: int, columns: Sequence[str], coded: list[str]
    ) -> Iterator[pa.RecordBatch]:
        # A stream for each column at a time: hundreds of them must not take hundreds of megabytes.
        buffer_bytes = max(_SMALLEST_READ_BYTES, min(_READ_BYTES, _READING_BYTES // max(1, len(columns))))
        options = {"page_checksum_verification": True, "pre_buffer": False, "buffer_size": buffer_bytes}
        with (
            self.file.native() as source,
            pq.ParquetFile(source, metadata=metadata, read_dictionary=coded, **options) as file,
        ):
            yield from file.iter_batches(slice_rows, row_groups=[0], columns=columns, use_threads=False)

    def _unsupported(
        self, group: int, metadata: Any, columns: Sequence[str], coded: list[str], error: Exception
    ) -> DataError:
        where = f"shard '{self.file.path}', row group {group}"
        for name in columns:
            try:
                for _ in self._batches(metadata, _PROBED_ROWS, [name], coded):
                    pass
            except (pa.ArrowException, UnicodeDecodeError, OSError) as fault:
                if _is_unsupported(fault):
                    where, error = f"{where}, column '{name}'", fault
                    break
        return DataError(
            f"{where}: pyarrow cannot read it: {error}",
            "write it with another encoding or compression, install a newer pyarrow, or leave the column out with --ignore",
        )


def _stored_bytes(chunk: Any) -> int:
    """The bytes of a column chunk without compression. Numbers may be stored in fewer bytes than they take when decoded."""
    return int(max(chunk.total_uncompressed_size, chunk.num_values * _WIDTHS.get(chunk.physical_type, 0)))


def _is_unsupported(error: Exception) -> bool:
    """pyarrow's decoders raise OSError for damage and for encodings that they lack."""
    return isinstance(error, pa.ArrowNotImplementedError) or "Not yet implemented" in str(error)


def _read_as_dictionaries(schema: pa.Schema, group: Any, categories: Collection[str]) -> list[str]:
    """The columns among `categories` whose values in this row group can be decoded into a dictionary."""
    return [
        path for path, number in _leaf_numbers(schema) if path in categories and _can_be_coded(group.column(number))
    ]


def _can_be_coded(chunk: Any) -> bool:
    return chunk.physical_type == "BYTE_ARRAY" and _INTO_DICTIONARIES.issuperset(chunk.encodings)


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
        if pa.types.is_time(plain):  # of which pyarrow would leave out the nanoseconds
            ticks = pa.int32() if plain.bit_width == 32 else pa.int64()
            ends = pa.array([statistics.min_raw, statistics.max_raw], ticks).cast(plain)
        else:
            ends = pa.array([statistics.min, statistics.max], plain)
        return Bounds(ends, nulls != 0)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # another type than that of the schema
        return None


def _leaves(kind: pa.DataType) -> int:
    """Columns that a Parquet file has for a column of this type."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


def _leaf_numbers(fields: Iterable[pa.Field], above: str = "", first: int = 0) -> Iterator[tuple[str, int]]:
    """Names and numbers of the columns outside of lists; in a struct with a dot."""
    for field in fields:
        if pa.types.is_struct(field.type):
            inner = (field.type.field(i) for i in range(field.type.num_fields))
            yield from _leaf_numbers(inner, f"{above}{field.name}.", first)
        elif not field.type.num_fields:
            yield above + field.name, first
        first += _leaves(field.type)


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
