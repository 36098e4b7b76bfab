"""One input file while it is read: its decompressed bytes, its lines, their words, and its bad rows."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streampgs.base.errors import DataError, StreampgsError
from streampgs.base.faults import naming_faults
from streampgs.base.files import ends_early, reading
from streampgs.packing.options import PackOptions

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
CHUNK_BYTES = 1 << 22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_BYTES = 60
_COMMENT = re.compile(rb"#[^\n]*")
_LONELY_RETURN = re.compile(rb"\r(?!\n)")


class BadLine(ValueError):
    """A line is not a row. The text is the reason."""


@dataclass
class Source:
    path: Path
    options: PackOptions
    place: int = 0
    """Bytes of the file that were read, for the progress bar."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that were left out, by reason."""

    def bad_row(self, reason: str, where: str, text: bytes) -> None:
        """Count a row that is left out, or refuse it."""
        if not self.options.skips_bad_rows:
            shown = text[:_SHOWN_BYTES].decode(errors="backslashreplace") + ("…" if len(text) > _SHOWN_BYTES else "")
            remedy = "fix it, or leave such rows out with `--on-bad-row skip`"
            raise DataError(f"'{self.path}', {where}: {reason}: {shown!r}", remedy)
        self.skipped[reason] += 1


def compression_of(path: Path) -> str | None:
    """The compression that the first bytes tell: a name may be wrong."""
    try:
        with naming_faults(path), reading(path) as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read: {error.strerror or error}", "check that it exists, or leave it out"
        ) from error
    return next((codec for magic, codec in _MAGIC.items() if head.startswith(magic)), None)


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Name the file in errors that libraries raise for damage."""
    try:
        with naming_faults(path):
            yield
    except StreampgsError:
        raise
    except MemoryError as error:
        raise DataError(
            f"'{path}' has a part that does not fit into memory: {error}",
            "write it in smaller parts, such as row groups; if it is damaged, fetch it again",
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # the file was removed, or a fault
            raise
        raise DataError(f"'{path}' is damaged: {error or type(error).__name__}", "fetch or write it again") from error


class ByteStream:
    """The decompressed bytes of a file, followed by `end`."""

    closed = False  # pyarrow asks for it

    def __init__(self, source: Source, file: Any, end: bytes) -> None:
        self._source, self._file, self._end = source, file, end
        self._codec = compression_of(source.path)
        self._size = source.path.stat().st_size
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), self._codec) if self._codec else file

    def read(self, count: int) -> bytes:
        data = self._read(count)
        if count and not data:
            data, self._end = self._end, b""
        return data

    def _read(self, count: int) -> bytes:
        path, place = self._source.path, self._source.place
        try:
            with naming_faults(path):
                data: bytes = self._stream.read(count)
                if count and not data and self._file.tell() < self._size:
                    raise ends_early()
        except OSError as error:
            if not self._codec:
                raise
            raise DataError(
                f"'{path}' is damaged or cut off: it cannot be decompressed beyond byte {place:,}: {error}",
                "fetch or write it again",
            ) from error
        self._source.place = self._file.tell()
        return data

    def close(self) -> None:
        """The file belongs to `opened`."""


@contextmanager
def opened(source: Source, end: bytes = b"", kind: type[ByteStream] = ByteStream) -> Iterator[ByteStream]:
    with naming_faults(source.path), reading(source.path) as file:
        yield kind(source, file, end)


def chunks(source: Source) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a text, each with a line break, and the number of the first of them."""
    longest = source.options.memory // 32
    line, data, ended = 1, b"", False
    with opened(source) as stream:
        while not ended:
            more = stream.read(CHUNK_BYTES)
            ended = not more
            data += more
            if line == 1:
                data = data.removeprefix(_BYTE_ORDER_MARK)
            if ended and data and not data.endswith(b"\n"):
                data += b"\n"
            while line <= source.options.skip_lines and b"\n" in data:
                data = data.partition(b"\n")[2]
                line += 1
            cut = data.rfind(b"\n") + 1 if line > source.options.skip_lines else 0
            if cut:
                yield data[:cut], line
                line += data.count(b"\n", 0, cut)
                data = data[cut:]
            elif len(data) > longest:
                raise DataError(
                    f"'{source.path}', line {line}: no line break within {len(data):,} bytes",
                    "is it text? A longer line needs more --memory",
                )


def rows_of_lines(source: Source, parse: Callable[[bytes], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a text. `parse` gets whole lines, and raises ValueError unless all of them are rows."""
    for data, line in chunks(source):
        yield from _parsed(source, data, line, parse)


def _parsed(
    source: Source, data: bytes, first_line: int, parse: Callable[[bytes], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of some lines. A bad line among them is found by halves."""
    try:
        batch = parse(data)
    except ValueError as error:
        lines = data.split(b"\n")[:-1]
        if len(lines) == 1:
            reason = str(error) if isinstance(error, BadLine) else f"it cannot be read: {error}"
            source.bad_row(reason, f"line {first_line:,}", data.strip())
            return
        half = len(lines) // 2
        for part, first in ((lines[:half], first_line), (lines[half:], first_line + half)):
            yield from _parsed(source, b"\n".join([*part, b""]), first, parse)
    else:
        if batch.num_rows:
            yield batch


def decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadLine("a line that is not UTF-8") from None


def lines_of(data: bytes, comments: bool = False) -> pa.Array:
    """The lines that are not blank, without blanks at their ends."""
    if b"\r" in data and _LONELY_RETURN.search(data):
        # It ends lines in some old files. Taken for a blank, it would join two rows.
        raise BadLine("a carriage return without a line feed: tr '\\r' '\\n' converts it")
    if comments and b"#" in data:
        data = _COMMENT.sub(b"", data)
    lines = pc.ascii_trim_whitespace(pa.array(decoded(data).split("\n"), pa.string()))
    return lines.filter(pc.not_equal(lines, ""))


def all_of(good: Any, reason: str) -> None:
    if not pc.all(good, min_count=0).as_py():
        raise BadLine(reason)


def numbers(texts: Any, reason: str) -> Any:
    """The doubles nearest to the texts."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        raise BadLine(reason) from None


def whole_numbers(texts: Any) -> Any | None:
    """Whole numbers from 0 up; None if a text is not one. pyarrow reads hexadecimal numbers, too."""
    try:
        found = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    good = pc.and_(pc.greater_equal(found, 0), pc.invert(pc.match_substring_regex(texts, r"^-|^0[xX]")))
    return found if pc.all(good, min_count=0).as_py() else None
