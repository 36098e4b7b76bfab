"""Columns that a shard's file does not have: folder names (Hive) or the log of the table (Delta) give their values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import pyarrow as pa

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class Constant(NamedTuple):
    """A column that has the same value in all rows of a shard."""

    name: str
    value: str | None
    kind: str | None = None
    """The name of its Arrow type; None: an integer if the text is one, otherwise a string."""


@dataclass(frozen=True)
class LogSchema:
    """The columns of a table with a log, for one of its shards. Folder names do not count then."""

    schema: pa.Schema
    """The schema of the table. A column that the file does not have is null, except for `constants`."""
    constants: tuple[Constant, ...] = ()

    def lacking(self, schema: pa.Schema) -> tuple[Constant, ...]:
        """The table's columns that a file of this schema does not have."""
        own = set(schema.names)
        known = {constant.name: constant for constant in self.constants}
        return tuple(known.get(name, Constant(name, None)) for name in self.schema.names if name not in own)


def partitions_of(shard: str, schema: pa.Schema) -> tuple[Constant, ...]:
    """Columns from folder names such as year=2026; a column of the file has priority."""
    found: dict[str, str | None] = {}
    for part in Path(shard).parts[:-1]:
        name, equals, value = part.partition("=")
        if equals and name.isidentifier() and name not in schema.names:
            found[name] = None if value == _HIVE_NULL else _text(value)
    return tuple(Constant(name, value) for name, value in found.items())


def _text(value: str) -> str:
    """Bytes that are not UTF-8 are written as `\\xff`, so that different names are different values."""
    return unquote_to_bytes(os.fsencode(value)).decode(errors="backslashreplace")


def with_partitions(schema: pa.Schema, partitions: tuple[Constant, ...]) -> pa.Schema:
    for constant in partitions:
        schema = schema.append(pa.field(constant.name, _type_of(constant)))
    return schema


def partition_columns(partitions: Iterable[Constant], rows: int) -> dict[str, pa.Array]:
    """The columns' arrays, for so many rows."""
    columns = {}
    for constant in partitions:
        text = pa.scalar(constant.value)
        columns[constant.name] = pa.repeat(text if constant.value is None else text.cast(_type_of(constant)), rows)
    return columns


_NAMED_TYPES = {
    str(kind): kind
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
        *(pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    )
}
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")


def can_be_constant(kind: pa.DataType) -> bool:
    return str(kind) in _NAMED_TYPES or _DECIMAL.fullmatch(str(kind)) is not None


def _type_of(constant: Constant) -> pa.DataType:
    if constant.value is None:
        return pa.null()
    if constant.kind is None:
        return pa.int64() if re.fullmatch(r"-?\d{1,18}", constant.value) else pa.string()
    decimal = _DECIMAL.fullmatch(constant.kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _NAMED_TYPES[constant.kind]
