"""One input file while it is read: its bytes, decompressed, whole lines of it, its bad rows, and reading ahead."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from streampgs.base.errors import DataError
from streampgs.base.faults import naming_faults
from streampgs.base.files import ends_early, native_path, reading
from streampgs.packing.options import PackOptions

Item = TypeVar("Item")

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
CHUNK_BYTES = 1 << 22
SPILL = ".query-spill"
"""The folder of a query that needs more than its memory."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_BYTES = 60
_SKIP = "fix it, or leave such rows out with `--on-bad-row skip`"


@dataclass
class Shape:
    """The schema of the pack so far. Readers convert to its types where they can."""

    schema: pa.Schema

    def type_of(self, column: str) -> pa.DataType | None:
        place = self.schema.get_field_index(column)
        return self.schema.field(place).type if place >= 0 else None


@dataclass
class Source:
    path: Path
    options: PackOptions
    place: int = 0
    """Bytes of the file that were read, for the progress bar."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that were left out, by reason."""

    def bad_rows(self, reason: str, where: str, text: bytes, rows: int = 1, remedy: str = _SKIP) -> None:
        """Count rows that are left out, or refuse the first of them."""
        if not self.options.skips_bad_rows:
            self.refuse(reason, where, text, remedy)
        self.skipped[reason] += rows

    def refuse(self, reason: str, where: str, text: bytes, remedy: str = _SKIP) -> NoReturn:
        shown = text[:_SHOWN_BYTES].decode(errors="backslashreplace") + ("…" if len(text) > _SHOWN_BYTES else "")
        raise DataError(f"'{self.path}', {where}: {reason}: {shown!r}", remedy)


def compression_of(path: Path) -> str | None:
    """Detected by the first bytes: a name may be wrong."""
    try:
        with naming_faults(path), reading(path) as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read: {error.strerror or error}", "check that it exists, or leave it out"
        ) from error
    return next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)


class ByteStream:
    """The decompressed bytes of a file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._codec = compression_of(source.path)
        with naming_faults(source.path), native_path(source.path) as path:
            self._raw = pa.OSFile(path)
            self._size = self._raw.size()
        self._stream = pa.CompressedInputStream(self._raw, self._codec) if self._codec else self._raw
        self._lock = threading.Lock()  # the thread in which pyarrow reads CSV ahead may outlast the reading
        self.closed = False

    def read(self, count: int) -> bytes:
        with self._lock:
            if self.closed:
                return b""
            try:
                with naming_faults(self._source.path):
                    data: bytes = self._stream.read(count)
                    if count and not data and self._raw.tell() < self._size:
                        raise ends_early()
            except OSError as error:
                if not self._codec:
                    raise
                raise DataError(
                    f"'{self._source.path}' is damaged or cut off: it cannot be decompressed beyond byte "
                    f"{self._raw.tell():,}: {error}",
                    "fetch or write it again",
                ) from error
            self._source.place = self._raw.tell()
            return data

    def close(self) -> None:
        with self._lock:
            self.closed = True
            with suppress(OSError):  # the bytes that were read are right all the same
                self._raw.close()


@contextmanager
def opened(source: Source) -> Iterator[ByteStream]:
    stream = ByteStream(source)
    try:
        yield stream
    finally:
        stream.close()


def first_bytes(path: Path, count: int) -> bytes:
    with opened(Source(path, PackOptions())) as stream:
        return stream.read(count)


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a text, the last of them with a line break."""

    data: bytes
    first_line: int
    """Counted from 1."""


def text_chunks(source: Source, size: int) -> Iterator[Chunk]:
    longest = source.options.memory // 32
    line, to_skip, data, ended = 1, source.options.skip_lines, b"", False
    with opened(source) as stream:
        while not ended:
            more = stream.read(size)
            ended = not more
            data += more
            if line == 1 and data.startswith(_BYTE_ORDER_MARK):
                data = data[len(_BYTE_ORDER_MARK) :]
            if ended and data and not data.endswith(b"\n"):
                data += b"\n"
            while to_skip and b"\n" in data:
                data = data.partition(b"\n")[2]
                to_skip -= 1
                line += 1
            cut = 0 if to_skip else data.rfind(b"\n") + 1
            if cut:
                yield Chunk(data[:cut], line)
                line += data.count(b"\n", 0, cut)
                data = data[cut:]
            elif len(data) > longest:
                raise DataError(
                    f"'{source.path}', line {line}: no line break within {len(data):,} bytes",
                    "is it text? A longer line needs more --memory",
                )


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items, one of them made in advance by a thread, so that parsing overlaps with writing. Closing the generator
    closes `items`."""
    end: Any = object()
    with ThreadPoolExecutor(1, "streampgs-pack") as pool:
        try:
            coming = pool.submit(next, items, end)
            while (item := coming.result()) is not end:
                coming = pool.submit(next, items, end)
                yield item
                del item
        finally:
            pool.submit(getattr(items, "close", int)).result()
