"""Find the shards in the files, folders, globs and addresses of object stores that a user names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from streampgs.base.errors import DataError
from streampgs.base.globs import is_folder, matches, refuse_unreadable
from streampgs.formats.format import ShardPath
from streampgs.formats.registry import is_shard_name
from streampgs.stores.access import RemoteObject
from streampgs.stores.addresses import is_address
from streampgs.table.delta import LOG, DeltaListing, list_table, part_of_table
from streampgs.table.locate_objects import holds_log, is_hidden, is_ignored, objects_at
from streampgs.table.partitions import LogSchema


class NothingThere(DataError):
    """A glob that nothing matches."""


@dataclass
class Located:
    paths: list[ShardPath] = field(default_factory=list)
    """In a stable order. Remote shards by address only: the store was not asked for them yet."""
    ignored: list[Path | str] = field(default_factory=list)
    """Files in the named folders whose names are not those of shards."""
    tables: list[DeltaListing] = field(default_factory=list)
    """The Delta tables among the sources."""
    logs: dict[ShardPath, LogSchema] = field(default_factory=dict)
    """The schema and constants that the logs of tables give for their files."""

    def ignored_with_reason(self) -> dict[str, str]:
        return {str(path): "its name is not that of a shard" for path in self.ignored}


def locate(sources: Iterable[str]) -> Located:
    """The shards of the sources in the given order, the files of each by name, those of a Delta table by age. A file named
    twice counts once."""
    search = _Search()
    for source in sources:
        try:
            search.add(source)
        except OSError as error:
            raise DataError(f"'{source}' cannot be read: {error.strerror or error}", "check the name") from error
    return search.found


class _Search:
    def __init__(self) -> None:
        self.found = Located()
        self._seen: set[str] = set()

    def add(self, source: str) -> None:
        path = Path(source)
        if is_address(source):
            self._add_address(source)
        elif is_folder(path / LOG):
            self._add_table(list_table(source))
        elif is_folder(path):
            self._add_folder(source)
        elif path.is_file():
            self._add_file(path)
        elif glob.has_magic(source):
            self._add_matches(source)
        else:
            raise DataError(
                f"'{source}' does not exist",
                "name files, folders, quoted globs or addresses (s3://…) of .parquet or .arrow shards",
            )

    def _is_new(self, name: str) -> bool:
        is_new = name not in self._seen
        self._seen.add(name)
        return is_new

    def _add_file(self, path: Path) -> None:
        if self._is_new(os.path.realpath(path)):  # a link is another name of the same file
            self.found.paths.append(Path(os.path.abspath(path)))

    def _add_address(self, source: str) -> None:
        if holds_log(source):
            self._add_table(list_table(source))
            return
        named, ignored = objects_at(source)
        self.found.paths += [RemoteObject(address) for address in named if self._is_new(address)]
        self.found.ignored += ignored

    def _add_table(self, listing: DeltaListing) -> None:
        self.found.tables.append(listing)
        self.found.logs.update(zip(listing.files, listing.logs, strict=True))
        for path in listing.files:
            if isinstance(path, Path):
                self._add_file(path)
            elif self._is_new(path.address):
                self.found.paths.append(path)

    def _add_folder(self, source: str) -> None:
        files = _files_below(Path(source))
        _refuse_parts_of_tables(source, files)
        for file in files:
            if is_shard_name(file.name):
                self._add_file(file)
            else:
                self.found.ignored.append(file)

    def _add_matches(self, source: str) -> None:
        found = matches(source)
        if not found:
            raise NothingThere(
                f"nothing matches '{source}'", "check the pattern; quote it so that the shell does not expand it"
            )
        named = [match for match in found if not is_hidden(Path(match).parts, Path(source).parts)]
        _refuse_parts_of_tables(source, map(Path, named))
        for match in named:
            self.add(match)


def _files_below(folder: Path) -> list[Path]:
    files: list[Path] = []
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=refuse_unreadable, followlinks=True):
        if os.path.realpath(here) in seen:  # a link back to a folder above
            folders.clear()
            continue
        seen.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        files += [Path(here) / name for name in names if not is_ignored(name)]
    return sorted(files)


def _refuse_parts_of_tables(source: str, files: Iterable[Path]) -> None:
    """Only the log of a Delta table tells which files in its folder count."""
    tables: dict[Path, Path | None] = {}

    def table_above(folder: Path) -> Path | None:
        if folder not in tables:
            above = table_above(folder.parent) if folder.parent != folder else None
            tables[folder] = folder if above is None and is_folder(folder / LOG) else above
        return tables[folder]

    for file in files:
        table = table_above(Path(os.path.abspath(file)))
        if table is not None:
            raise part_of_table(source, table)
