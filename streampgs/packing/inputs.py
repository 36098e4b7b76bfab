"""The files that a user names: which they are, the kind of each, and the columns that are set for them or in a file of labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError
from streampgs.base.faults import exists, naming_faults
from streampgs.base.files import reading
from streampgs.base.globs import is_folder, matches
from streampgs.packing.kinds import KINDS
from streampgs.packing.source import COMPRESSIONS, compression_of
from streampgs.table.locate import Folders

_SETS = re.compile(r"^(.*)::([^:/=]+=.*)$", re.DOTALL)

Value = int | float | bool | str


@dataclass(frozen=True)
class Input:
    path: Path
    kind: str
    sets: tuple[tuple[str, Value], ...] = ()
    """Columns with the same value in all its rows."""


def find_inputs(sources: Iterable[str], out: Path, kind: str | None) -> tuple[list[Input], list[Path]]:
    """The files in the order of the sources, those of a folder or pattern by name; and the files that were left out."""
    inputs: list[Input] = []
    passed: list[Path] = []
    out = Path(os.path.realpath(out))
    for source in sources:
        name, sets = _with_sets(source)
        before = len(inputs) + len(passed)
        for path in [name] if exists(name) else matches(name):
            in_folder = is_folder(path)
            for file in map(
                Path, Folders().files_below(os.path.abspath(path)) if in_folder else [os.path.abspath(path)]
            ):
                if Path(os.path.realpath(file)).is_relative_to(out):
                    continue
                named = kind or _kind_by_name(file)
                if named is not None:
                    inputs.append(Input(file, _checked(file, named), sets))
                elif in_folder:
                    passed.append(file)
                else:
                    known = "|".join(KINDS)
                    raise DataError(f"the name of '{file}' does not tell its kind", f"give it with `--from {known}`")
        if len(inputs) + len(passed) == before:
            raise DataError(
                f"there are no files at '{name}', apart from those in the output folder",
                "name files, folders, or quoted patterns",
            )
    if not inputs:
        raise DataError(
            f"the names of the files tell no kind, '{passed[0].name}' first", "give the kind of files with --from"
        )
    return inputs, passed


def _with_sets(source: str) -> tuple[str, tuple[tuple[str, Value], ...]]:
    """The file and the columns of 'FILE::name=value,…'."""
    match = None if exists(source) else _SETS.match(source)
    if match is None:
        return source, ()
    pairs = [part.partition("=") for part in match.group(2).split(",")]
    if not all(name and text for name, _, text in pairs):
        raise OptionError(f"'{source}' sets a column without a value", "write FILE::name=value,other=value")
    return match.group(1), tuple((name, _value(text)) for name, _, text in pairs)


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _kind_by_name(path: Path) -> str | None:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return next((name for name, kind in KINDS.items() if plain.suffix.lower() in kind.endings), None)


def _checked(path: Path, kind: str) -> str:
    if not KINDS[kind].is_text and compression_of(path) is not None:
        raise DataError(f"'{path}' is a compressed {kind} file", "decompress it: only text may be compressed")
    return kind


def labels_in(path: Path, memory: int) -> NDArray[Any]:
    """The numbers in a file of labels. They are held in memory."""
    try:
        with naming_faults(path), reading(path) as file:
            is_npy = file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
            if path.stat().st_size > memory // 4:
                raise DataError(f"'{path}' does not fit into a quarter of --memory", "raise --memory")
            file.seek(0)
            labels = np.load(file) if is_npy else np.loadtxt(file, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{path}' cannot be read: {error}", "name a file with one number a line, or a .npy file"
        ) from error
    if labels.ndim != 1 or labels.dtype.kind not in "biuf":
        raise DataError(f"'{path}' is of type {labels.dtype} and shape {labels.shape}", "save one axis of numbers")
    return labels
