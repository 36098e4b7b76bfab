"""A shard format without rows: a footer says how many rows there are, and their values follow from their numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from streampgs.formats.format import (
    Fingerprint,
    Footer,
    FooterPlace,
    Ints,
    OpenShard,
    Seen,
    ShardFile,
    ShardFormat,
    Slices,
    Take,
)
from streampgs.formats.registry import FORMATS

SUFFIX = ".toy"
_READY = pa.schema({"label": pa.float64(), "indices": pa.list_(pa.int32())})


@dataclass(frozen=True)
class Content:
    """What a shard holds."""

    name: int
    """Tells shards of the same shape apart."""
    rows: tuple[int, ...]
    """Of each group."""
    labels: tuple[float, ...]
    """Of the rows, in turn."""
    width: int
    """Features of its rows."""
    decoded: bool
    row_entries: int
    columns: int
    """Columns of numbers and categories, which are encoded; 0: rows are lists of features."""

    @property
    def schema(self) -> pa.Schema:
        if not self.columns:
            return _READY
        return pa.schema({"label": pa.float64(), **{f"x{k}": _kind_of(k) for k in range(self.columns)}})

    def values(self, name: str, first: int, stop: int) -> pa.Array:
        """Of a column, in rows [first, stop)."""
        if name == "label":
            return pa.array([label_of(self, row) for row in range(first, stop)], pa.float64())
        k = int(name[1:])
        numbers = [(7 * row + 3 * k + self.name) % 5 for row in range(first, stop)]
        return pa.array([f"v{n}" for n in numbers] if k % 2 else [float(n) for n in numbers], _kind_of(k))

    def to_bytes(self) -> bytes:
        footer = json.dumps(self.__dict__).encode()
        return ToyFormat.magic + footer + struct.pack("<I", len(footer)) + ToyFormat.magic


def _kind_of(column: int) -> pa.DataType:
    return pa.string() if column % 2 else pa.float64()


@dataclass(frozen=True)
class _Footer:
    content: Content
    schema: pa.Schema
    nbytes: int = 100


class _OpenToy(OpenShard):
    def __init__(self, file: ShardFile, footer: Footer, fingerprint: Fingerprint, shard_format: ShardFormat) -> None:
        super().__init__(file, footer, fingerprint, shard_format)
        assert isinstance(footer, _Footer)
        self.content = footer.content

    def group_rows(self, columns: Sequence[str]) -> tuple[int, ...]:
        return self.content.rows

    def group_values(self, column: str) -> tuple[int, ...]:
        return tuple(rows * self.content.row_entries for rows in self.content.rows)

    def must_decode(self) -> bool:
        return self.content.decoded

    def decode(
        self, group: int, slice_rows: int, columns: Sequence[str], categories: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        first = sum(self.content.rows[:group])
        stop = first + self.content.rows[group]
        for start in range(first, stop, slice_rows):
            until = min(stop, start + slice_rows)
            yield pa.record_batch({name: self.content.values(name, start, until) for name in columns})

    def slices(self, group: int, columns: Sequence[str]) -> Slices:
        first = sum(self.content.rows[:group])
        return _Slices(self.content.values("label", first, first + self.content.rows[group]))


class _Slices:
    """Of the labels: the features are never read."""

    def __init__(self, labels: pa.Array) -> None:
        self._labels = labels

    def announce(self, file: ShardFile, start: int, stop: int) -> None:
        pass

    def lengths(self, file: ShardFile, start: int, stop: int, lists: str, take: Take) -> Ints:
        raise AssertionError("labels are no lists")

    def columns(self, file: ShardFile, start: int, stop: int, take: Take) -> dict[str, pa.Array]:
        return {"label": self._labels[start:stop]}


def label_of(content: Content, row: int) -> float:
    return content.labels[row % len(content.labels)]


class ToyFormat(ShardFormat):
    name: ClassVar[str] = "toy"
    group_name: ClassVar[str] = "group"
    suffixes: ClassVar[frozenset[str]] = frozenset({SUFFIX})
    magic: ClassVar[bytes] = b"TOYSHARD"

    def read_footer(self, file: ShardFile, place: FooterPlace, seen: Seen) -> Footer:
        footer = file.read(file.size - place.start, place.start)
        seen(footer)
        record = json.loads(footer[: place.stop - place.start])
        content = Content(**{**record, "rows": tuple(record["rows"]), "labels": tuple(record["labels"])})
        return _Footer(content, content.schema)

    def open(self, file: ShardFile, footer: Any, fingerprint: Fingerprint) -> OpenShard:
        return _OpenToy(file, footer, fingerprint, self)


def register() -> None:
    FORMATS["toy"] = ToyFormat()
