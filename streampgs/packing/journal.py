"""The record of a pack in its folder: its inputs and the shards written. Replaced atomically with each shard."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.base.checks import Count, decode, parsed_json, refuse_other_format
from streampgs.base.errors import DataError, OptionError
from streampgs.base.faults import exists, naming_faults, repeated
from streampgs.base.files import explaining, new_file, read_whole, remove_leftovers, sync_folder
from streampgs.formats.registry import is_shard_name
from streampgs.packing.options import FORMATS
from streampgs.packing.shards import Shard, shard_name
from streampgs.packing.shuffle import Run
from streampgs.packing.source import SPILL
from streampgs.table.locate_objects import is_ignored

NAME = "_pack.json"
QUERY = "_query.sql"
RUNS = ".shuffle"
FORMAT = 5
_SHARD_NAME = re.compile(rf"part-\d{{5,}}\.({'|'.join(FORMATS)})")
_MOST_BYTES = 64 << 20
_SUM = "sha256"
"""Of all other fields of the file."""


@dataclass(frozen=True)
class ReadInput:
    """An input that was read to its end."""

    rows: Count
    skipped: dict[str, Count]
    """Rows that were left out, by reason."""


@dataclass
class Journal:
    inputs: list[dict[str, Any]]
    options: dict[str, Any]
    memory: int
    """With which a shuffle began: it decides the bounds of its batches."""
    version: int = FORMAT
    schema: str | None = None
    """The schema of all rows, once it is known, as base64 of Arrow's own form."""
    read: list[ReadInput] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    """Of a shuffle, once all rows are in sorted runs."""
    shards: list[Shard] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Shards of an earlier pack, or of narrower types, which are removed before others are written."""
    done: bool = False

    @property
    def arrow_schema(self) -> pa.Schema | None:
        if self.schema is None:
            return None
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))

    def settle(self, schema: pa.Schema) -> None:
        """From now on rows are written under this schema."""
        self.schema = base64.b64encode(schema.serialize().to_pybytes()).decode()

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def skipped(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for input in self.read:
            total.update(input.skipped)
        return dict(total)

    @property
    def own_names(self) -> list[str]:
        """The shards that are recorded here."""
        return [*self.replaced, *(shard.name for shard in self.shards)]

    def start_over(self, schema: pa.Schema) -> None:
        self.settle(schema)
        self.replaced = self.own_names
        self.read, self.runs, self.shards, self.done = [], [], [], False

    def save(self, out: Path) -> None:
        temporary = out / f".{NAME}.writing"
        record = asdict(self)
        with explaining(out / NAME):
            with open(new_file(temporary), "wb") as file:
                file.write(json.dumps({_SUM: _sum_of(record), **record}, indent=1).encode())
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, out / NAME)
            sync_folder(out)

    def check_files(self, out: Path) -> None:
        """Refuse if a recorded file is missing or has another size."""
        if (out / RUNS).is_symlink():
            raise DataError(f"'{out / RUNS}' is a link to another place", "remove it")
        sizes = {out / shard.name: shard.file_bytes for shard in self.shards}
        sizes |= {out / RUNS / run.name: run.file_bytes for run in self.runs}
        for file, wanted in sizes.items():
            size = file.stat().st_size if exists(file) and file.is_file() else None
            if size != wanted:
                found = "is missing" if size is None else f"has {size:,} bytes instead of {wanted:,}"
                raise DataError(f"'{file}' {found}", "restore it, or start over with --overwrite")

    def remove_leftovers(self, out: Path) -> None:
        """Remove what an interrupted pack has left, and the shards that are replaced; no other files."""
        for name in self.replaced:
            (out / name).unlink(missing_ok=True)
        self.replaced = []
        remove_leftovers(out, ".part-*.writing")
        for folder in (SPILL, *(() if self.runs else (RUNS,))):
            with suppress(OSError):  # rmtree ignores errors, except those of closing a folder
                shutil.rmtree(out / folder, ignore_errors=True)

    def foreign_shards(self, out: Path) -> list[str]:
        """Files in the folder that would be read as shards, but are not of this pack."""
        unrecorded = shard_name(len(self.shards), str(self.options.get("format")))  # by a process that was killed
        own = {*self.own_names, *([] if self.done else [unrecorded])}
        return sorted(file.name for file in out.iterdir() if _is_shard(file.name) and file.name not in own)


def _is_shard(name: str) -> bool:
    return is_shard_name(name) and not is_ignored(name)


def shard_names_in(out: Path) -> list[str]:
    return sorted(file.name for file in out.iterdir() if _SHARD_NAME.fullmatch(file.name))


def load(out: Path) -> Journal | None:
    path = out / NAME
    try:
        with naming_faults(path):
            text = repeated(lambda: read_whole(path, _MOST_BYTES))
        record = parsed_json(text, _MOST_BYTES)
        if record.pop(_SUM) != _sum_of(record):
            raise ValueError("its SHA-256 does not match")
        refuse_other_format(path, record["version"], FORMAT)
        journal = decode(Journal, record)
        shards, runs = ([part.name for part in parts] for parts in (journal.shards, journal.runs))
        for name in (*journal.replaced, *shards, *runs):
            if Path(name).name != name:
                raise ValueError(f"'{name}' is not the name of a file in it")
        return journal
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"'{path}' is damaged: {error}", "start over with --overwrite, or name another folder"
        ) from error


def _sum_of(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def check_same(journal: Journal, inputs: list[dict[str, Any]], options: dict[str, Any], out: Path) -> None:
    """Refuse to resume with other options or inputs."""
    remedy = "give the same command to resume, add --overwrite to start over, or name another folder"
    for name, value in options.items():
        if journal.options.get(name) != value:
            raise OptionError(f"'{out}' was begun with {name} {journal.options.get(name)!r}, not {value!r}", remedy)
    if inputs == journal.inputs:
        return
    before = {(entry["path"], str(entry["sets"])): entry for entry in journal.inputs}
    for entry in inputs:
        known = before.pop((entry["path"], str(entry["sets"])), None)
        if known is None:
            raise OptionError(f"'{out}' was begun without '{entry['path']}'", remedy)
        if known != entry:
            raise DataError(f"'{entry['path']}' has changed since '{out}' was begun", remedy)
    if before:
        raise OptionError(f"'{out}' was begun with '{next(iter(before))[0]}' as well", remedy)
    raise OptionError(f"'{out}' was begun with its inputs in another order", remedy)
