"""The catalog: the shards, their groups of rows, and how each file is recognised.

Shards are numbered in the order of their arrival and never renumbered; new ones are appended.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.checks import decode, encode
from streampgs.base.errors import DataChanged, DataError, Unfinished, counted
from streampgs.base.faults import exists
from streampgs.encoding.encoding import Encoding
from streampgs.formats.format import Fingerprint, ShardPath
from streampgs.formats.local import content_digest, unreadable
from streampgs.formats.registry import FORMATS, fingerprint_of, open_shard, present_version, suffixes
from streampgs.formats.remote import what_changed
from streampgs.stores.access import ASKERS, RemoteObject
from streampgs.stores.addresses import is_address
from streampgs.table.layout import DENSE, SPARSE, Columns, Layout, find_layout, refuse_missing
from streampgs.table.locate import Located, locate
from streampgs.table.partitions import Constant, LogSchema, partitions_of, with_partitions

_SHARDS_AT_ONCE = 256
_MISSING = "is missing"
_TOUCHED = "was modified (same size and footer, different time stamp)"
_READERS = 4  # threads; for the latency of disks: on files in memory more of them only contend for the interpreter


@dataclass(frozen=True)
class Shard:
    path: ShardPath
    format: str
    """The name of its format."""
    fingerprint: Fingerprint
    layout: Layout
    decoded: bool
    """Whether its rows must be decoded before they can be sliced."""
    cached: bool
    """Whether decoded slices are kept on disk for later epochs."""
    group_rows: tuple[int, ...]
    group_entries: tuple[int, ...]
    content: str = ""
    """A digest of some of its bytes; empty for an object, which is identified by its version."""
    file_rows: tuple[int, ...] = ()
    """Rows of each group in the file, if `group_rows` counts only those that fulfil the condition of the layout."""

    @property
    def left_out(self) -> int:
        """Rows that do not fulfil the condition."""
        return sum(self.file_rows) - self.rows if self.file_rows else 0

    @property
    def rows(self) -> int:
        return sum(self.group_rows)

    @property
    def entries(self) -> int:
        return sum(self.group_entries)

    @property
    def group_name(self) -> str:
        """The format's word for a group."""
        return FORMATS[self.format].group_name

    @cached_property
    def content_identity(self) -> str:
        """Identifies the content without the time stamp, which copying changes."""
        return self._digest(self.fingerprint.size, self.fingerprint.footer_digest, self.format)

    @cached_property
    def identity(self) -> str:
        """Identifies this content by its footer, wherever the file is. Two shards of the same shape that were written at
        the same time may share it."""
        return self._digest(asdict(self.fingerprint), self.format, encode(self.layout))

    def _digest(self, *facts: object) -> str:
        counts = [self.group_rows, self.group_entries, *([self.file_rows] if self.file_rows else [])]
        return hashlib.sha256(json.dumps([*facts, *counts]).encode()).hexdigest()[:32]


class Catalog:
    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        self.group_rows = np.fromiter(chain.from_iterable(s.group_rows for s in self.shards), np.int64)
        self.group_entries = np.fromiter(chain.from_iterable(s.group_entries for s in self.shards), np.int64)
        counts = [len(s.group_rows) for s in self.shards]
        self.shard_starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        """The first group of each shard, followed by the number of groups."""

    @cached_property
    def row_starts(self) -> NDArray[np.int64]:
        """The first row of each group, followed by the number of rows."""
        return np.concatenate([[0], np.cumsum(self.group_rows)]).astype(np.int64)

    @property
    def rows(self) -> int:
        return int(self.group_rows.sum())

    @property
    def left_out(self) -> int:
        """Rows that do not fulfil the condition."""
        return sum(shard.left_out for shard in self.shards)

    @property
    def groups(self) -> int:
        return int(self.shard_starts[-1])

    @property
    def kind(self) -> str:
        """Sparse if any shard is: dense rows can be stored as sparse ones."""
        return SPARSE if any(shard.layout.kind == SPARSE for shard in self.shards) else DENSE

    def shard_of(self, group: int) -> tuple[int, int]:
        """(number of the shard, number of the group in the shard)."""
        shard = int(np.searchsorted(self.shard_starts, group, side="right")) - 1
        return shard, group - int(self.shard_starts[shard])

    def per_group(self, values: Iterable[bool]) -> NDArray[np.bool_]:
        """One value per shard, repeated for each of its groups."""
        return np.repeat(np.fromiter(values, np.bool_, len(self.shards)), np.diff(self.shard_starts))

    def first(self, shards: int) -> Catalog:
        return Catalog(self.shards[:shards])

    def as_at_the_start(self) -> Catalog:
        """Without shards that brought new columns or classes, which no checkpoint knows yet."""
        first = self.shards[0].layout
        alike = (s.layout.encoding == first.encoding and s.layout.classes == first.classes for s in self.shards)
        return self.first(sum(1 for _ in takewhile(bool, alike)))

    def digest(self, shards: int | None = None) -> str:
        """A digest of the first `shards` shards by content and order, wherever they are."""
        digest = hashlib.sha256()
        for shard in self.shards[:shards]:
            digest.update(shard.content_identity.encode())
        return digest.hexdigest()

    def appended(self, new: Sequence[Shard]) -> Catalog:
        catalog = Catalog((*self.shards, *new))
        catalog.check_agreement()
        return catalog

    def check_agreement(self) -> None:
        """Refuse shards with different kinds of rows, unless they are encoded."""
        reference = self.shards[0]
        for shard in self.shards:
            if shard.layout.encoding is not None:
                continue
            found, expected = shard.layout, reference.layout
            if found.kind != expected.kind:
                raise DataError(
                    f"shard '{shard.path}' holds {found.kind} rows, but '{reference.path}' holds {expected.kind} rows",
                    "train on shards of one kind",
                )
            if found.kind == DENSE and None not in (found.width, expected.width) and found.width != expected.width:
                raise DataError(
                    f"shard '{shard.path}' has {found.width} features a row, but '{reference.path}' has {expected.width}",
                    "train on shards of one width",
                )

    def check_unchanged(self, accept_touched: bool = False, retired: Collection[int] = ()) -> None:
        """Raise an error that names each file that differs from the catalogued one. Retired and empty shards do not
        matter."""
        live = [shard for number, shard in enumerate(self.shards) if number not in retired and shard.rows > 0]

        def fault(shard: Shard) -> str | None:
            if isinstance(shard.path, RemoteObject):
                return what_changed(shard.path)
            if not exists(shard.path):
                return f"'{shard.path}' {_MISSING}"
            try:
                now = fingerprint_of(shard.path)
            except DataError as error:
                return error.found
            was = shard.fingerprint
            if now.size != was.size:
                return f"'{shard.path}' has {now.size:,} bytes; it had {was.size:,}"
            if now.footer_digest != was.footer_digest:
                return f"'{shard.path}' was replaced: its footer has changed"
            if now.modified_ns != was.modified_ns and not accept_touched:
                return f"'{shard.path}' {_TOUCHED}"
            return None

        with ThreadPoolExecutor(ASKERS if self.remote else _READERS) as pool:
            faults = [found for found in pool.map(fault, live) if found]
        if faults:
            used = len(self.shards) - len(set(retired))
            head = f"{len(faults)} of {used} shards have changed:"
            more = [f"… and {len(faults) - 10} more"] if len(faults) > 10 else []
            remedies = ["restore them or start a new run; or continue"]
            if any(found.endswith(_TOUCHED) for found in faults):
                remedies.append(
                    "with --accept-touched if files were only copied or touched: no row is trained on again"
                )
            if any(found.endswith(_MISSING) for found in faults):
                remedies.append("with --accept-removed if files were deleted on purpose: it accepts no other change")
            if not all(found.endswith(_MISSING) for found in faults):
                remedies.append(
                    "with --accept-changes on the files as they are now: rows of changed shards are no longer trained "
                    "on, those with new content join as new rows"
                )
            raise DataChanged([head, *faults[:10], *more], remedies)

    def with_present_times(self, numbers: Collection[int]) -> Catalog:
        """The catalog with the present time stamps of these shards."""

        def present(number: int) -> Shard:
            shard = self.shards[number]
            if number not in numbers or isinstance(shard.path, RemoteObject):
                return shard
            return replace(shard, fingerprint=fingerprint_of(shard.path))

        with ThreadPoolExecutor(_READERS) as pool:
            return Catalog(list(pool.map(present, range(len(self.shards)))))

    def with_moved(self, places: Mapping[int, Path]) -> Catalog:
        """The catalog with the new paths of moved shards; their time stamps may have changed."""
        shards = [
            replace(shard, path=places[number]) if number in places else shard
            for number, shard in enumerate(self.shards)
        ]
        return Catalog(shards).with_present_times(places)

    @cached_property
    def remote(self) -> list[RemoteObject]:
        """The shards in object stores."""
        return [shard.path for shard in self.shards if isinstance(shard.path, RemoteObject)]

    def with_copies_in(self, folder: Path) -> Catalog:
        """The same shards; remote ones get a place on this disk for their copies."""

        def placed(shard: Shard) -> Shard:
            remote = shard.path
            return replace(shard, path=replace(remote, folder=folder)) if isinstance(remote, RemoteObject) else shard

        return Catalog([placed(shard) for shard in self.shards])

    def to_table(self) -> pa.Table:
        layouts = {layout: json.dumps(encode(layout)) for layout in {s.layout for s in self.shards}}
        records = [
            {**vars(s), **asdict(s.fingerprint), "path": os.fsencode(str(s.path)), "layout": layouts[s.layout]}
            for s in self.shards
        ]
        return pa.Table.from_pylist(records, schema=_SCHEMA)

    @staticmethod
    def from_table(table: pa.Table) -> Catalog:
        layout_of = lru_cache(maxsize=64)(lambda text: decode(Layout, json.loads(text)))

        def shard(record: dict[str, Any]) -> Shard:
            name = os.fsdecode(record["path"])
            found = Fingerprint(**{each.name: record.pop(each.name) for each in fields(Fingerprint)})
            path = RemoteObject(name, found.size, found.version) if is_address(name) else Path(name)
            counts = {each: _alike(record[each]) for each in ("group_rows", "group_entries", "file_rows")}
            return Shard(
                **record | counts | {"path": path, "fingerprint": found, "layout": layout_of(record["layout"])}
            )

        return Catalog([shard(record) for batch in table.to_batches(_SHARDS_AT_ONCE) for record in batch.to_pylist()])


_SCHEMA = pa.schema(
    {
        "path": pa.binary(),
        "format": pa.string(),
        "size": pa.int64(),
        "modified_ns": pa.int64(),
        "footer_digest": pa.string(),
        "version": pa.string(),
        "layout": pa.string(),
        "decoded": pa.bool_(),
        "cached": pa.bool_(),
        "group_rows": pa.list_(pa.int64()),
        "group_entries": pa.list_(pa.int64()),
        "content": pa.string(),
        "file_rows": pa.list_(pa.int64()),
    }
)


@lru_cache(maxsize=64)
def _shared(layout: Layout) -> Layout:
    """One object for all shards of one layout."""
    return layout


def _alike(numbers: Iterable[int]) -> tuple[int, ...]:
    """With one object for equal numbers: most groups of a shard have as many rows."""
    known: dict[int, int] = {}
    return tuple(known.setdefault(number, number) for number in numbers)


@dataclass(frozen=True)
class Surveyed:
    """A shard whose footer was read, with all of its columns and its table's log."""

    shard: Shard
    schema: pa.Schema
    log: LogSchema | None

    @property
    def whole_schema(self) -> pa.Schema:
        """With the columns in the names of folders, or of the table if it has a log."""
        if self.log is not None:
            return self.log.schema
        return with_partitions(self.schema, self.constants)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The columns that the file does not have."""
        return partitions_of(str(self.shard.path), self.schema) if self.log is None else self.log.lacking(self.schema)

    def laid_out(self, columns: Columns) -> Shard:
        """The shard with the layout of columns that are to be encoded; nothing is read again."""
        layout = _shared(find_layout(self.schema, columns, str(self.shard.path), self.log))
        entries = _encoded_entries(self.shard.group_rows, columns)
        return replace(self.shard, layout=layout, decoded=True, group_entries=entries)


def survey(paths: Sequence[ShardPath], columns: Columns | None, logs: Mapping[ShardPath, LogSchema]) -> list[Surveyed]:
    """The shards at these paths, by their footers, read in parallel; `columns`: None if `laid_out` is to follow."""
    remote = any(isinstance(path, RemoteObject) for path in paths)
    with ThreadPoolExecutor(ASKERS if remote else _READERS, "streampgs-footers") as pool:
        return list(pool.map(lambda path: surveyed(path, columns, logs.get(path)), paths))


def surveyed(path: ShardPath, columns: Columns | None, log: LogSchema | None = None) -> Surveyed:
    """One shard, in its present version."""
    path = present_version(path)
    try:
        with open_shard(path) as file:
            if columns is None:
                layout = Layout(SPARSE, tuple(file.schema.names[:1]))
            else:
                layout = _shared(find_layout(file.schema, columns, str(path), log))
            rows = _alike(file.group_rows(layout.columns))
            if columns is None or columns.encoding is not None:
                entries, decoded = _encoded_entries(rows, columns), True
            else:
                entries = file.group_values(layout.lists)
                decoded = bool(columns.expressions) or file.must_decode()
            content = content_digest(path) if isinstance(path, Path) else ""
            shard = Shard(path, file.format.name, file.fingerprint, layout, decoded, False, rows, entries, content)
            return Surveyed(shard, file.schema, log)
    except OSError as error:
        raise unreadable(path, error) from error


def _encoded_entries(rows: Iterable[int], columns: Columns | None) -> tuple[int, ...]:
    """Estimates of the entries that groups of so many rows will have."""
    encoding = None if columns is None else columns.encoding
    each = encoding.entries_per_row if isinstance(encoding, Encoding) else 1.0
    return _alike(math.ceil(count * each) for count in rows)


def located_shards(sources: Sequence[str]) -> Located:
    """The present shards of the sources; at least one."""
    located = locate(sources)
    if not located.paths:
        raise DataError(
            f"no shards in {', '.join(sources)}",
            f"shards end in {', '.join(suffixes())}; other files become shards by: `streampgs pack IN… OUT`",
        )
    return located


def why_unfinished(path: ShardPath) -> Unfinished | None:
    """The error of a shard that has no footer; None: it is complete."""
    try:
        if isinstance(path, Path):
            fingerprint_of(path)
        else:
            open_shard(present_version(path)).close()
    except Unfinished as error:
        return error
    return None


def whole_shards(paths: Sequence[ShardPath]) -> list[ShardPath]:
    """The complete shards: the others are still being written."""
    with ThreadPoolExecutor(_READERS) as pool:
        return [path for path, fault in zip(paths, pool.map(why_unfinished, paths), strict=True) if fault is None]


def surveyed_shards(sources: Sequence[str], columns: Columns) -> list[Surveyed]:
    """The present shards of the sources; an error if all of them lack a column."""
    located = located_shards(sources)
    found = survey(located.paths, columns, located.logs)
    refuse_missing({str(one.shard.path): one.whole_schema for one in found}, columns)
    return found


def build_catalog(sources: Sequence[str], columns: Columns) -> Catalog:
    """The catalog of the present shards of the sources."""
    return catalog_of([one.shard for one in surveyed_shards(sources, columns)], sources)


def catalog_of(shards: Sequence[Shard], sources: Sequence[str]) -> Catalog:
    """A catalog with at least one row."""
    catalog = Catalog([]).appended(shards)
    if catalog.rows == 0 and catalog.left_out:
        raise none_selected(catalog.left_out, sources, catalog.shards[0].layout.where)
    if catalog.rows == 0:
        raise DataError(
            f"no rows in {counted(len(catalog.shards), 'shard')} of {', '.join(sources)}",
            "name shards that hold rows",
        )
    return catalog


def none_selected(rows: int, sources: Sequence[str], where: str | None) -> DataError:
    return DataError(
        f'none of {counted(rows, "row")} of {", ".join(sources)} fulfils `--where "{where}"`',
        "check the condition, or give `--where true` for all rows; a row where the condition is null does not fulfil it",
    )


def with_cache(shards: Sequence[Shard], cached_bytes: int, limit_bytes: int | None) -> tuple[list[Shard], int]:
    """Mark the shards whose decoded slices are cached: in catalog order, as long as they fit the limit (None: all).

    The marks decide the order of rows, so the limit is a choice of the user and never a property of the machine.
    `cached_bytes` is the size of the slices of earlier shards; the new total is returned. Copies of shards in object
    stores get half of a limit."""
    if limit_bytes is not None and any(isinstance(shard.path, RemoteObject) for shard in shards):
        limit_bytes //= 2
    marked = []
    for shard in shards:
        needed = decoded_bytes(shard) if shard.decoded else 0
        fits = shard.decoded and (limit_bytes is None or cached_bytes + needed <= limit_bytes)
        cached_bytes += needed if fits else 0
        marked.append(replace(shard, cached=fits))
    return marked, cached_bytes


def packed_bytes(shard: Shard) -> int:
    """About the bytes of its rows in the cache, which is seldom more than twice as large as the file."""
    return min(decoded_bytes(shard), 2 * shard.fingerprint.size)


def decoded_bytes(shard: Shard) -> int:
    """Approximate bytes of the needed columns, decoded."""
    entry_bytes = 8 if shard.layout.kind == "sparse" else 4
    return shard.entries * entry_bytes + shard.rows * 24
