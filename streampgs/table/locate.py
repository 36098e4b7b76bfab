"""From what a user names (files, folders, globs, addresses of object stores) to what is a shard."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from streampgs.errors import DataError
from streampgs.formats.format import ShardPath
from streampgs.formats.names import is_hidden, is_ignored
from streampgs.formats.registry import is_shard_name
from streampgs.stores.access import RemoteObject
from streampgs.stores.addresses import is_address
from streampgs.table.delta import LOG, DeltaListing, list_table, part_of_table
from streampgs.table.locate_objects import holds_log, objects_at
from streampgs.table.partitions import LogSchema


@dataclass
class Located:
    paths: list[ShardPath] = field(default_factory=list)
    """Remote ones by address alone: nothing of them has been asked for yet."""
    ignored: list[Path | str] = field(default_factory=list)
    """Files in the named folders that are no shards by their names."""
    tables: list[DeltaListing] = field(default_factory=list)
    """The Delta tables among the sources."""
    logs: dict[ShardPath, LogSchema] = field(default_factory=dict)
    """What the logs of tables say of their files."""


def locate(sources: Iterable[str]) -> Located:
    """Shards in a stable order: the sources as given, the files of each by name, those of a Delta table as they came; a
    file named twice counts once."""
    found = Located()
    seen: set[str] = set()

    def add(path: Path) -> None:
        file = os.path.realpath(path)  # a link is another name of the same file
        if file not in seen:
            seen.add(file)
            found.paths.append(Path(os.path.abspath(path)))

    def add_table(listing: DeltaListing) -> None:
        found.tables.append(listing)
        found.logs.update(zip(listing.files, listing.logs, strict=True))
        for path in listing.files:
            if isinstance(path, Path):
                add(path)
            elif path.address not in seen:
                seen.add(path.address)
                found.paths.append(path)

    for source in sources:
        if is_address(source):
            if holds_log(source):
                add_table(list_table(source))
                continue
            named, ignored = objects_at(source)
            found.paths += [RemoteObject(address) for address in named if address not in seen]
            seen.update(named)
            found.ignored += ignored
            continue
        path = Path(source)
        if os.path.isdir(path / LOG):
            add_table(list_table(source))
        elif path.is_dir():
            files = _files_below(path)
            _refuse_parts_of_tables(source, files)
            for file in files:
                if is_shard_name(file.name):
                    add(file)
                else:
                    found.ignored.append(file)
        elif path.is_file():
            add(path)
        elif glob.has_magic(source):
            matches = sorted(glob.glob(source, recursive=True))
            if not matches:
                raise DataError(
                    f"nothing matches '{source}'",
                    "check the pattern; quote it so that the shell leaves it alone",
                )
            named = [match for match in matches if not is_hidden(Path(match).parts, Path(source).parts)]
            _refuse_parts_of_tables(source, map(Path, named))
            inner = locate(named)
            for match in inner.paths:
                add(Path(match))
            found.ignored += inner.ignored
        else:
            raise DataError(
                f"'{source}' does not exist",
                "name files, folders, quoted globs or addresses (s3://…) of .parquet or .arrow shards",
            )
    return found


def _files_below(folder: Path) -> list[Path]:
    files: list[Path] = []
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(here) in seen:  # a link leads back
            folders.clear()
            continue
        seen.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        files += [Path(here) / name for name in names if not is_ignored(name)]
    return sorted(files)


def _refuse_parts_of_tables(source: str, files: Iterable[Path]) -> None:
    """Of what lies in a Delta table's folder only its log tells what counts."""
    tables: dict[Path, Path | None] = {}

    def table_above(folder: Path) -> Path | None:
        if folder not in tables:
            above = table_above(folder.parent) if folder.parent != folder else None
            tables[folder] = folder if above is None and os.path.isdir(folder / LOG) else above
        return tables[folder]

    for file in files:
        table = table_above(Path(os.path.abspath(file)))
        if table is not None:
            raise part_of_table(source, table)
