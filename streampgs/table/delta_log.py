"""The files of a Delta table's log, before the package deltalake reads them. It would follow links out of the table, wait
for pipes, and end the process at JSON that is nested deeply."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from streampgs.base.errors import DataError
from streampgs.base.files import reading

_LARGEST = 128 << 20
"""Bytes of a file. deltalake may take 25 bytes of memory for two of them."""
_CHECKPOINT = ".checkpoint.parquet"
_DIGITS = 20
"""Of the version that a file's name begins with."""


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


def check_log(log: Path, table: str) -> None:
    """Refuse a log with a file that cannot be read safely. JSON that a checkpoint replaces is not read."""
    inside, paths = Inside(table), [log, *log.rglob("*")]
    newest = max((path.name[:_DIGITS] for path in paths if path.name.endswith(_CHECKPOINT)), default="")
    for path in paths:
        if not inside.holds(str(path)):
            raise _odd(path, "is a link to a place outside the table's folder")
        if not path.is_dir() and path.suffix != ".parquet" and path.name[:_DIGITS] > newest:
            _check_json(path)


def _check_json(path: Path) -> None:
    try:
        with reading(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _LARGEST:
                raise _odd(path, f"has {size:,} bytes; at most {_LARGEST:,} are read")
            for line in filter(bytes.strip, file):
                msgspec.json.decode(line, type=msgspec.Raw)  # which makes no values, and stops at 1,000 levels or so
    except FileNotFoundError:
        return  # a log is cleaned up while it is read
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise _odd(path, f"cannot be read: {error}") from error


def _odd(path: Path, what: str) -> DataError:
    return DataError(f"'{path}', a part of a Delta table's log, {what}", "restore the table's log")
