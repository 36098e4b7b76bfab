"""Files that are either whole and unaltered, or recognised as not: an Arrow IPC stream followed by a SHA-256 of all
that precedes it. Any Arrow reader can open one; this one also verifies it.

The single place where a run's files are written: to a temporary name, synced, renamed, and the folder synced.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from streampgs.errors import RunError

_MAGIC = b"spgseal1"
_TRAILER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_JSON_KEY = b"streampgs"
_HASH_BYTES = 1 << 22


class SealBroken(Exception):
    """The file is not what was once written."""


class _HashingFile:
    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True


def write_sealed(path: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema, record: dict[str, Any]) -> None:
    """Write batches and a JSON record under the name `path`, or leave what was there before."""
    schema = schema.with_metadata({_JSON_KEY: json.dumps(record, allow_nan=False).encode()})
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with open(temporary, "wb") as file:
            hashing = _HashingFile(file)
            with pa.ipc.new_stream(pa.PythonFile(hashing, mode="w"), schema) as writer:
                for batch in batches:
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            file.write(_MAGIC + hashing.digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RunError(
            f"'{path}' cannot be written: {error.strerror or error}",
            "free some space or mend the permissions, then resume: what was there before is intact",
        ) from error


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_sealed(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The table and the record, after the whole file was verified."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _TRAILER_BYTES:
            raise SealBroken("it is too short")
        digest = hashlib.sha256()
        left = size - _TRAILER_BYTES
        while left:
            data = file.read(min(left, _HASH_BYTES))
            if not data:
                raise SealBroken("it became shorter while it was read")
            digest.update(data)
            left -= len(data)
        if file.read() != _MAGIC + digest.digest():
            raise SealBroken("its SHA-256 does not match")
        file.seek(0)
        with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as reader:
            table = reader.read_all()
    return table, json.loads(table.schema.metadata[_JSON_KEY])
