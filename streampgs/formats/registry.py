"""The shard formats, and the way to an open shard. A new format is one file and one line here."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa

from streampgs.base.errors import DataChanged, DataError, Unfinished
from streampgs.formats.arrow import ArrowFormat
from streampgs.formats.format import Damaged, Fingerprint, Footer, OpenShard, ShardFile, ShardFormat, ShardPath
from streampgs.formats.local import LocalFile, unreadable
from streampgs.formats.parquet import ParquetFormat
from streampgs.formats.parquet_footer import ENCRYPTED_MAGIC, encrypted
from streampgs.formats.remote import RemoteShardFile
from streampgs.stores.access import RemoteObject, looked_up

FORMATS: dict[str, ShardFormat] = {one.name: one for one in (ArrowFormat(), ParquetFormat())}

_MOST_KEPT_BYTES = 64 << 20
"""The memory for footers that are kept. The last one is always kept."""
_ENTRY_BYTES = 2048
"""What a kept footer takes besides its own memory: paths, stamps and fingerprints; measured."""
_LONGEST_MAGIC = 8
_DIGESTED_BYTES = 1 << 20


def suffixes() -> list[str]:
    return sorted(suffix for one in FORMATS.values() for suffix in one.suffixes)


def is_shard_name(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in suffixes()


@dataclass(frozen=True)
class _Known:
    """The content of a file."""

    fingerprint: Fingerprint
    format: ShardFormat
    footer: Footer

    @property
    def nbytes(self) -> int:
        return _ENTRY_BYTES + self.footer.nbytes


class _KnownFiles:
    """The files that were opened last. A file is known again as long as its stamp is the same."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._files: OrderedDict[str, tuple[tuple[object, ...], _Known]] = OrderedDict()
        self._lock = threading.Lock()
        self.nbytes = 0

    def find(self, file: ShardFile) -> _Known | None:
        name, stamp = str(file.path), file.stamp
        with self._lock:
            found = self._files.get(name)
            if found is None or stamp is None or found[0] != stamp:
                return None
            self._files.move_to_end(name)
            return found[1]

    def keep(self, file: ShardFile, known: _Known) -> None:
        if file.stamp is None:
            return
        with self._lock:
            name = str(file.path)
            self._drop(self._files.pop(name, None))
            self._files[name] = file.stamp, known
            self.nbytes += known.nbytes
            while len(self._files) > 1 and self.nbytes > self._most_bytes:
                self._drop(self._files.popitem(last=False)[1])

    def _drop(self, entry: tuple[tuple[object, ...], _Known] | None) -> None:
        self.nbytes -= 0 if entry is None else entry[1].nbytes


_KNOWN = _KnownFiles(_MOST_KEPT_BYTES)


def open_shard(path: ShardPath, expected: Fingerprint | None = None) -> OpenShard:
    """A shard, open for reading; `expected`: refuse any other content than this. Its footer is parsed only if it is not
    one of the last ones that were."""
    file: ShardFile | None = None
    try:
        file = RemoteShardFile(path) if isinstance(path, RemoteObject) and path.folder is None else LocalFile(path)
        known = _known(file)
        if expected is not None and known.fingerprint != expected:
            raise _changed(path, known.fingerprint, expected)
        file.known_as(lambda again: _present_fingerprint(again) == known.fingerprint)
        return known.format.open(file, known.footer, known.fingerprint)
    except BaseException as error:
        if file is not None:
            file.close()
        if isinstance(error, OSError):
            raise unreadable(path, error) from error
        raise


def fingerprint_of(path: ShardPath) -> Fingerprint:
    """The present content of a shard. Nothing is parsed for it."""
    try:
        with closing(LocalFile(path)) as file:
            found = _KNOWN.find(file)
            return found.fingerprint if found is not None else _present_fingerprint(file)
    except OSError as error:
        raise unreadable(path, error) from error


def present_version(path: ShardPath) -> ShardPath:
    """The present version of an object, of which only the address may be known."""
    return looked_up(path.address) if isinstance(path, RemoteObject) else path


def schema_of(path: ShardPath) -> pa.Schema:
    path = present_version(path)
    with open_shard(path) as shard:
        return shard.schema


def _known(file: ShardFile) -> _Known:
    found = _KNOWN.find(file)
    if found is not None:
        return found
    shard_format, digest = _format_of(file), hashlib.sha256()
    place = shard_format.footer_place(file)
    try:
        footer = shard_format.read_footer(file, place, digest.update)
        _ = footer.schema.names  # pyarrow decodes them only now
    except (Damaged, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise DataError(f"shard '{file.path}': its footer cannot be read: {error}", "write the file again") from error
    known = _Known(_fingerprint(file, digest), shard_format, footer)
    _KNOWN.keep(file, known)
    return known


def _present_fingerprint(file: ShardFile) -> Fingerprint:
    digest = hashlib.sha256()
    start = _format_of(file).footer_place(file).start
    for first in range(start, file.size, _DIGESTED_BYTES):
        digest.update(file.read(min(_DIGESTED_BYTES, file.size - first), first))
    return _fingerprint(file, digest)


def _fingerprint(file: ShardFile, digest: hashlib._Hash) -> Fingerprint:
    return file.fingerprint(digest.hexdigest()[:32])


def _format_of(file: ShardFile) -> ShardFormat:
    return format_of(file.path, file.read(min(_LONGEST_MAGIC, file.size), 0))


def _changed(path: ShardPath, now: Fingerprint, expected: Fingerprint) -> DataChanged:
    if now.size != expected.size:
        what = f"it has {now.size:,} bytes and not {expected.size:,} as catalogued"
    else:
        what = "its footer or its time stamp is not the catalogued one"
    return DataChanged(f"shard '{path}' was replaced while in use: {what}", "restore it, or start a new run")


def format_of(path: ShardPath, head: bytes) -> ShardFormat:
    """By the first bytes and not by the name."""
    for one in FORMATS.values():
        if head.startswith(one.magic):
            return one
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
    if head.startswith(ENCRYPTED_MAGIC):
        raise encrypted(path)
    if not head:
        raise Unfinished(f"shard '{path}' is empty", "remove it, or let its writer finish")
    if len(head) < max(len(one.magic) for one in FORMATS.values()) or not any(head):
        raise Unfinished(f"shard '{path}' has no beginning yet", "remove it, or let its writer finish")
    raise DataError(
        f"shard '{path}' is not in a known format ({', '.join(FORMATS)})",
        "make shards of CSV, JSON, svmlight and other files: `streampgs pack FILE OUT`",
    )
