"""From what a user names (files, folders, globs) to the files that are shards."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from streampgs.errors import DataError

ARROW, PARQUET = "arrow", "parquet"
_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"
_SUFFIXES = {".arrow": ARROW, ".ipc": ARROW, ".feather": ARROW, ".parquet": PARQUET, ".pq": PARQUET}


@dataclass
class Located:
    paths: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)
    """Files in the named folders that are no shards by their names."""


def locate(sources: Iterable[str]) -> Located:
    """Shards in a stable order: the sources as given, the files of each by name; a file named twice counts once."""
    found = Located()
    seen: set[str] = set()

    def add(path: Path) -> None:
        file = os.path.realpath(path)  # a link is another name of the same file
        if file not in seen:
            seen.add(file)
            found.paths.append(Path(os.path.abspath(path)))

    for source in sources:
        path = Path(source)
        if path.is_dir():
            for file in _files_below(path):
                if file.suffix.lower() in _SUFFIXES:
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
            inner = locate(match for match in matches if not _is_hidden(match, source))
            for file in inner.paths:
                add(file)
            found.ignored += inner.ignored
        else:
            raise DataError(
                f"'{source}' does not exist",
                "name files, folders or quoted globs of .parquet or .arrow shards",
            )
    return found


def _ignored(name: str) -> bool:
    """Such names are markers and files in the making, by the custom of Spark and Hive."""
    return name.startswith(("_", ".")) and name not in (".", "..")


def _is_hidden(match: str, pattern: str) -> bool:
    """Whether a name is ignored where the pattern left it open, be it of the file or of a folder above it."""
    named = takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts)
    return any(_ignored(part) for part in Path(match).parts[len(list(named)) :])


def _files_below(folder: Path) -> list[Path]:
    files: list[Path] = []
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(here) in seen:  # a link leads back
            folders.clear()
            continue
        seen.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not _ignored(name))
        files += [Path(here) / name for name in names if not _ignored(name)]
    return sorted(files)


def kind_of(path: Path, head: bytes) -> str:
    """Arrow or Parquet, told by the first bytes and not by the name."""
    if head.startswith(_ARROW_MAGIC):
        return ARROW
    if head.startswith(_PARQUET_MAGIC):
        return PARQUET
    if head.startswith(b"\xff\xff\xff\xff"):
        raise DataError(
            f"shard '{path}' is an Arrow stream, not a file",
            "rewrite it with pyarrow.ipc.new_file: a file has the index that random reading needs",
        )
    if head.startswith(b"FEA1"):
        raise DataError(
            f"shard '{path}' is in the Feather V1 format",
            "rewrite it as Feather V2 (which is Arrow IPC) or Parquet",
        )
    if not head:
        raise DataError(f"shard '{path}' is empty", "remove it, or let its writer finish")
    raise DataError(
        f"shard '{path}' is neither Arrow nor Parquet",
        "its first bytes should be ARROW1 or PAR1; remove it, or write it again",
    )
