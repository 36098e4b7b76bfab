"""What a shard format is: it reads a footer, decodes groups of rows in order, and may read slices of them in place.

A format sees a shard as bytes at positions (`ShardFile`), on this disk or in an object store.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, RunError, StreampgsError, Unfinished, Unreadable
from streampgs.expressions.bounds import Bounds
from streampgs.stores.access import RemoteObject

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Take = Callable[[int], Bytes]
"""Memory for so many bytes."""

Seen = Callable[[Any], object]
"""Is given bytes, or an array of them."""

ShardPath = Path | RemoteObject
"""`str` of it is for people; `os.fspath` names a file on this disk."""


class Damaged(Exception):
    """Bytes that are not what the format allows."""


@dataclass(frozen=True)
class Fingerprint:
    """Identifies the content of a shard without reading its rows."""

    size: int
    modified_ns: int
    """0 for a shard in an object store: the time of its local copy means nothing."""
    footer_digest: str
    version: str = ""
    """The store's name for this content; empty for files."""


class ShardFile(ABC):
    """The bytes of an open shard."""

    path: ShardPath
    size: int

    @property
    @abstractmethod
    def stamp(self) -> tuple[object, ...] | None:
        """Changes whenever the content does; None while the file is too young for its time stamp to be trusted."""

    @abstractmethod
    def fingerprint(self, footer_digest: str) -> Fingerprint: ...

    @abstractmethod
    def read(self, size: int, offset: int) -> bytes:
        """Exactly so many bytes."""

    def read_all(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (size, offset)."""
        return [self.read(*one) for one in ranges]

    @abstractmethod
    def read_into(self, target: Bytes, offset: int) -> None: ...

    @abstractmethod
    def announce(self, offset: int, size: int) -> None:
        """Let the system read these bytes ahead."""

    def known_as(self, is_same: Callable[[ShardFile], bool]) -> None:  # only some files need it
        """How to recognise the content, if the file must be opened again."""

    @contextmanager
    def native(self) -> Iterator[Any]:
        """The file for pyarrow's decoders. They read through this object, which repeats reads that fail, and never through
        the name, which another file may have by now."""
        with pa.PythonFile(_Seekable(self), mode="r") as native:
            yield native

    @abstractmethod
    def close(self) -> None: ...


class _Seekable:
    """A shard as a file that has a position."""

    closed = False

    def __init__(self, source: ShardFile) -> None:
        self._source = source
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._source.size}[whence]
        return self._place

    def read(self, size: int) -> Bytes:
        data = np.empty(max(0, min(size, self._source.size - self._place)), np.uint8)
        self._source.read_into(data, self._place)
        self._place += len(data)
        return data

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class FooterPlace:
    """Where a file has its footer, without the length and the magic behind it."""

    start: int
    stop: int


class Footer(Protocol):
    """A parsed footer. It is shared by threads and never changes."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def nbytes(self) -> int:
        """Approximate memory."""


@lru_cache(maxsize=64)
def _first_equal(schema: pa.Schema) -> pa.Schema:
    return schema


def shared(schema: pa.Schema) -> pa.Schema:
    """Without metadata, and as one object for all files of one schema, of which there may be thousands."""
    found: pa.Schema = _first_equal(schema.remove_metadata())
    return found


class Slices(Protocol):
    """Rows of a group that can be read in place. The file is passed in, because it may be closed between two reads."""

    def announce(self, file: ShardFile, start: int, stop: int) -> None: ...

    def lengths(self, file: ShardFile, start: int, stop: int, lists: str, take: Take) -> Ints:
        """Lengths of the lists in rows [start, stop)."""

    def columns(self, file: ShardFile, start: int, stop: int, take: Take) -> dict[str, pa.Array]: ...


class OpenShard(ABC):
    """A shard whose footer is known."""

    def __init__(self, file: ShardFile, footer: Footer, fingerprint: Fingerprint, shard_format: ShardFormat) -> None:
        self.file = file
        self.fingerprint = fingerprint
        self.format = shard_format
        self.schema = footer.schema

    def __enter__(self) -> OpenShard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    @abstractmethod
    def group_rows(self, columns: Sequence[str]) -> tuple[int, ...]:
        """Rows of each group; an error if a group cannot have so many in these columns."""

    @abstractmethod
    def group_values(self, column: str) -> tuple[int, ...]:
        """How many values the lists of a column have in each group (Parquet counts an empty list as one)."""

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """The bounds of those columns (of a field of a struct: the dotted name) that the file has statistics of."""
        return {}

    @abstractmethod
    def must_decode(self) -> bool:
        """Whether no column can be read in place."""

    @abstractmethod
    def decode(
        self, group: int, slice_rows: int, columns: Sequence[str], categories: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """A group from its first row on, in batches of at most `slice_rows` rows. Safe to use from several threads.
        `categories`: strings that are wanted as a dictionary, where the format can give one."""

    def slices(self, group: int, columns: Sequence[str]) -> Slices:
        """The rows of a group in place; only for formats and files that need no decoding."""
        raise RunError(
            f"the run's catalog says that the rows of shard '{self.file.path}' are read in place, but they must be decoded",
            "the catalog is not of this run or was changed: restore it from a copy, or start a new run",
        )

    def check_columns(self, columns: Sequence[str]) -> None:
        names = set(self.schema.names)
        for name in columns:
            if name not in names:
                raise DataError(f"shard '{self.file.path}' has no column '{name}'", "restore it, or start a new run")

    def damaged(self, error: Exception, group: int | None = None) -> StreampgsError:
        where = "" if group is None else f", {self.format.group_name} {group}"
        if isinstance(error, MemoryError):
            return Unreadable(
                f"shard '{self.file.path}'{where} cannot be read: out of memory: {error}",
                "give the process more memory, or write smaller groups of rows; a size beyond all reason means "
                "that the file is damaged",
            )
        return DataError(f"shard '{self.file.path}'{where}: damaged: {error}", "write the file again")


class ShardFormat(ABC):
    """One object per format. The default footer is that of Arrow and Parquet: bytes, their number, the magic."""

    name: ClassVar[str]
    """Recorded in catalogs."""
    group_name: ClassVar[str]
    suffixes: ClassVar[frozenset[str]]
    magic: ClassVar[bytes]
    """The first and the last bytes of a file."""
    decodes_whole_groups: ClassVar[bool] = False
    """Whether decoding holds a whole group in memory."""
    column_bytes: ClassVar[int] = 0
    """What a decoder takes for each column besides the memory that pyarrow counts, as measured."""

    def footer_place(self, file: ShardFile) -> FooterPlace:
        tail_bytes = 4 + len(self.magic)
        tail = file.read(min(tail_bytes, file.size), max(0, file.size - tail_bytes))
        complete = len(tail) == tail_bytes and tail.endswith(self.magic)
        length = struct.unpack("<I", tail[:4])[0] if complete else 0
        if not complete or length + tail_bytes + len(self.magic) > file.size:
            raise Unfinished(
                f"shard '{file.path}' has no footer: it is truncated, or still being written",
                "remove it, or wait until its writer has finished",
            )
        stop = file.size - tail_bytes
        return FooterPlace(stop - length, stop)

    @abstractmethod
    def read_footer(self, file: ShardFile, place: FooterPlace, seen: Seen) -> Footer:
        """`seen` is given all bytes from the footer to the end of the file, in their order. Damaged bytes raise Damaged or
        an error of pyarrow."""

    @abstractmethod
    def open(self, file: ShardFile, footer: Any, fingerprint: Fingerprint) -> OpenShard:
        """`footer`: from `read_footer`."""
