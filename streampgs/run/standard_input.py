"""An Arrow IPC stream on standard input, read batch by batch until it ends or training stops."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.base.errors import DataError, OptionError, Unreadable
from streampgs.base.faults import is_fault, repeated
from streampgs.options.commands import SMALLEST_MEMORY, Resources
from streampgs.reading.blocks import Stopped

STANDARD_INPUT = "-"
_STDIN = 0
_POLL_MILLISECONDS = 100
_PIPE_BYTES = 1 << 20
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


def largest_batch(resources: Resources) -> int:
    """The bytes of the largest record batch that a producer may write, because pyarrow reads a batch whole."""
    return max(SMALLEST_MEMORY // 8, (resources.budget - SMALLEST_MEMORY) // 4)


class _PipeBytes:
    """The file that pyarrow reads from. While it waits for bytes, it checks for a stop."""

    closed = False

    def __init__(self, fd: int, most_bytes: int, stopping: Callable[[], bool]) -> None:
        self.ended = False
        """Whether the stream ended before the bytes that were asked for."""
        self._stopping = stopping
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
            self._wait()
            more = repeated(lambda: os.read(self._fd, size - len(self._buffer)))
            if not more:
                break
            self._buffer += more
        return self._buffer[:size]

    def read(self, size: int) -> memoryview:
        if size > self._most_bytes:
            raise DataError(
                f"a record batch of {size / 1e6:,.0f} MB in the stream; at most {self._most_bytes / 1e6:,.0f} MB fit next "
                "to the windows",
                "write smaller batches (write_table(table, max_chunksize=65536)), or give more --memory",
            )
        target: NDArray[np.uint8] = np.empty(size, np.uint8)
        reached = min(size, len(self._buffer))
        target[:reached] = np.frombuffer(self._buffer[:reached], np.uint8)
        self._buffer = self._buffer[reached:]
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

    def _wait(self) -> None:
        while not self._stopping():
            if self._poll.poll(_POLL_MILLISECONDS):
                return
        raise Stopped


class StandardInput:
    def __init__(self, most_bytes: int, stopping: Callable[[], bool], given: int = 0) -> None:
        """`most_bytes`: the largest record batch that is accepted; `stopping`: whether to stop waiting; `given`: the number
        of the first row."""
        if os.isatty(_STDIN):
            raise OptionError(
                "'-' stands for standard input, which is a terminal here",
                "pipe an Arrow IPC stream into it: `producer | streampgs train - --run RUN`",
            )
        self.given = given
        """The number of the first row that was not returned yet."""
        self.unmarked = False
        """Whether the stream ended after a complete batch, but without the mark that ends a stream."""
        self._bytes = _PipeBytes(_STDIN, most_bytes, stopping)
        self._reader = self._opened("standard input")
        self.schema: pa.Schema = self._reader.schema

    def batches(self, first: int) -> Iterator[pa.RecordBatch]:
        """The batches from row `first` on. A DataError says where the stream was interrupted or is damaged."""
        while (batch := self._next()) is not None:
            skipped = min(batch.num_rows, max(0, first - self.given))
            batch = batch.slice(skipped)
            try:
                batch.validate(full=True)
            except pa.ArrowException as fault:
                raise self._damaged(fault) from fault
            self.given += skipped + batch.num_rows
            if batch.num_rows:
                yield batch
        if self.given < first:
            raise DataError(
                f"the stream ended after {self.given:,} rows; {first:,} were taken from it before",
                "give the same stream from its first row on, or leave out --skip-taken if it continues after them",
            )

    def _next(self) -> pa.RecordBatch | None:
        while True:
            try:
                return self._reader.read_next_batch()
            except StopIteration:
                self.unmarked = self._bytes.ended
                if self._bytes.ended or not self._bytes.peek(1):
                    return None
                self._begin_another()
            except (pa.ArrowException, OSError, MemoryError) as fault:
                raise self._damaged(fault) from fault

    def _damaged(self, fault: Exception) -> DataError:
        if self._bytes.ended:
            found = f"the stream was interrupted in the middle of a record batch, after row {self.given:,}"
            remedy = "check the producer; all complete batches are trained on and saved"
        elif is_fault(fault) or isinstance(fault, MemoryError):
            found, remedy = f"the stream cannot be read after row {self.given:,}: {_reason(fault)}", "fix the cause"
        else:
            found, remedy = f"the stream is damaged after row {self.given:,}: {fault}", "fix the producer"
        return DataError(found, f"{remedy}; continue from that row with: `producer | streampgs resume RUN -`")

    def _begin_another(self) -> None:
        """Several streams in a row, as cat writes them, are one."""
        self._reader = self._opened(f"standard input after row {self.given:,}")
        if not self._reader.schema.equals(self.schema):
            raise DataError(
                f"after row {self.given:,} of the stream another one begins, with other columns or types",
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
