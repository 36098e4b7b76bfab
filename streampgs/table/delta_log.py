"""The files of a Delta table's log, before the package deltalake reads them. It would follow links out of the table, wait
for pipes, and end the process at JSON that is nested deeply."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from streampgs.base.checks import depth_of_json, most_brackets, parsed_json
from streampgs.base.errors import DataError
from streampgs.base.files import reading

LONGEST_COMMIT = 256 << 20
"""In bytes."""
_LONGEST_ACTION, _DEEPEST, _MOST_VALUES = 16 << 20, 100, 32 << 20
"""Bytes of a line; levels, of which deltalake reads some thousands; and values of a file: each takes it about 25 bytes."""
_PART_BYTES = 1 << 24
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")
_COMMIT = re.compile(r"([0-9]{20})\.(json|crc)")


class Inside:
    """Which paths stay in a folder when links are followed."""

    def __init__(self, folder: str) -> None:
        self._root = os.path.realpath(folder)
        self._folders: dict[str, bool] = {}

    def holds(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._folders[folder] = self._is_below(folder)
        return self._folders[folder] and (not os.path.islink(path) or self._is_below(path))

    def _is_below(self, path: str) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(path)]) == self._root


def check_log(log: str, table: str) -> None:
    """Refuse a log with a file that cannot be read safely."""
    inside = Inside(table)
    if not inside.holds(log):
        raise _odd(log, "leads outside the table's folder")
    entries = list(_entries(log, inside))
    checkpoints = [int(found[1]) for entry in entries if (found := _CHECKPOINT.fullmatch(entry.name))]
    newest = max(checkpoints, default=-1)
    for entry in entries:
        commit = _COMMIT.fullmatch(entry.name)
        if not entry.name.endswith(".parquet") and (commit is None or int(commit[1]) > newest):
            _check_json(Path(entry.path))


def _entries(folder: str, inside: Inside) -> Iterator[os.DirEntry[str]]:
    """The files in a folder and below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not inside.holds(entry.path):
                raise _odd(entry.path, "is a link to a place outside the table's folder")
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path, inside)
            elif entry.is_file():
                yield entry
            elif not entry.is_dir():
                raise _odd(entry.path, "is not a regular file")


def _check_json(path: Path) -> None:
    try:
        with reading(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > LONGEST_COMMIT:
                raise _odd(path, f"has {size:,} bytes; at most {LONGEST_COMMIT:,} are read")
            data = file.read(LONGEST_COMMIT)
    except FileNotFoundError:
        return  # a log is cleaned up while it is read
    if _values(data) > _MOST_VALUES:
        raise _odd(path, f"has more than {_MOST_VALUES:,} values")
    if (
        most_brackets(data) > _DEEPEST and depth_of_json(data) > _DEEPEST
    ):  # all lines at once: a string may hold a break
        raise _odd(path, f"has JSON of more than {_DEEPEST} levels")


def _values(data: bytes) -> int:
    """At least the number of values: commas and brackets in strings count, too."""
    parts = (np.frombuffer(data[at : at + _PART_BYTES], np.uint8) for at in range(0, len(data), _PART_BYTES))
    return sum(int(np.isin(part, np.frombuffer(b"[{,:", np.uint8)).sum()) for part in parts)


def _odd(path: str | Path, what: str) -> DataError:
    return DataError(f"'{path}', a part of a Delta table's log, {what}", "restore the table's log")


ADDS_ROWS: dict[str, Any] = {}
"""In place of an action that adds a file with other rows than before."""


def needed_actions(commit: BinaryIO) -> list[dict[str, Any]]:
    """Line by line: most of them add files, and which ones is not needed."""
    found = []
    while line := commit.readline(_LONGEST_ACTION + 1):
        action = parsed_json(line, _LONGEST_ACTION) if line.strip() else {}
        if not isinstance(action, dict):
            raise ValueError("an action that is not a JSON object")
        found += [{name: action[name]} for name in ("remove", "commitInfo") if isinstance(action.get(name), dict)]
        added = action.get("add")
        if isinstance(added, dict):
            found.append({"add": added} if added.get("dataChange") is False else ADDS_ROWS)
    return found
