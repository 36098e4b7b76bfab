"""The spool of a run on a stream: its rows on disk, as Arrow shards that join the run one after the other.

A thread writes the record batches of standard input into shards, each complete before it gets its name. Training takes one
shard after the other, so the order of rows depends on the shards alone, never on time. The first shards are small, so that
training begins soon; later ones are as large as all before them, up to a share of the spool.

When the spool is full, shards that have been trained on leave it. Each shard has a random number, which follows from the seed
and its place in the stream, and those with the largest leave first: what stays is a uniform sample of the past. A shard that has
not been trained on stays; the thread waits until there is room, and so does the producer.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from streampgs.base.errors import DataError, RunError
from streampgs.base.faults import remedy
from streampgs.base.files import make_folder, new_file, sync_folder
from streampgs.formats.registry import schema_of
from streampgs.kernels.randomness import key_of
from streampgs.reading.blocks import Stopped
from streampgs.run.report import StopRequest
from streampgs.run.standard_input import StandardInput
from streampgs.table.catalog import Catalog

SHARDS_OF_SPOOL = 16
"""A full spool holds at least so many shards."""
_PAST = 0.75
"""The share of the spool for shards that have been trained on. The rest is for those that wait."""
_FIRST_ROWS, _FIRST_BYTES = 1 << 14, 1 << 25
"""The size of the first shard, from which the columns are learned."""
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 20
_LOOK_SECONDS = 0.1
_UNFINISHED = ".unfinished"
_NAME = re.compile(r"rows-(\d{15})-(\d{15})\.arrow")


def shards_in(spool: Path) -> list[Path]:
    """The shards in the order of the stream."""
    with suppress(FileNotFoundError):
        return sorted(path for path in spool.iterdir() if _NAME.fullmatch(path.name))
    return []


def rows_in_spool(spool: Path) -> int:
    """How many rows of the stream have reached the disk. The newest shard never leaves before another one is there."""
    shards = shards_in(spool)
    return _stop_of(shards[-1]) if shards else 0


def _stop_of(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    assert found is not None
    return int(found[2])


def leaving(catalog: Catalog, retired: Collection[int], seed: int, limit: int) -> list[int]:
    """The numbers of the shards that leave before another one joins; all were trained on."""
    used = [number for number in range(len(catalog.shards)) if number not in retired]
    size = sum(catalog.shards[number].fingerprint.size for number in used)
    found = []
    for number in sorted(used, key=lambda number: key_of(seed, "spool", number), reverse=True):
        if size <= _PAST * limit:
            break
        size -= catalog.shards[number].fingerprint.size
        found.append(number)
    return sorted(found)


def _rows_wanted(first: int) -> int:
    """How many rows the shard that begins with this row gets."""
    return max(_FIRST_ROWS, first)


class Spooler:
    """Writes the rows of standard input into shards, and gives these to training."""

    def __init__(self, folder: Path, limit: int, poll_seconds: float, joined: Path | None = None) -> None:
        """`poll_seconds`: rows wait no longer for others while training waits for them; `joined`: the last shard that
        belongs to the run."""
        folder = folder.absolute()  # shards are known by their paths, and the next session may begin in another folder
        self._folder, self._limit, self._poll_seconds = folder, limit, poll_seconds
        shards = shards_in(folder)
        self.rows = _stop_of(shards[-1]) if shards else 0
        """Rows of the stream that have reached the disk."""
        self._waiting = deque(path for path in shards if joined is None or path.name > joined.name)
        self._bytes = sum(path.stat().st_size for path in shards)
        self._input: StandardInput | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._fault: BaseException | None = None
        self._closing = False
        self._batches: list[pa.RecordBatch] = []
        """They are joined to larger ones before they are written."""
        self._batch_bytes = 0
        self._shard: _Shard | None = None

    def read(self, most_bytes: int, stop: StopRequest, given: int) -> None:
        """Begin to read standard input, whose first row is number `given` of the stream."""
        source = StandardInput(most_bytes, lambda: self._closing or stop.reason is not None, given)
        make_folder(self._folder)
        newest = shards_in(self._folder)[-1:]
        if newest and not source.schema.equals(schema_of(newest[0])):
            raise DataError(
                "the columns of the stream, or their types, are not those of the rows before",
                f"write the columns of '{newest[0]}', with the same types",
            )
        self._input = source
        self._thread = threading.Thread(target=self._run, name="streampgs-spooler", daemon=True)
        self._thread.start()

    def next(self, stop: StopRequest) -> Path | None:
        """The next shard, as soon as it is there. None at the end of the stream, or on a stop."""
        began = time.monotonic()
        with self._changed:
            while not self._waiting and stop.reason is None and self._is_reading():
                self._changed.wait(_LOOK_SECONDS)
                if time.monotonic() - began > self._poll_seconds:
                    self._finish()
            if stop.reason is not None:
                return None
            if not self._waiting and self._fault is not None:
                raise self._fault
            return self._waiting.popleft() if self._waiting else None

    def remove(self, paths: Collection[Path]) -> None:
        """Free the room of shards that have left the run. The newest one stays, because its name is the place in the
        stream."""
        with self._changed:
            for path in paths:
                if path.parent == self._folder and _stop_of(path) < self.rows:
                    with suppress(FileNotFoundError):
                        size = path.stat().st_size
                        path.unlink()
                        self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Write the rows that were read, and stop reading."""
        self._closing = True
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def remarks(self) -> list[str]:
        if self._input is None or not self._input.unmarked:
            return []
        return [
            "the stream ended without Arrow's end mark: if the producer was interrupted, let it continue from row "
            f"{self.rows:,}"
        ]

    def _is_reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # The thread.

    def _run(self) -> None:
        assert self._input is not None
        try:
            for batch in self._input.batches(self.rows):
                with self._changed:
                    self._take(batch)
        except Stopped:
            pass
        except BaseException as fault:
            self._fault = fault
        with self._changed:
            try:
                self._finish()
            except BaseException as fault:
                self._fault = self._fault or fault
            self._changed.notify_all()

    def _take(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._batch_bytes += batch.nbytes
        if self._batch_bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        batches, self._batches, self._batch_bytes = self._batches, [], 0
        with suppress(pa.ArrowException):  # nested dictionaries that differ cannot be joined
            batches = [pa.concat_batches(batches)] if len(batches) > 1 else batches
        for batch in batches:
            rows = max(1, min(_BATCH_ROWS, int(batch.num_rows * _BATCH_BYTES / max(1, batch.nbytes))))
            for first in range(0, batch.num_rows, rows):
                self._write_part(batch.slice(first, min(rows, batch.num_rows - first)))

    def _write_part(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if self._shard is None:
                self._wait_for_room()
                self._shard = _Shard(self._folder, batch.schema, self.rows)
            try:
                written = self._shard.write(batch)
            except pa.ArrowInvalid:  # other dictionaries than before: a file of Arrow has one for each column
                if not self._shard.rows:
                    raise
                self._close_shard()
                continue
            batch = batch.slice(written)
            if self._shard.is_full(self._limit // SHARDS_OF_SPOOL):
                self._close_shard()

    def _wait_for_room(self) -> None:
        largest = self._limit // SHARDS_OF_SPOOL
        while self._waiting and self._bytes + largest > self._limit and not self._closing:
            self._changed.wait(_LOOK_SECONDS)

    def _finish(self) -> None:
        """All rows that were read reach the disk."""
        self._write()
        if self._shard is not None:
            self._close_shard()

    def _close_shard(self) -> None:
        assert self._shard is not None
        shard, self._shard = self._shard, None
        path = shard.finished()
        self.rows += shard.rows
        self._bytes += path.stat().st_size
        self._waiting.append(path)
        self._changed.notify_all()


class _Shard:
    """A shard while it is written."""

    def __init__(self, folder: Path, schema: pa.Schema, first: int) -> None:
        self.rows = 0
        self._folder, self._first = folder, first
        self._most_rows = _rows_wanted(first)
        with self._naming_faults():
            self._file: BinaryIO = os.fdopen(new_file(folder / _UNFINISHED), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)

    def write(self, batch: pa.RecordBatch) -> int:
        """As many rows as have room, and their number."""
        rows = min(int(batch.num_rows), self._most_rows - self.rows)
        with self._naming_faults():
            self._writer.write_batch(batch.slice(0, rows))
        self.rows += rows
        return rows

    def is_full(self, most_bytes: int) -> bool:
        size = self._file.tell()
        return self.rows >= self._most_rows or size >= (most_bytes if self._first else min(most_bytes, _FIRST_BYTES))

    def finished(self) -> Path:
        """The shard under its name, complete on disk."""
        path = self._folder / f"rows-{self._first:015d}-{self._first + self.rows:015d}.arrow"
        with self._naming_faults():
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            os.rename(self._folder / _UNFINISHED, path)
            self._file.close()
            sync_folder(self._folder)
        return path

    @contextmanager
    def _naming_faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"the spool '{self._folder}' cannot be written: {error.strerror or error}",
                f"{remedy(error)}; or start a new run with a smaller --spool, or --run on a larger disk",
            ) from error
