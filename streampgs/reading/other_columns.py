"""Columns of shards that a model does not need: to group rows by, or to write next to predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streampgs.base.errors import DataError
from streampgs.encoding import types
from streampgs.expressions.expression import Expression
from streampgs.reading.decode import columns_of_batch, concatenated, raw_slices
from streampgs.table.catalog import Catalog, Shard, Surveyed
from streampgs.table.layout import SPARSE, Columns, Layout, is_needed

ALL = ("all",)
_BATCH_ROWS = 1 << 13
_TAKEN_BYTES = 1 << 23
_MOST_NAMES = 20


@dataclass(frozen=True)
class OtherColumns:
    """Columns by name (of a field of a struct: the dotted name), without dictionaries. Shards that lack one of them have
    nulls."""

    schema: pa.Schema
    layouts: tuple[Layout, ...]
    """The columns that are read, for each shard."""

    @staticmethod
    def find(surveyed: Sequence[Surveyed], wanted: Sequence[str], where: Expression | None) -> OtherColumns:
        """`ALL`: all columns of the shards. `where`: the condition of the rows."""
        found: dict[str, list[tuple[str, pa.DataType]]] = {}
        for one in surveyed:
            schema = one.whole_schema
            for name, kind in {**dict(types.leaves_of(schema)), **{field.name: field.type for field in schema}}.items():
                found.setdefault(name, []).append((str(one.shard.path), kind))
        tops = list(dict.fromkeys(name for one in surveyed for name in one.whole_schema.names))
        names = tops if tuple(wanted) == ALL else list(dict.fromkeys(wanted))
        for name in names:
            if name not in found:
                listed = ", ".join(tops[:_MOST_NAMES]) + (", …" if len(tops) > _MOST_NAMES else "")
                raise DataError(f"no column '{name}' in the table", f"its columns are {listed}")
        schema = pa.schema([pa.field(name, _common_type(name, found[name])) for name in names])
        needed = {*names, *(() if where is None else where.columns)}
        return OtherColumns(schema, tuple(_layout(one, needed) for one in surveyed))

    def rows(self, catalog: Catalog, where: Expression | None) -> RowTaker:
        """The rows of a catalog of these shards, in the order of the files."""
        return RowTaker(self._batches(catalog, Columns(None, where=where)))

    def _batches(self, catalog: Catalog, columns: Columns) -> Iterator[pa.RecordBatch]:
        for shard, layout in zip(catalog.shards, self.layouts, strict=True):
            alone = replace(shard, layout=layout)
            for group in range(len(shard.group_rows)):
                for batch in raw_slices(alone, group, _BATCH_ROWS, columns):
                    yield self._batch(columns_of_batch(batch, alone), batch.num_rows, alone)

    def _batch(self, columns: dict[str, pa.Array], rows: int, shard: Shard) -> pa.RecordBatch:
        arrays = []
        for field in self.schema:
            array = types.leaf_if_there(columns, field.name)
            array = pa.nulls(rows, field.type) if array is None else types.undictionaried(array)
            try:
                arrays.append(array if array.type == field.type else array.cast(field.type))
            except pa.ArrowException as error:
                raise DataError(
                    f"shard '{shard.path}': column '{field.name}' of type {array.type} cannot be written as {field.type}: "
                    f"{error}",
                    "write the same type in all shards",
                ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class RowTaker:
    """Takes rows from batches, as many at a time as are asked for."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        """In one batch, or in several if they have many bytes."""
        parts: list[pa.RecordBatch] = []
        size = 0
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches)
            part = batch.slice(0, rows)
            rows -= part.num_rows
            self._rest = batch.slice(part.num_rows) if part.num_rows < batch.num_rows else None
            if parts and size + part.nbytes > _TAKEN_BYTES:
                yield concatenated(parts)
                parts, size = [], 0
            parts.append(part)
            size += part.nbytes
        if parts:
            yield concatenated(parts)


def _layout(one: Surveyed, needed: set[str]) -> Layout:
    partitions = tuple(constant for constant in one.constants if constant.name in needed)
    tops = tuple(name for name in one.schema.names if is_needed(name, needed))
    return Layout(SPARSE, tops or tuple(one.schema.names[:1]), partitions=partitions)  # some column counts the rows


def _common_type(name: str, found: Sequence[tuple[str, pa.DataType]]) -> pa.DataType:
    shard, common = found[0][0], _plain_type(found[0][1])
    for other, kind in found[1:]:
        both = [pa.schema([pa.field(name, one)]) for one in (common, _plain_type(kind))]
        try:
            common = pa.unify_schemas(both, promote_options="permissive").field(0).type
        except pa.ArrowException as error:
            raise DataError(
                f"column '{name}' is of type {common} in shard '{shard}' and of type {kind} in '{other}'",
                "write the same type in all shards",
            ) from error
    return common


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of `types.undictionaried(types.plain(…))`."""
    return types.undictionaried(types.plain(pa.nulls(0, kind))).type
