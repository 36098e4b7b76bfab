"""Delta Lake tables: the files of the newest version, and the changes since a catalog was made.

The package `deltalake` reads the log. It is loaded at the first table.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote_to_bytes

import msgspec
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError, counted
from streampgs.base.files import reading
from streampgs.formats.format import ShardPath
from streampgs.stores.access import RemoteObject, looked_up, opened, settings_for_rust
from streampgs.stores.addresses import is_address, parse
from streampgs.stores.patience import Absent, patiently, without_secrets
from streampgs.table.partitions import Constant, LogSchema, can_be_constant

LOG = "_delta_log"

# Features with which a table is still a list of whole files.
_KNOWN_FEATURES = frozenset(
    {
        *("deletionVectors", "columnMapping"),  # checked below
        *("timestampNtz", "typeWidening", "typeWidening-preview", "variantType", "variantType-preview"),  # only types
        *("variantShredding", "variantShredding-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck"),  # only the log
    }
)
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")
_UNOPENABLE = re.compile(r"[%\\\x00-\x1f\x7f\ud800-\udfff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TRACE = re.compile(r"\n\s*0: .*", re.DOTALL)


@dataclass(frozen=True)
class DeltaListing:
    """The files of one version of a table, the oldest first."""

    source: str
    """The absolute path of the table's folder, or its address."""
    version: int
    files: tuple[ShardPath, ...]
    logs: tuple[LogSchema, ...]
    """The schema and constants of each file."""

    def __str__(self) -> str:
        return f"Delta table '{self.source}', version {self.version}: {len(self.files):,} files"


def list_table(source: str) -> DeltaListing:
    """The newest version. Its files are ordered by modification time, which the log keeps as long as the files, then by
    name, so that the same version always has the same order."""
    source = str(parse(source.rstrip("/"))) if is_address(source) else os.path.abspath(source)
    try:
        deltalake = import_module("deltalake")
    except ImportError:
        raise OptionError(
            f"'{source}' is a Delta table, and the package deltalake, which reads its log, is not installed",
            "pip install 'streampgs[delta]'",
        ) from None
    if not is_address(source):
        _check_log(Path(source, LOG), source)
    try:
        return patiently(source, lambda: _listed(deltalake, source))
    except deltalake.exceptions.TableNotFoundError:
        raise DataError(
            f"'{source}' has a folder '{LOG}', but no version of a Delta table in it",
            "wait until its first version is written; if it is not a Delta table, remove that folder",
        ) from None
    except (deltalake.exceptions.DeltaError, pa.ArrowException) as error:
        raise DataError(
            f"the log of Delta table '{source}' cannot be read: {_plainly(error)}",
            "read it with the program that wrote it, and write its rows to a table without this feature; if the log is "
            "damaged, restore it",
        ) from None


def _opened(deltalake: Any, source: str) -> Any:
    if _UNOPENABLE.search(source):
        raise DataError(
            f"Delta table '{source}': the package deltalake cannot open a path with '%', '\\', control characters or bytes "
            "that are not UTF-8",
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
    _refuse_elsewhere(source, paths)
    logs = [LogSchema(schema, constants) for constants in _constants(actions, table.metadata().partition_columns)]
    return DeltaListing(source, table.version(), tuple(_at(source, path) for path in paths), tuple(logs))


def _refuse_elsewhere(source: str, paths: Iterable[str]) -> None:
    """Refuse a path of the log that leads out of the table's folder, directly or by a link."""
    inside = _Inside(source)
    for path in paths:
        plain = _plain(path)
        if _ELSEWHERE.match(path) or _ELSEWHERE.match(plain) or ".." in plain.split("/") or "\0" in plain:
            raise DataError(
                f"Delta table '{source}' lists files outside its folder, '{plain}' first (is it a shallow clone?)",
                "name the table that it was cloned from, or clone it with its files",
            )
        if not is_address(source) and not inside.holds(os.path.join(source, plain)):
            raise DataError(
                f"'{plain}' in Delta table '{source}' is a link to a place outside the table's folder",
                "put the file itself in its place",
            )


def _plain(path: str) -> str:
    """A path of the log, which is quoted as in a URL."""
    return os.fsdecode(unquote_to_bytes(path))


def _at(source: str, path: str) -> ShardPath:
    return RemoteObject(f"{source.rstrip('/')}/{_plain(path)}") if is_address(source) else Path(source, _plain(path))


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
            f"Delta table '{source}' uses features that are not supported: {', '.join(sorted(unknown))}",
            "write its rows to a table without them, or to Parquet files",
        )
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise DataError(
            f"Delta table '{source}' has other column names than its files (column mapping by {mode})",
            "write its rows to a table without column mapping (delta.columnMapping.mode = none), or to Parquet files",
        )
    if "deletionVectors" in features:
        # Lists only the files that have one.
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            raise DataError(
                f"Delta table '{source}' has deleted rows that its files still hold (deletion vectors), first in "
                f"'{_plain(batch.column(0)[0].as_py())}'",
                "have them purged (REORG TABLE … APPLY (PURGE)), and set delta.enableDeletionVectors = false",
            )


def part_of_table(source: str, table: object) -> DataError:
    return DataError(
        f"'{source}' is a part of Delta table '{table}', whose log tells which files count",
        f"name the table itself: '{table}'",
    )


# The files of the log, before the package deltalake reads them. It would follow links out of the table, wait for pipes, and
# end the process at JSON that is nested deeply.

_LARGEST_FILE = 128 << 20
"""Bytes of a file. deltalake may take 25 bytes of memory for two of them."""
_CHECKPOINT = ".checkpoint.parquet"
_DIGITS = 20
"""The digits of the version that a file's name begins with."""


class _Inside:
    """Which paths stay in a folder when links are followed."""

    def __init__(self, folder: str) -> None:
        self._root = os.path.realpath(folder)
        self._folders: dict[str, bool] = {}

    def holds(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = self._is_below(folder)
        return self._folders[folder] and (not os.path.islink(path) or self._is_below(path))

    def _is_below(self, path: str) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(path)]) == self._root


def _check_log(log: Path, table: str) -> None:
    """Refuse a log with a file that cannot be read safely. JSON that a checkpoint replaces is not read."""
    inside, paths = _Inside(table), [log, *log.rglob("*")]
    newest = max((path.name[:_DIGITS] for path in paths if path.name.endswith(_CHECKPOINT)), default="")
    for path in paths:
        if not inside.holds(str(path)):
            raise _odd(path, "is a link to a place outside the table's folder")
        if not path.is_dir() and path.suffix != ".parquet" and path.name[:_DIGITS] > newest:
            _check_json(path)


def _check_json(path: Path) -> None:
    try:
        with reading(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST_FILE:
                raise _odd(path, f"has {size:,} bytes; at most {_LARGEST_FILE:,} are read")
            for line in filter(bytes.strip, file):
                msgspec.json.decode(line, type=msgspec.Raw)  # which makes no values, and stops at 1,000 levels or so
    except FileNotFoundError:
        return  # a log is cleaned up while it is read
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise _odd(path, f"cannot be read: {error}") from error


def _odd(path: Path, what: str) -> DataError:
    return DataError(f"'{path}', a part of a Delta table's log, {what}", "restore the table's log")


# Changes since a catalog was made.


@dataclass(frozen=True)
class Removal:
    """A version that removed known files."""

    version: int | None
    """None: the log no longer has it."""
    operation: str
    """The name that its writer gave it."""
    files: int
    keeps_rows: bool
    """The rows were only rewritten to other files, as by OPTIMIZE."""
    adds: bool = True
    """Other files may have a part of the rows."""

    def __str__(self) -> str:
        if self.version is None:
            return f"a version that the log no longer has removed {counted(self.files, 'file')}"
        rows = "its rows are in other files" if self.keeps_rows else "rows were changed or deleted"
        return f"version {self.version}, {self.operation}, removed {counted(self.files, 'file')}: {rows}"


@dataclass(frozen=True)
class TableChange:
    """The newest version of a table, compared with the files of it that a catalog has."""

    listing: DeltaListing
    known: int
    added: tuple[ShardPath, ...]
    """In the listing's order."""
    gone: tuple[ShardPath, ...]
    removals: tuple[Removal, ...]
    """Oldest first; they explain all files in `gone`."""
    rewritten: tuple[ShardPath, ...] = ()
    """The added files that have rows of the known files and no others, if this holds for all rows of the files in
    `gone`; in the listing's order."""

    @property
    def only_removes(self) -> bool:
        """Whether all rows of the files in `gone` were deleted."""
        return not any(removal.adds for removal in self.removals)

    @property
    def lines(self) -> list[str]:
        head = (
            f"Delta table '{self.listing.source}', version {self.listing.version}: {counted(len(self.added), 'file')} added "
            f"to the {self.known:,} known, {len(self.gone):,} of those removed"
        )
        return [head, *map(str, self.removals)]

    def __str__(self) -> str:
        return "; ".join(self.lines)


@dataclass(frozen=True)
class _Commit:
    """A version: the files that it removed and added, each with whether rows were changed by that."""

    operation: str
    removed: dict[ShardPath, bool]
    added: dict[ShardPath, bool]


def change_of(listing: DeltaListing, catalogued: Iterable[ShardPath]) -> TableChange:
    """The files that are not among the `catalogued` shards, and those of the table's folder that it no longer has. Where
    files were removed, the log is read from the newest version back to the first that removed one of them."""
    start = listing.source.rstrip("/") + "/"
    known = {path: None for path in catalogued if str(path).startswith(start)}
    active = set(listing.files)
    gone = tuple(path for path in known if path not in active)
    commits: list[_Commit] = []
    removals: list[Removal] = []
    sought = set(gone)
    for version in range(listing.version, -1, -1):
        commit = _commit(listing.source, version) if sought else None
        if commit is None:
            break
        commits.append(commit)
        if ours := sought & commit.removed.keys():
            sought -= ours
            keeps_rows = not any(commit.removed[path] for path in ours)
            removals.append(Removal(version, commit.operation, len(ours), keeps_rows, bool(commit.added)))
    if sought:
        removals.append(Removal(None, "", len(sought), keeps_rows=False))
    added = tuple(path for path in listing.files if path not in known)
    holders = _holders(commits[::-1], set(known), set(gone))
    rewritten = tuple(path for path in added if path in holders)
    return TableChange(listing, len(known), added, gone, tuple(removals[::-1]), rewritten)


def _holders(commits: list[_Commit], known: set[ShardPath], gone: set[ShardPath]) -> set[ShardPath]:
    """The files to which versions have moved all rows of the files in `gone`; none, if rows were changed or other rows are
    with them. `commits`: oldest first."""
    moved: set[ShardPath] = set()
    holders: set[ShardPath] = set()
    for commit in commits:
        removed = set(commit.removed)
        if removed and not any(commit.removed.values()) and removed <= known | holders:
            moved |= removed
            holders = (holders - removed) | {path for path, changes in commit.added.items() if not changes}
    return holders if gone <= moved else set()


def _commit(source: str, version: int) -> _Commit | None:
    """A version of the log, line by line; None: the log no longer has it."""
    path = _at(source, f"{LOG}/{version:020}.json")
    files: dict[str, dict[ShardPath, bool]] = {"remove": {}, "add": {}}
    info: dict[str, Any] = {}
    try:
        with _open_commit(path) as lines:
            for line in lines:
                action = json.loads(line) if line.strip() else {}
                for name in files.keys() & action.keys():
                    files[name][_at(source, action[name]["path"])] = action[name].get("dataChange", True)
                info = action.get("commitInfo", info)
        operation = str(info.get("operation") or "an unnamed operation")
        mode = (info.get("operationParameters") or {}).get("mode")
    except (FileNotFoundError, Absent):
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        found = f"version {version} of Delta table '{source}' cannot be read: {error}"
        raise DataError(found, "restore the table's log") from error
    return _Commit(f"{operation} ({mode})" if mode else operation, files["remove"], files["add"])


@contextmanager
def _open_commit(path: ShardPath) -> Iterator[BinaryIO]:
    if isinstance(path, RemoteObject):
        with opened(looked_up(path.address)) as file:
            yield io.BytesIO(file.read(file.size, 0))
    else:
        with reading(path) as local:
            yield local
