"""Delta Lake tables: which files a table's log counts, what it says of them, and what became of those known before.

The log is read by the package `deltalake`, which is only loaded where a table is met.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from streampgs.errors import DataError, OptionError
from streampgs.stores.access import RemoteObject, looked_up, opened, settings_for_rust
from streampgs.stores.addresses import is_address, parse
from streampgs.stores.patience import Absent, patiently, without_secrets
from streampgs.table.partitions import Constant, LogSchema, can_be_constant

LOG = "_delta_log"

# What can be read as a list of whole files. Of the others the first two hide rows or columns that the files hold.
_KNOWN_FEATURES = frozenset(
    {
        *("deletionVectors", "columnMapping"),  # looked at more closely
        *("timestampNtz", "typeWidening", "typeWidening-preview", "variantType", "variantType-preview"),  # only types
        *("variantShredding", "variantShredding-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck"),  # only the log
    }
)
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TRACE = re.compile(r"\n\s*0: .*", re.DOTALL)


@dataclass(frozen=True)
class DeltaListing:
    """The files of one version of a table, in the order of their coming."""

    source: str
    """The table's folder, from the root on, or its address."""
    version: int
    files: tuple[Path | RemoteObject, ...]
    logs: tuple[LogSchema, ...]
    """Of each file."""

    def __str__(self) -> str:
        return f"Delta table '{self.source}', version {self.version}: {len(self.files):,} files"


def list_table(source: str) -> DeltaListing:
    """The newest version. Its files come by the times of their writing, which the log keeps as long as the files (it
    forgets the versions that brought them), then by name: the same version is always in the same order."""
    source = str(parse(source.rstrip("/"))) if is_address(source) else os.path.abspath(source)
    try:
        deltalake = import_module("deltalake")
    except ImportError:
        raise OptionError(
            f"'{source}' is a Delta table, and the package deltalake, which reads its log, is not installed",
            "pip install 'streampgs[delta]'",
        ) from None
    try:
        return patiently(source, lambda: _listed(deltalake, source))
    except deltalake.exceptions.TableNotFoundError:
        raise DataError(
            f"'{source}' has a folder '{LOG}', but no version of a Delta table in it",
            "wait until its first version is written; if it is no Delta table, take that folder away",
        ) from None
    except deltalake.exceptions.DeltaError as error:
        raise DataError(
            f"the log of Delta table '{source}' cannot be read: {_plainly(error)}",
            "read it with the writer that made it, and write its rows to a table without what is named here; if the log "
            "is damaged, restore it",
        ) from None


def _opened(deltalake: Any, source: str) -> Any:
    if set("%\\") & set(source):
        raise DataError(
            f"Delta table '{source}': the package deltalake cannot open a path with '%' or '\\' in it",
            "give the folder another name, or a link to it",
        )
    options = settings_for_rust(parse(source)) if is_address(source) else None
    try:
        return deltalake.DeltaTable(source, storage_options=options)
    except OSError as error:
        raise type(error)(_plainly(error)) from None


def _listed(deltalake: Any, source: str) -> DeltaListing:
    table = _opened(deltalake, source)
    _refuse_more_than_files(table, source)
    schema = pa.schema(table.schema().to_arrow())
    actions = pa.table(table.get_add_actions())
    actions = actions.sort_by([("modification_time", "ascending"), ("path", "ascending")])
    paths: list[str] = actions.column("path").to_pylist()
    for path in paths:
        if _ELSEWHERE.match(path):
            raise DataError(
                f"Delta table '{source}' counts files outside its folder, '{unquote(path)}' first (is it a shallow clone?)",
                "name the table that it was cloned from, or clone it with its files",
            )
    logs = [LogSchema(schema, constants) for constants in _constants(actions, table.metadata().partition_columns)]
    return DeltaListing(source, table.version(), tuple(_at(source, path) for path in paths), tuple(logs))


def _at(source: str, path: str) -> Path | RemoteObject:
    """A path of the log, where words are written as in addresses of the web."""
    return RemoteObject(f"{source.rstrip('/')}/{unquote(path)}") if is_address(source) else Path(source, unquote(path))


def _constants(actions: pa.Table, names: list[str]) -> Iterator[tuple[Constant, ...]]:
    """The values of each file's partition columns."""
    columns = []
    for name in names:
        column = actions.column("partition").combine_chunks().field(name)
        if can_be_constant(column.type):
            columns.append([Constant(name, text, str(column.type)) for text in column.cast(pa.string()).to_pylist()])
    return zip(*columns, strict=True) if columns else iter([()] * len(actions))


def _plainly(error: Exception) -> str:
    words = _TRACE.sub("", _COLOURS.sub("", str(error)))
    return without_secrets(" ".join(words.replace("↳", "–").split()))


def _refuse_more_than_files(table: Any, source: str) -> None:
    features = set(table.protocol().reader_features or ())
    unknown = features - _KNOWN_FEATURES
    if unknown:
        raise DataError(
            f"Delta table '{source}' needs what cannot be read here: {', '.join(sorted(unknown))}",
            "write its rows to a table without it, or to Parquet files",
        )
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise DataError(
            f"Delta table '{source}' gives columns other names than its files have (column mapping by {mode})",
            "write its rows to a table without column mapping (delta.columnMapping.mode = none), or to Parquet files",
        )
    if "deletionVectors" in features:
        # Only those files are given that have one.
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            raise DataError(
                f"Delta table '{source}' has deleted rows that its files still hold (deletion vectors), first in "
                f"'{unquote(batch.column(0)[0].as_py())}'",
                "have them purged (REORG TABLE … APPLY (PURGE)), and set delta.enableDeletionVectors = false",
            )


def part_of_table(source: str, table: object) -> DataError:
    return DataError(
        f"'{source}' reaches into Delta table '{table}', whose log tells which files count",
        f"name the table itself: '{table}'",
    )


# What became of files known before.


@dataclass(frozen=True)
class Removal:
    """A version that took known files away."""

    version: int | None
    """None: the log does not reach back so far."""
    operation: str
    """As its writer calls it."""
    files: int
    keeps_rows: bool
    """The same rows lie in other files: tables are compacted and put in order so."""

    def __str__(self) -> str:
        if self.version is None:
            return f"a version that the log has forgotten took {_counted(self.files)} away"
        rows = "its rows lie in other files" if self.keeps_rows else "rows were changed or deleted"
        return f"version {self.version}, {self.operation}, took {_counted(self.files)} away: {rows}"


@dataclass(frozen=True)
class TableChange:
    """A table's newest version beside the files that were known of it."""

    listing: DeltaListing
    known: int
    added: tuple[Path | RemoteObject, ...]
    """In the listing's order."""
    gone: tuple[Path | RemoteObject, ...]
    removals: tuple[Removal, ...]
    """Oldest first; they account for all that is gone."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of what is gone are all still there, among what was added."""
        return all(removal.keeps_rows for removal in self.removals)

    def __str__(self) -> str:
        head = (
            f"Delta table '{self.listing.source}', version {self.listing.version}: {_counted(len(self.added))} came to "
            f"the {self.known:,} known, {len(self.gone):,} of those are no longer part of it"
        )
        return "\n  ".join([head, *map(str, self.removals)])


def change_of(listing: DeltaListing, catalogued: Iterable[Path | RemoteObject]) -> TableChange:
    """What the newest version has that is not among the `catalogued` shards, and which of those that lie in the table's
    folder it has no longer. The log is only read where files are gone, from the newest version back to the last that
    took one away."""
    start = listing.source.rstrip("/") + "/"
    known = {path: None for path in catalogued if str(path).startswith(start)}
    active = set(listing.files)
    gone = {path for path in known if path not in active}
    removals = _removals(listing, gone) if gone else []
    return TableChange(
        listing,
        len(known),
        tuple(path for path in listing.files if path not in known),
        tuple(path for path in known if path in gone),
        tuple(removals),
    )


def _removals(listing: DeltaListing, gone: set[Path | RemoteObject]) -> list[Removal]:
    found = []
    sought = set(gone)
    for version in range(listing.version, -1, -1):
        commit = _commit(listing.source, version) if sought else None
        if commit is None:
            break
        removed = [action["remove"] for action in commit if "remove" in action]
        ours = [removal for removal in removed if _at(listing.source, removal["path"]) in sought]
        if ours:
            sought -= {_at(listing.source, removal["path"]) for removal in ours}
            keeps_rows = not any(removal.get("dataChange", True) for removal in ours)
            found.append(Removal(version, _operation(commit), len(ours), keeps_rows))
    if sought:
        found.append(Removal(None, "", len(sought), keeps_rows=False))
    return found[::-1]


def _commit(source: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a version; None: the log no longer has it."""
    path = _at(source, f"{LOG}/{version:020}.json")
    try:
        if isinstance(path, RemoteObject):
            with opened(looked_up(path.address)) as file:
                text = file.read(file.size, 0)
        else:
            text = path.read_bytes()
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (FileNotFoundError, Absent):
        return None
    except (OSError, ValueError) as error:
        raise DataError(
            f"version {version} of Delta table '{source}' cannot be read: {error}", "restore the table's log"
        ) from error


def _operation(commit: list[dict[str, Any]]) -> str:
    told: dict[str, Any] = next((action["commitInfo"] for action in commit if "commitInfo" in action), {})
    mode = (told.get("operationParameters") or {}).get("mode")
    operation = str(told.get("operation") or "an operation without a name")
    return f"{operation} ({mode})" if mode else operation


def _counted(files: int) -> str:
    return "1 file" if files == 1 else f"{files:,} files"
