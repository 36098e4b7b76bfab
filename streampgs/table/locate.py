"""Find the shards in the files, folders, globs and addresses of object stores that a user names.

Stores have no folders, only keys. They are searched as a tree of folders made of the keys, so that the shards and their
order are the same as on a disk with the same names, and training on either gives the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from glob import has_magic
from itertools import takewhile
from pathlib import Path

from streampgs.base.errors import DataError
from streampgs.base.globs import Disk, Tree, matches, refuse_unreadable
from streampgs.formats.format import ShardPath
from streampgs.formats.registry import is_shard_name
from streampgs.stores.access import RemoteObject, is_object, keys_below
from streampgs.stores.addresses import Address, is_address, parse
from streampgs.table.delta import LOG, DeltaListing, list_table, part_of_table
from streampgs.table.partitions import LogSchema

PUBLISHING = ".publishing"
"""A folder in that of a pack, while its shards get their names."""


class NothingThere(DataError):
    """A glob that nothing matches."""


@dataclass
class Located:
    paths: list[ShardPath] = field(default_factory=list)
    """In a stable order. Remote shards by address only: the store was not asked for them yet."""
    ignored: list[ShardPath] = field(default_factory=list)
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
            if is_address(source):
                search.add_address(source)
            else:
                search.add(Folders(), source, source)
        except OSError as error:
            raise DataError(f"'{source}' cannot be read: {error.strerror or error}", "check the name") from error
    return search.found


def is_ignored(name: str) -> bool:
    """Such names are markers and files in the making, by the custom of Spark and Hive."""
    return name.startswith(("_", ".")) and name not in (".", "..")


def _is_hidden(match: str, pattern: str) -> bool:
    """Whether a name, or that of a folder above it, is ignored where the pattern left it open."""
    named = takewhile(lambda part: not has_magic(part), Path(pattern).parts)
    return any(is_ignored(part) for part in Path(match).parts[len(list(named)) :])


class Folders(Disk):
    """The files of this disk."""

    def files_below(self, folder: str) -> list[str]:
        """All files but ignored ones. Links are followed."""
        files: list[str] = []
        seen: set[str] = set()
        for here, folders, names in os.walk(folder, onerror=refuse_unreadable, followlinks=True):
            if os.path.realpath(here) in seen:  # a link back to a folder above
                folders.clear()
                continue
            seen.add(os.path.realpath(here))
            if PUBLISHING in folders:
                raise DataError(
                    f"in '{here}' some shards are missing: `streampgs pack` was killed while it gave them their names",
                    "run the same `streampgs pack` again",
                )
            folders[:] = sorted(name for name in folders if not is_ignored(name))
            files += [os.path.join(here, name) for name in names if not is_ignored(name)]
        return sorted(files, key=lambda file: Path(file).parts)

    def shard(self, path: str) -> ShardPath:
        return Path(os.path.abspath(path))

    def identity(self, path: str) -> str:
        """A link is another name of the same file."""
        return os.path.realpath(path)

    def name(self, path: str) -> str:
        return path


class Bucket(Tree):
    """The keys below the first folder of an address whose name is written out."""

    def __init__(self, address: Address) -> None:
        self._address = address
        keys = keys_below(address.at(_literal_folder(address.key)))
        self._objects = set(keys)
        self._folders: dict[str, set[str]] = {}
        for key in keys:
            parts = key.split("/")
            for depth in range(len(parts)):
                self._folders.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
        # Files of a partitioned table may be named below its log.
        below = above = _literal_folder(address.key)
        while "=" in above.rpartition("/")[2]:
            above = above.rpartition("/")[0]
        log = f"{above}/{LOG}".lstrip("/")
        if above != below and is_object(address.at(log)) is False:
            self._folders[log] = set()

    def names(self, folder: str) -> list[str]:
        return sorted(self._folders.get(folder.rstrip("/"), ()))

    def is_folder(self, path: str) -> bool:
        return path.rstrip("/") in self._folders

    def exists(self, path: str) -> bool:
        return path in self._objects or path in self._folders

    def files_below(self, folder: str) -> list[str]:
        found: list[str] = []
        for name in self.names(folder):
            path = os.path.join(folder, name)
            found += [path] if path in self._objects and not is_ignored(name) else []
            found += self.files_below(path) if self.is_folder(path) and not is_ignored(name) else []
        return sorted(found, key=lambda key: key.split("/"))

    def shard(self, path: str) -> ShardPath:
        return RemoteObject(self.name(path))

    def identity(self, path: str) -> str:
        return self.name(path)

    def name(self, path: str) -> str:
        return str(self._address.at(path))


def _literal_folder(pattern: str) -> str:
    """The folder that a pattern begins with; a text without wildcards is the folder itself."""
    return "/".join(takewhile(lambda part: not has_magic(part), pattern.rstrip("/").split("/")))


class _Search:
    def __init__(self) -> None:
        self.found = Located()
        self._seen: set[str] = set()

    def add_address(self, source: str) -> None:
        """An object is not listed, and neither is a table: its log tells the files."""
        address = parse(source)
        folder = address.key.rstrip("/")
        there = None if address.key.endswith("/") else is_object(address)
        is_pattern = has_magic(folder) and there is None
        log = address.at(f"{folder}/{LOG}".lstrip("/"))
        if there is True:
            self.found.paths += [RemoteObject(str(address))] if self._is_new(str(address)) else []
        elif not is_pattern and is_object(log) is False:
            self._add_table(list_table(source))
        else:
            self.add(Bucket(address), address.key if is_pattern else folder, source)

    def add(self, tree: Folders | Bucket, path: str, source: str) -> None:
        """`source`: as the user has named the path."""
        if tree.is_folder(os.path.join(path, LOG)):
            self._add_table(list_table(tree.name(path)))
        elif tree.is_folder(path):
            files = tree.files_below(path)
            _refuse_parts_of_tables(source, tree, files)
            for file in files:
                if is_shard_name(os.path.basename(file)):
                    self._add_file(tree, file)
                else:
                    self.found.ignored.append(tree.shard(file))
        elif tree.exists(path):
            self._add_file(tree, path)
        elif has_magic(path):
            self._add_matches(tree, path, source)
        else:
            raise DataError(
                f"'{source}' does not exist",
                "name files, folders, quoted globs or addresses (s3://…) of .parquet or .arrow shards",
            )

    def _add_matches(self, tree: Folders | Bucket, pattern: str, source: str) -> None:
        found = matches(pattern, tree)
        if not found:
            remedy = "check the pattern; quote it so that the shell does not expand it"
            raise NothingThere(f"nothing matches '{source}'", remedy)
        named = [match for match in found if not _is_hidden(match, pattern)]
        _refuse_parts_of_tables(source, tree, named)
        for match in named:
            self.add(tree, match, tree.name(match))

    def _is_new(self, name: str) -> bool:
        is_new = name not in self._seen
        self._seen.add(name)
        return is_new

    def _add_file(self, tree: Folders | Bucket, path: str) -> None:
        if self._is_new(tree.identity(path)):
            self.found.paths.append(tree.shard(path))

    def _add_table(self, listing: DeltaListing) -> None:
        self.found.tables.append(listing)
        self.found.logs.update(zip(listing.files, listing.logs, strict=True))
        for path in listing.files:
            if self._is_new(os.path.realpath(path) if isinstance(path, Path) else path.address):
                self.found.paths.append(path)


def _refuse_parts_of_tables(source: str, tree: Folders | Bucket, paths: Iterable[str]) -> None:
    """Only the log of a Delta table tells which files in its folder count."""
    tables: dict[str, str | None] = {}

    def table_above(folder: str) -> str | None:
        if folder not in tables:
            above = os.path.dirname(folder)
            table = table_above(above) if above != folder else None
            is_table = table is None and tree.is_folder(os.path.join(folder, LOG))
            tables[folder] = folder if is_table else table
        return tables[folder]

    for path in paths:
        table = table_above(os.path.abspath(path) if isinstance(tree, Folders) else path.rstrip("/"))
        if table is not None:
            raise part_of_table(source, tree.name(table))
