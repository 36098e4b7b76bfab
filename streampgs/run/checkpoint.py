"""Checkpoints: one sealed file with a section for each stage of the run, and which files to keep.

The file is an Arrow stream of bytes: the arrays of all sections, one after the other, in parts of bounded size. The
record in its metadata holds the values of each section, and the type and shape of each array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.checks import require, understanding
from streampgs.base.errors import RunError, Unreadable
from streampgs.base.faults import has_no_space, names_in, remedy
from streampgs.base.files import sync_folder
from streampgs.base.stage import Bundle, Stage
from streampgs.run.seal import SealBroken, read_sealed, write_sealed

_NAME = re.compile(r"checkpoint-([0-9]{15}|[1-9][0-9]{15,})\.arrows")
_PREFIX = "checkpoint-"
_PART_BYTES = 1 << 20
_SCHEMA = pa.schema([pa.field("bytes", pa.uint8(), nullable=False)])


@dataclass(frozen=True)
class Kept:
    """Which checkpoints are not removed when a new one is written."""

    newest: int = 3
    rows: tuple[int, ...] = ()
    """Checkpoints that were written after so many rows are kept, too."""
    up_to: int = -1
    """So are all that were written after at most so many rows."""


@dataclass
class Checkpoint:
    sections: dict[str, Bundle]
    path: Path
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    """Newer checkpoints that could not be used, and why."""

    def restore(self, stage: Stage, required: bool = True) -> None:
        """Hand its section to a stage; an invalid section is an error that names the file."""
        if required or stage.name in self.sections:
            with understanding(self.path):
                stage.restore(self.sections[stage.name])


def checkpoints_in(folder: Path) -> list[Path]:
    """Oldest first. Other files may have similar names: copies, and what editors leave behind."""
    return sorted((folder / name for name in names_in(folder) if _NAME.fullmatch(name)), key=rows_in_name)


def lookalikes_in(folder: Path) -> list[str]:
    """The names of files that only look like checkpoints."""
    return [name for name in names_in(folder) if name.startswith(_PREFIX) and not _NAME.fullmatch(name)]


def rows_in_name(path: Path) -> int:
    """How many rows were trained on when the checkpoint was written."""
    return int(path.name[len(_PREFIX) : -len(path.suffix)])


def write_checkpoint(folder: Path, sections: Mapping[str, Bundle], rows: int, kept: Kept) -> Path:
    path = folder / f"{_PREFIX}{rows:015d}.arrows"
    try:
        write_sections(path, sections, rows=rows)
    except RunError as error:
        if len(checkpoints_in(folder)) > 1 and has_no_space(error.__cause__):
            fewer = (
                f"or let the run delete its older checkpoints first: `streampgs resume {quote(str(folder))} --keep 1`"
            )
            error.say(error.found_lines, [*error.remedy_lines, fewer])
        raise
    remove_old(folder, rows, kept)
    return path


def write_sections(path: Path, sections: Mapping[str, Bundle], **facts: Any) -> None:
    record = {name: {"values": bundle.values, "arrays": _types_of(bundle)} for name, bundle in sections.items()}
    write_sealed(path, _batches(sections), _SCHEMA, {**facts, "sections": record})


def remove_old(folder: Path, rows: int, kept: Kept) -> None:
    """Remove the checkpoints that need not be kept next to the one that was written after so many rows."""
    # A file named after more rows is damaged, otherwise training would have continued from it: it does not count.
    until_now = [old for old in checkpoints_in(folder) if kept.up_to < rows_in_name(old) <= rows]
    for old in until_now[: -kept.newest]:
        if rows_in_name(old) not in kept.rows:
            with suppress(OSError):  # the new one is on disk; the next one removes the rest
                old.unlink()


def remove_after(folder: Path, rows: int) -> None:
    """Remove the checkpoints that were written after more rows. The oldest is removed first: until the last one is gone, a
    run continues from it, so a kill in between leaves the run as it was."""
    *others, last = [path for path in checkpoints_in(folder) if rows_in_name(path) > rows]
    try:
        for path in others:
            path.unlink()
        sync_folder(folder)
        last.unlink()
        sync_folder(folder)
    except OSError as error:
        raise RunError(
            f"'{error.filename}' cannot be removed: {error.strerror or error}", f"{remedy(error)}, then try again"
        ) from error


def read_checkpoint(path: Path, *wanted: str) -> Checkpoint:
    """This checkpoint, or an error if it is damaged. `wanted`: the sections to take from it; none named: all. Bytes of the
    others are verified, too."""
    damaged: list[tuple[Path, str]] = []
    found = _sound(path, damaged, wanted)
    if found is None:
        raise RunError(
            f"checkpoint '{path}' is damaged: {damaged[0][1]}", "choose another one, see `streampgs history`"
        )
    return found


def newest_checkpoint(folder: Path, *wanted: str) -> Checkpoint | None:
    """The newest undamaged one; None if there is none at all. If all are damaged, an error. `wanted`: see `read_checkpoint`.

    One that cannot be read for another reason is an error as well: the model must not depend on passing faults.
    """
    paths = checkpoints_in(folder)
    while True:
        damaged: list[tuple[Path, str]] = []
        for path in reversed(paths):
            found = _sound(path, damaged, wanted)
            if found is not None:
                return found
        before, paths = paths, checkpoints_in(folder)
        if paths == before:  # else a trainer has written new ones and removed the old ones meanwhile
            break
    if damaged:
        listed = "; ".join(f"{path.name}: {why}" for path, why in damaged)
        raise RunError(
            f"all checkpoints of run '{folder}' are damaged ({listed})",
            "restore one from a copy, or start a new run",
        )
    return None


def _sound(path: Path, damaged: list[tuple[Path, str]], wanted: Collection[str]) -> Checkpoint | None:
    """The checkpoint in this file; None if it is damaged, which is noted."""
    try:
        table, record = read_sealed(path)
    except Unreadable as error:
        error.say(error.found, f"{error.remedy}; to use the checkpoint before it, move this one to another folder")
        raise
    except (SealBroken, FileNotFoundError) as error:
        damaged.append((path, str(error)))
        return None
    if record.get("rows") != rows_in_name(path):
        damaged.append((path, f"its name is wrong: it was written after {record.get('rows')!r:.20} rows"))
        return None
    with understanding(path):
        return Checkpoint(sections_in(table, record, wanted), path, damaged)


def _types_of(bundle: Bundle) -> dict[str, Any]:
    arrays = {name: [array.dtype.str, list(array.shape)] for name, array in bundle.arrays.items()}
    return {**arrays, **{name: ["<f8", [length]] for name, (length, _) in bundle.vectors.items()}}


def _batches(sections: Mapping[str, Bundle]) -> Iterator[pa.RecordBatch]:
    for bundle in sections.values():
        for array in bundle.arrays.values():
            yield from _parts_of(array)
        for _, vector in bundle.vectors.values():
            yield from _parts_of(vector())


def _parts_of(array: NDArray[Any]) -> Iterator[pa.RecordBatch]:
    rows = max(1, _PART_BYTES // max(1, array.itemsize * math.prod(array.shape[1:])))
    for first in range(0, len(array), rows):
        part = np.ascontiguousarray(array[first : first + rows]).reshape(-1).view(np.uint8)
        yield pa.RecordBatch.from_arrays([pa.array(part)], schema=_SCHEMA)


def sections_in(table: pa.Table, record: dict[str, Any], wanted: Collection[str] = ()) -> dict[str, Bundle]:
    """What `write_sections` has written; or the wanted sections, as far as there are such."""
    content, first, sections = table.column(0), 0, {}
    for name, section in record["sections"].items():
        bundle = Bundle(section["values"])
        for of, (dtype, shape) in section["arrays"].items():
            size = np.dtype(dtype).itemsize * math.prod(shape)
            if not wanted or name in wanted:
                bundle.arrays[of] = _array(content.slice(first, size), dtype, shape)
            first += size
        if not wanted or name in wanted:
            sections[name] = bundle
    return sections


def _array(content: pa.ChunkedArray, dtype: str, shape: list[int]) -> NDArray[Any]:
    """The array of these bytes, which its user may change."""
    array = np.empty(shape, dtype)
    into, done = array.reshape(-1).view(np.uint8), 0
    for chunk in content.chunks:
        into[done : done + len(chunk)] = chunk.to_numpy(zero_copy_only=True)
        done += len(chunk)
    require(done == len(into), f"an array of {len(into)} bytes, of which {done} are there")
    return array
