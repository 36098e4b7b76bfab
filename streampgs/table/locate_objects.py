"""Find the shards at an address in an object store: an object, a folder or a glob.

Stores have no folders, only keys. The shards and their order are the same as on a disk with the same names, so that
training on either gives the same bits.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from streampgs.base.errors import DataError
from streampgs.formats.registry import is_shard_name
from streampgs.stores.access import is_object, keys_below
from streampgs.stores.addresses import Address, parse
from streampgs.table.delta import LOG, part_of_table


def is_ignored(name: str) -> bool:
    """Such names are markers and files in the making, by the custom of Spark and Hive."""
    return name.startswith(("_", ".")) and name not in (".", "..")


def is_hidden(match: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a name, or that of a folder above it, is ignored where the pattern left it open. Both are given by their
    parts."""
    named = takewhile(lambda part: not glob.has_magic(part), pattern)
    return any(is_ignored(part) for part in match[len(list(named)) :])


def holds_log(source: str) -> bool:
    """Whether the address is a Delta table."""
    address = parse(source)
    folder = address.key.rstrip("/")
    log = address.at(f"{folder}/{LOG}" if folder else LOG)
    return (not glob.has_magic(folder) or is_object(address) is False) and is_object(log) is False


def objects_at(source: str) -> tuple[list[str], list[str]]:
    """Addresses of shards in a stable order, and of objects with other names."""
    address = parse(source)
    there = None if address.key.endswith("/") else is_object(address)
    if there:
        return [str(address)], []
    if glob.has_magic(address.key) and there is None:
        below = keys_below(address.at(_literal_folder(address.key)))
        found = matching(below, address.key)
        if found is None:
            raise DataError(
                f"nothing matches '{source}'", "check the pattern; quote it so that the shell does not expand it"
            )
        keys, ignored = found
    else:
        folder = address.at(address.key.rstrip("/"))
        below = keys_below(folder)
        if not below:
            raise DataError(
                f"'{source}' does not exist", "name an object, a folder or a quoted glob of .parquet or .arrow shards"
            )
        keys, ignored = in_folder(below, folder.key)
    _refuse_parts_of_tables(source, address, keys + ignored, below)
    return [str(address.at(key)) for key in keys], [str(address.at(key)) for key in ignored]


def _refuse_parts_of_tables(source: str, address: Address, keys: list[str], below: list[str]) -> None:
    """Only the log of a Delta table tells which files in its folder count."""
    tables = {f"/{key}".partition(f"/{LOG}/")[0] for key in below if f"/{LOG}/" in f"/{key}"}
    partition = _literal_folder(f"{address.key.rstrip('/')}/*")
    above = partition
    while "=" in above.rpartition("/")[2]:
        above = above.rpartition("/")[0]
    if above != partition and is_object(address.at(f"{above}/{LOG}".lstrip("/"))) is False:
        tables.add(f"/{above}" if above else "")
    for key in keys:
        for table in tables:
            if f"/{key}".startswith(f"{table}/"):
                raise part_of_table(source, address.at(table[1:]))


def _literal_folder(pattern: str) -> str:
    return "/".join(takewhile(lambda part: not glob.has_magic(part), pattern.split("/")[:-1]))


def in_folder(keys: Iterable[str], folder: str) -> tuple[list[str], list[str]]:
    """The shards in a folder and below, by the parts of their names; and the other objects."""
    depth = len(folder.split("/")) if folder else 0
    below = sorted(
        (key for key in keys if not folder or key.startswith(folder + "/")), key=lambda key: tuple(key.split("/"))
    )
    named = [key for key in below if not any(is_ignored(part) for part in key.split("/")[depth:])]
    return [key for key in named if is_shard_name(key)], [key for key in named if not is_shard_name(key)]


def matching(keys: list[str], pattern: str) -> tuple[list[str], list[str]] | None:
    """The matches of the glob: objects, and the shards in folders; and the other objects. None: no match."""
    folders = {"/".join(parts[:length]) for key in keys for parts in [key.split("/")] for length in range(len(parts))}
    objects, parts = set(keys), pattern.split("/")
    matches = {key for key in objects if _matches(key.split("/"), parts)}
    matches |= {
        found for folder in folders - {""} for found in (folder, folder + "/") if _matches(found.split("/"), parts)
    }
    if not matches:
        return None
    shards: dict[str, None] = {}
    ignored: list[str] = []
    for match in sorted(matches):
        named = match.rstrip("/")
        if is_hidden(named.split("/"), parts):
            continue
        if named in objects:
            shards[named] = None
            continue
        found, others = in_folder(keys, named)
        shards.update(dict.fromkeys(found))
        ignored += others
    return list(shards), ignored


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """As in the glob module: '*' stays inside a name, '**' spans folders, neither matches a leading dot. A name that ends
    in '/' has an empty last part."""
    if not pattern:
        return not parts
    head, rest = pattern[0], pattern[1:]
    if head == "**":
        if not rest:
            # The root matches as 'folder/', names below without a slash.
            return parts == [""] or (parts != [] and all(part and not part.startswith(".") for part in parts))
        return _matches(parts, rest) or (
            bool(parts and parts[0]) and parts[0][0] != "." and _matches(parts[1:], pattern)
        )
    if not parts:
        return False
    if not glob.has_magic(head):
        return parts[0] == head and _matches(parts[1:], rest)
    seen = bool(parts[0]) and (head.startswith(".") or not parts[0].startswith("."))
    return seen and fnmatchcase(parts[0], head) and _matches(parts[1:], rest)
