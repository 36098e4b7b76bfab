"""Sealed files: an Arrow IPC stream followed by the SHA-256 of everything before it, so that damage is always detected.
Any Arrow reader can open one; this one also verifies it.

This is the only place where files of a run are written: to a temporary name, synced, renamed, and the folder synced.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from streampgs.base.checks import refuse_other_format
from streampgs.base.errors import RunError
from streampgs.base.faults import is_fault, naming_faults, remedy, repeated
from streampgs.base.files import OWN, closed_after_reading, ends_early, new_file, open_regular, sync_folder

FORMAT = 5
"""The format of a run's files. It changes whenever an older program could not read them, or a newer one could not read older
files."""
_MAGIC = b"spgseal1"
_TRAILER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_JSON_KEY = b"streampgs"
_FORMAT_KEY = "format"
_HASH_BYTES = 1 << 22


class SealBroken(Exception):
    """The file is damaged or invalid."""


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
    """Write batches and a JSON record to `path`. If that fails, the file that was there before is unchanged."""
    record = {_FORMAT_KEY: FORMAT, **record}
    schema = schema.with_metadata({_JSON_KEY: json.dumps(record, allow_nan=False).encode()})
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with open(new_file(temporary), "wb") as file:
            hashing = _HashingFile(file)
            with pa.ipc.new_stream(pa.PythonFile(hashing, mode="w"), schema) as writer:
                for batch in batches:
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            file.write(_MAGIC + hashing.digest.digest())
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RunError(
            f"'{path}' cannot be written: {error.strerror or error}",
            f"{remedy(error)}, then resume: the file that was there before is intact",
        ) from error


def read_sealed(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The table and the record, from the bytes that were verified: the file is read once.

    SealBroken: the file is damaged. FileNotFoundError: there is none. Unreadable: the system could not read it.
    """
    with naming_faults(path):
        data = repeated(lambda: _verified_bytes(path))
    try:
        table = pa.ipc.open_stream(data).read_all()
        record = json.loads(table.schema.metadata[_JSON_KEY], parse_constant=_finite, parse_float=_finite)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise SealBroken(f"its seal is intact, but its contents are not: {error!r}") from error
    if not isinstance(record, dict):
        raise SealBroken("its seal is intact, but it has no record")
    refuse_other_format(path, record.get(_FORMAT_KEY), FORMAT)
    return table, record


def _finite(text: str) -> float:
    """NaN and infinity are never written."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text}")
    return number


def _verified_bytes(path: Path) -> pa.Buffer:
    """Everything before the seal."""
    try:
        file = open(open_regular(path, OWN), "rb", buffering=0)  # noqa: SIM115 -- closed below
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_fault(error):
            raise
        raise SealBroken(error.strerror or str(error)) from error
    with closed_after_reading(file):
        size = os.fstat(file.fileno()).st_size
        if size < _TRAILER_BYTES:
            raise SealBroken("it is too short")
        data = np.empty(size, np.uint8)
        digest, done, content = hashlib.sha256(), 0, size - _TRAILER_BYTES
        while done < size:
            got = file.readinto(data[done : done + _HASH_BYTES].data)
            if not got:
                raise ends_early()
            digest.update(data[done : min(done + got, content)].data)
            done += got
        if data[content:].tobytes() != _MAGIC + digest.digest():
            raise SealBroken("its SHA-256 does not match")
    return pa.py_buffer(data[:content])
