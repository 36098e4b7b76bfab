"""Rows in the memory of a program, as shards: in the folder of a run, which can then be resumed, or in a temporary one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError, RunError, StreampgsError
from streampgs.base.files import native_path
from streampgs.packing.shards import write_shards
from streampgs.reading.in_memory import batches_of, is_matrix, plain_source, with_columns
from streampgs.run.folder import RunFolder
from streampgs.run.lock import RunLock
from streampgs.stores.addresses import absolute

_ROWS = "rows-in-memory"
"""The name by which a folder is known to hold only rows that were written here."""

Batches = Iterator[pa.RecordBatch]


def paths_in(data: Any) -> list[str] | None:
    """Files, folders, globs and addresses; None: the data are rows in memory."""
    sources = data if isinstance(data, list | tuple) else [data]
    return [str(source) for source in sources] if all(isinstance(each, str | Path) for each in sources) else None


@dataclass(frozen=True)
class GivenRows:
    data: Any
    added: Mapping[str, Any] = field(default_factory=dict)
    """Arrays for columns that the data lack, by the name of the column."""

    def write(self, out: Path, as_batches: Callable[[Any], Batches] = batches_of) -> str:
        """Write them as shards into a folder."""
        batches = as_batches(self.data)
        if not write_shards(with_columns(batches, self.added) if self.added else batches, out):
            raise DataError("the table in memory has no rows", "give at least one row")
        return str(out)


def labelled_rows(data: Any, label: str, weight: str, keyword: str) -> GivenRows:
    """A table, or a tuple of rows, labels and maybe weights. `keyword`: the argument that gave them."""
    is_tuple = isinstance(data, tuple) and len(data) in (2, 3) and not isinstance(data[1], pa.RecordBatch)
    if is_tuple and getattr(data[1], "ndim", 1) != 2:
        return GivenRows(data[0], dict(zip((label, weight), data[1:], strict=False)))
    data = plain_source(data)
    if is_matrix(data):
        raise OptionError(f"{keyword} is a matrix without labels", f"give it with its labels: {keyword}=(X, y)")
    return GivenRows(data)


def write_into_new_run(run: Path, parts: Mapping[str, GivenRows]) -> dict[str, str]:
    """Write the parts, 'data' or 'validation', to folders of a run that is about to start. Returns their folders."""
    folder = RunFolder(run)
    folder.refuse_if_taken()
    for name in parts:
        if (run / name).exists() and not folder.was_started:
            raise RunError(
                f"'{run / name}' exists already, but not from an interrupted start",
                "choose a new folder for the run, outside the data",
            )
    folder.make()
    with RunLock(run):  # another trainer may be using the folder
        folder.refuse_if_taken()
        for name in parts:
            shutil.rmtree(run / name, ignore_errors=True)
        return {name: rows.write(run / name) for name, rows in parts.items()}


def write_into_run(run: Path, rows: GivenRows) -> str:
    """Write rows to a new folder of a run: the first one that the run does not use yet."""
    folder = RunFolder(run)
    with RunLock(run):
        checkpoint = folder.newest_checkpoint("run")
        record = folder.run_record()
        if checkpoint is not None:
            record = record.as_of(checkpoint.sections["run"])
        used, number = set(record.sources), 2
        while absolute(str(run / f"data-{number}")) in used or _is_of_others(run / f"data-{number}"):
            number += 1
        out = run / f"data-{number}"
        shutil.rmtree(out, ignore_errors=True)  # left by a call that was interrupted
        out.mkdir()
        rows.write(out / _ROWS)
        return str(out)


def _is_of_others(folder: Path) -> bool:
    """Whether there is something that an interrupted call has not left: a user's own folder may have this name."""
    return os.path.lexists(folder) and (
        folder.is_symlink() or not folder.is_dir() or os.listdir(folder) not in ([], [_ROWS])
    )


@contextmanager
def temporary_shards(rows: GivenRows, as_batches: Callable[[Any], Batches] = batches_of) -> Iterator[list[str]]:
    """Errors do not name the temporary files: a user does not know them."""
    with tempfile.TemporaryDirectory(prefix="streampgs-") as folder:
        try:
            yield [rows.write(Path(folder) / "rows", as_batches)]
        except StreampgsError as error:
            shard = re.compile(f"(shard )?'{re.escape(folder)}/rows[^']*'")
            error.say([shard.sub("the table in memory", line) for line in error.found_lines], error.remedy_lines)
            raise


def column_names(folder: str) -> list[str]:
    """The columns of the shards in a folder."""
    first = min(Path(folder).iterdir(), default=None)
    if first is None:
        return []
    with native_path(first) as path, pa.OSFile(path) as file:
        return list(pa.ipc.open_file(file).schema.names)


def read_table(file: Path) -> pa.Table:
    with native_path(file) as path, pa.OSFile(path) as source:
        return pa.ipc.open_file(source).read_all()
