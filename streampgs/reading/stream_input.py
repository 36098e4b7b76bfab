"""An Arrow IPC stream on a pipe, as batches of as many rows as are wanted. No row that was read is lost when reading is
interrupted."""

from __future__ import annotations

import fcntl
import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, Unreadable
from streampgs.base.faults import is_fault, repeated
from streampgs.encoding.types import BINARY, STRING, bytes_of, class_of, is_list, lists_of, plain
from streampgs.reading.blocks import Stopped

_POLL_MILLISECONDS = 100
_PIPE_BYTES = 1 << 20
_BUFFERED = 1 << 18
_SAMPLED_TOGETHER = 1 << 11
_BEGINNING = b"\xff\xff\xff\xff"
_OTHER_BEGINNINGS = {
    b"ARROW1": "an Arrow file, not a stream",
    b"FEA1": "a Feather file",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"{": "JSON",
}
_WRITE_A_STREAM = "write an Arrow IPC stream, in Python with pyarrow.ipc.new_stream(sys.stdout.buffer, schema)"


class _PipeBytes:
    """The file that pyarrow reads from. While it waits for bytes, it checks for a stop."""

    closed = False

    def __init__(self, fd: int, most_bytes: int, stopping: Callable[[], bool]) -> None:
        self.ended = False
        """Whether the stream ended before the bytes that were asked for."""
        self.stopping = stopping
        self._fd = fd
        self._most_bytes = most_bytes
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._buffer = b""
        with suppress(OSError):  # it may not be a pipe, or have its largest size
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def peek(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self._some()
            if not more:
                break
            self._buffer += more
        return self._buffer[:size]

    def read(self, size: int) -> bytes | memoryview:
        if size > self._most_bytes:
            raise DataError(
                f"a record batch of {size / 1e6:,.0f} MB in the stream; {self._most_bytes / 1e6:,.0f} MB fit next to "
                "windows and reservoir",
                "write smaller batches (write_table(table, max_chunksize=65536)), or give more --memory",
            )
        if size <= _BUFFERED:
            found = self.peek(size)
            self._buffer = self._buffer[len(found) :]
            self.ended |= len(found) < size
            return found
        target: NDArray[np.uint8] = np.empty(size, np.uint8)
        reached = len(self._buffer)
        target[:reached] = np.frombuffer(self._buffer, np.uint8)
        self._buffer = b""
        while reached < size:
            self._wait()
            got = self._into(target.data[reached:])
            if not got:
                self.ended = True
                break
            reached += got
        return target.data[:reached]

    def _into(self, target: memoryview) -> int:
        return repeated(lambda: os.readv(self._fd, [target]))

    def _some(self) -> bytes:
        self._wait()
        return repeated(lambda: os.read(self._fd, _BUFFERED))

    def _wait(self) -> None:
        while not self.stopping():
            if self._poll.poll(_POLL_MILLISECONDS):
                return
        raise Stopped


class StreamInput:
    def __init__(self, fd: int, most_bytes: int, stopping: Callable[[], bool]) -> None:
        """`most_bytes`: the largest record batch that is accepted; `stopping`: whether to stop waiting."""
        self.given = 0
        """The number of the first row that was not returned yet."""
        self.fault: DataError | None = None
        """Why the stream was interrupted."""
        self.unmarked = False
        """Whether it ended after a complete batch, but without the mark that ends a stream."""
        self._bytes = _PipeBytes(fd, most_bytes, stopping)
        self._most_bytes = most_bytes
        self._held: deque[pa.RecordBatch] = deque()
        self._held_rows = self._held_bytes = 0
        self._cut = False
        """Whether the first batch that is held is the rest of a larger one."""
        self._ended = False
        self._reader = self._opened("standard input")
        self.schema: pa.Schema = self._reader.schema
        self._joinable = not any(_has_dictionary(field.type) for field in self.schema)

    def stop_when(self, stopping: Callable[[], bool]) -> None:
        self._bytes.stopping = stopping

    def pass_over(self, rows: int) -> None:
        """Skip rows that were taken in an earlier session; they are counted."""
        while rows and (piece := self.next_batch(rows)) is not None:
            rows -= piece[0].num_rows
        if rows:
            raise DataError(
                f"the stream ended after {self.given:,} rows; {self.given + rows:,} were taken from it before",
                "give the same stream from its first row on, or leave out --skip-taken if it continues after them",
            )

    def sample(self, most_rows: int, most_bytes: int) -> list[dict[str, pa.Array]]:
        """The first rows, which are also returned later; they do not depend on how the stream is cut into batches."""
        sample: list[dict[str, pa.Array]] = []
        first = size = 0
        while first < most_rows and size < most_bytes:
            part = self._ahead(first, min(_SAMPLED_TOGETHER, most_rows - first))
            if not part.num_rows:
                break
            try:
                part.validate(full=True)
            except pa.ArrowException as fault:
                raise DataError(f"the first rows of the stream are damaged: {fault}", "fix the producer") from fault
            sample.append({name: plain(column) for name, column in zip(part.column_names, part.columns, strict=True)})
            size += sum(map(_content_bytes, sample[-1].values()))
            first += part.num_rows
        return sample

    def _ahead(self, first: int, rows: int) -> pa.Table:
        """At most so many rows that were not returned yet, after the first ones."""
        while self._held_rows < first + rows and self._hold_another():
            pass
        parts: list[pa.RecordBatch] = []
        for batch in self._held:
            skipped = min(first, batch.num_rows)
            parts.append(batch.slice(skipped, rows))
            first, rows = first - skipped, rows - parts[-1].num_rows
        return pa.Table.from_batches(parts, self.schema)

    def next_batch(self, rows: int) -> tuple[pa.RecordBatch, int] | None:
        """At most so many of the next rows, with the number of the first; None at the end."""
        # Small batches are joined; the rest of a large one is not, so that two large ones are never held.
        while not self._held or (
            self._joinable and not self._cut and self._held_rows < rows and self._held_bytes < _PIPE_BYTES
        ):
            if not self._hold_another():
                break
        if not self._held:
            return None
        return self._given(rows)

    def rest(self, rows: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Rows that were read and not returned, without waiting for more."""
        while self._held:
            yield self._given(rows)

    def _given(self, rows: int) -> tuple[pa.RecordBatch, int]:
        parts: list[pa.RecordBatch] = []
        count = 0
        while self._held and count < rows and (self._joinable or not parts):
            whole = self._held.popleft()
            part, rest = whole.slice(0, rows - count), whole.slice(rows - count)
            self._cut = rest.num_rows > 0
            if self._cut:
                self._held.appendleft(rest)
            self._held_bytes -= whole.nbytes - rest.nbytes
            parts.append(part)
            count += part.num_rows
        first = self.given
        self.given += count
        self._held_rows -= count
        return (parts[0] if len(parts) == 1 else pa.concat_batches(parts)), first

    def _hold_another(self) -> bool:
        """Read a batch that has rows; False at the end."""
        while not self._ended:
            batch = self._read()
            if batch is not None and batch.num_rows:
                if batch.nbytes > self._most_bytes:
                    raise DataError(
                        f"a record batch of {batch.nbytes / 1e6:,.0f} MB in the stream, after row {self._reached:,}",
                        "write smaller batches, or give more --memory",
                    )
                self._held.append(batch)
                self._held_rows += batch.num_rows
                self._held_bytes += batch.nbytes
                return True
        return False

    @property
    def _reached(self) -> int:
        return self.given + self._held_rows

    def _read(self) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            self.unmarked = self._bytes.ended
            self._ended = self._bytes.ended or not self._bytes.peek(1)
            if not self._ended:  # several streams in a row, as cat writes them
                self._follow()
        except (pa.ArrowException, OSError, MemoryError) as fault:
            self._ended = True
            if self._bytes.ended:
                found = f"the stream was interrupted in the middle of a record batch, after row {self._reached:,}"
                remedy = "check the producer; all complete batches are trained on and saved"
            elif is_fault(fault) or isinstance(fault, MemoryError):
                found, remedy = (
                    f"the stream cannot be read after row {self._reached:,}: {_reason(fault)}",
                    "fix the cause",
                )
            else:
                found, remedy = f"the stream is damaged after row {self._reached:,}: {fault}", "fix the producer"
            self.fault = DataError(found, f"{remedy}; continue from that row with: `producer | streampgs resume RUN -`")
        return None

    def _follow(self) -> None:
        self._reader = self._opened(f"standard input after row {self._reached:,}")
        if not self._reader.schema.equals(self.schema):
            raise DataError(
                f"after row {self._reached:,} of the stream another one begins, with other columns or types",
                "write all rows with one schema",
            )

    def _opened(self, what: str) -> pa.RecordBatchReader:
        beginning = self._bytes.peek(8)
        if not beginning:
            raise DataError(f"{what} is empty", f"let the producer {_WRITE_A_STREAM}")
        if beginning[:4] != _BEGINNING:
            found = next((name for magic, name in _OTHER_BEGINNINGS.items() if beginning.startswith(magic)), None)
            remedy = _WRITE_A_STREAM
            if beginning.startswith((b"ARROW1", b"PAR1")):
                remedy = f"give the file's name in place of -, or {_WRITE_A_STREAM}"
            elif found != "a Feather file":
                remedy += "; to make shards from other formats: `streampgs pack IN… OUT`"
            raise DataError(f"{what} is {found or 'not an Arrow stream'}: it begins with {beginning!r}", remedy)
        try:
            return pa.ipc.open_stream(pa.PythonFile(self._bytes, mode="r"))
        except (pa.ArrowException, OSError, MemoryError) as fault:
            if is_fault(fault) or isinstance(fault, MemoryError):
                raise Unreadable(f"{what} cannot be read: {_reason(fault)}", "fix the cause, then try again") from fault
            raise DataError(f"{what} is not a complete Arrow stream: {fault}", _WRITE_A_STREAM) from fault


def _reason(fault: Exception) -> str:
    return f"out of memory: {fault}" if isinstance(fault, MemoryError) else str(fault)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind)) or any(map(_has_dictionary, inner))


def _content_bytes(array: pa.Array) -> int:
    """The size of its values, without the marks of nulls, which may be present or not."""
    array = plain(array)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return int(len(array) * kind.index_type.bit_width // 8)
    held = class_of(kind)
    if held in (STRING, BINARY):
        bounds = bytes_of(array)[1]
        return int(bounds[-1] - bounds[0]) + 4 * len(array)
    if is_list(kind) or pa.types.is_map(kind):
        return _content_bytes(lists_of(array)[1]) + 4 * len(array)
    if pa.types.is_struct(kind):
        return sum(map(_content_bytes, array.flatten()))
    return int(len(array) * (0 if pa.types.is_null(kind) else kind.bit_width) // 8)
