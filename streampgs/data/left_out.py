"""Shards that the user has left out of a run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape

from streampgs.base.errors import OptionError
from streampgs.base.globs import is_folder
from streampgs.formats.format import ShardPath
from streampgs.stores.addresses import absolute
from streampgs.table.catalog import Catalog
from streampgs.table.changes import Changes


def matches(path: ShardPath, patterns: Iterable[str]) -> bool:
    """Whether a shard matches one of these globs, or is in one of these folders."""
    name = str(path)
    return any(fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/") for pattern in patterns)


def pattern_of(given: str, known: Iterable[ShardPath]) -> str:
    """A pattern for `matches`. The name of a file stands for this file alone, even if it could be read as a glob."""
    name = absolute(given)
    is_file = name in map(str, known) or (os.path.lexists(name) and not is_folder(name))
    return escape(name) if is_file else name


def without(paths: Sequence[ShardPath], patterns: Collection[str]) -> list[ShardPath]:
    return [path for path in paths if not matches(path, patterns)] if patterns else list(paths)


def left_out_of(catalog: Catalog, retired: Collection[int], patterns: Collection[str]) -> list[int]:
    """The numbers of the shards that are left out, but still used."""
    if not patterns:
        return []
    return [
        number
        for number, shard in enumerate(catalog.shards)
        if number not in retired and shard.rows and matches(shard.path, patterns)
    ]


def take_out(changes: Changes, catalog: Catalog, retired: Collection[int], patterns: Collection[str]) -> None:
    """Shards of the run that are left out count as gone."""
    found = left_out_of(catalog, retired, patterns)
    for numbers in changes.replaced, changes.doubtful, changes.touched:
        numbers[:] = [number for number in numbers if number not in found]
    for number in found:
        changes.moved.pop(number, None)
    changes.gone = sorted({*changes.gone, *found})


def refuse_unknown(patterns: Iterable[str], known: Iterable[ShardPath]) -> None:
    """A misspelt name would let the run train on the shard."""
    names = list(known)
    for pattern in patterns:
        if not any(matches(path, [pattern_of(pattern, names)]) for path in names):
            raise OptionError(
                f"`--leave-out '{pattern}'` is not a shard of the run or its sources",
                "give a path, a folder or a glob; `streampgs history` lists the shards that joined",
            )
