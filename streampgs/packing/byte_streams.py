"""Files as streams of bytes, decompressed on the way, and in chunks of whole lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.errors import DataError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_CHUNK_BYTES = 1 << 22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Advance = Callable[[int], None]
"""Is told how many bytes of the input files were used since it was last told."""


def compression_of(path: Path) -> str | None:
    """Told by the first bytes: a name may say nothing, or something wrong."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read: {error.strerror}", "mend the permissions, or leave it out"
        ) from error
    return next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)


class ByteStream:
    """The bytes of a file as they were before it was compressed."""

    def __init__(self, path: Path, advance: Advance) -> None:
        self._path = path
        self._advance = advance
        self._told = 0
        self._raw = pa.OSFile(str(path))
        self.size = self._raw.size()
        codec = compression_of(path)
        self.compressed = codec is not None
        self._stream = pa.CompressedInputStream(self._raw, codec) if codec else self._raw
        self.closed = False
        self._lock = threading.Lock()  # pyarrow reads CSV ahead in a thread of its own, which may outlast the reading

    def read(self, count: int = -1) -> bytes:
        with self._lock:
            return b"" if self.closed else self._read(count)

    def _read(self, count: int) -> bytes:
        try:
            data: bytes = self._stream.read(count if count >= 0 else None)
        except OSError as error:
            if error.errno and not self.compressed:
                raise
            raise DataError(
                f"'{self._path}' is damaged or cut off: it cannot be decompressed beyond byte {self._raw.tell():,}: {error}",
                "fetch or write it again",
            ) from error
        self._tell()
        return data

    def filled(self, data: bytes, count: int) -> tuple[bytes, bool]:
        """The data with what follows, `count` bytes in all or up to the end; and whether the end was met."""
        parts = [data]
        missing = count - len(data)
        while missing > 0:
            parts.append(self.read(missing))
            if not parts[-1]:
                break
            missing -= len(parts[-1])
        return (b"".join(parts) if len(parts) > 1 else data), missing > 0

    def skip(self, count: int) -> None:
        if not self.compressed:
            self._raw.seek(count)
            self._tell()
            return
        while count > 0:
            got = len(self.read(min(count, _CHUNK_BYTES)))
            if not got:
                return
            count -= got

    def _tell(self) -> None:
        place = self._raw.tell()
        self._advance(place - self._told)
        self._told = place

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._advance(self.size - self._told)
            self._told = self.size
            self._raw.close()


@contextmanager
def opened(path: Path, advance: Advance) -> Iterator[ByteStream]:
    stream = ByteStream(path, advance)
    try:
        yield stream
    finally:
        stream.close()


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a text."""

    data: bytes
    start: int
    """Its place among the file's bytes, decompressed."""
    first_line: int
    """Counted from 1."""

    @property
    def bytes_of(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)


def text_chunks(path: Path, advance: Advance, skip_lines: int, mark: tuple[int, ...], longest: int) -> Iterator[Chunk]:
    """Chunks that end at a line break or with the file. `mark`: (start, first line) of the first one wanted, or empty.

    Where a chunk ends depends on where it starts, and on nothing before.
    """
    with opened(path, advance) as stream:
        start, line = mark or (0, 1)
        stream.skip(start)
        to_skip = 0 if mark else skip_lines
        data, ended = stream.filled(b"", _CHUNK_BYTES)
        if start == 0 and data.startswith(_BYTE_ORDER_MARK):
            data, start = data[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
        while data or not ended:
            data, ended = stream.filled(data, _CHUNK_BYTES)
            while not ended and b"\n" not in data:
                if len(data) > longest:
                    raise DataError(
                        f"'{path}', line {line}: no end within {len(data):,} bytes",
                        "is it text? A longer line needs more --memory",
                    )
                data, ended = stream.filled(data, len(data) + _CHUNK_BYTES)
            if to_skip:
                cut = data.find(b"\n") + 1 or len(data)
                to_skip -= 1
            else:
                cut = len(data) if ended else data.rfind(b"\n") + 1
                if cut:
                    yield Chunk(data[:cut], start, line)
            line += data.count(b"\n", 0, cut)
            start += cut
            data = data[cut:]


def first_bytes(path: Path, count: int) -> bytes:
    """Of what the file holds, decompressed."""
    with opened(path, lambda _: None) as stream:
        return stream.read(count)
