"""A shard format without rows: a footer says how many rows there are, and which labels they have."""

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
_SCHEMA = pa.schema({"label": pa.float64(), "indices": pa.list_(pa.int32())})


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

    def to_bytes(self) -> bytes:
        footer = json.dumps(self.__dict__).encode()
        return ToyFormat.magic + footer + struct.pack("<I", len(footer)) + ToyFormat.magic


@dataclass(frozen=True)
class _Footer:
    content: Content
    schema: pa.Schema = _SCHEMA
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
        labels = self._labels(group)
        for start in range(0, len(labels), slice_rows):
            yield pa.record_batch({"label": labels[start : start + slice_rows]})

    def slices(self, group: int, columns: Sequence[str]) -> Slices:
        return _Slices(self._labels(group))

    def _labels(self, group: int) -> pa.Array:
        first = sum(self.content.rows[:group])
        labels = [label_of(self.content, first + row) for row in range(self.content.rows[group])]
        return pa.array(labels, pa.float64())


class _Slices:
    """Of the labels: the features are never read."""

    def __init__(self, labels: pa.Array) -> None:
        self._labels = labels

    def announce(self, file: ShardFile, start: int, stop: int) -> None:
        pass

    def lengths(self, file: ShardFile, start: int, stop: int, lists: str, take: Take) -> Ints:
        raise NotImplementedError

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
        return _Footer(Content(**{**record, "rows": tuple(record["rows"]), "labels": tuple(record["labels"])}))

    def open(self, file: ShardFile, footer: Any, fingerprint: Fingerprint) -> OpenShard:
        return _OpenToy(file, footer, fingerprint, self)


def register() -> None:
    FORMATS["toy"] = ToyFormat()
