"""The folder of a run: what it holds, who may write to it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streampgs.checks import decode, require, understanding
from streampgs.encoding.encoding import Encoding
from streampgs.errors import RunError
from streampgs.files import append_line, open_regular, remove_leftovers
from streampgs.run.history import append_event, read_events
from streampgs.run.record import RunRecord
from streampgs.run.seal import SealBroken, read_sealed, write_sealed
from streampgs.run.validate import check_catalog, check_columns, check_encoding
from streampgs.table.catalog import Catalog

FORMAT = 1
_KEPT_CHECKPOINTS = 3
_OWN_NAMES = {
    "run.arrows",
    "catalog.arrows",
    "encoding.arrows",
    "cache",
    "data",
    "lock",
    "metrics.jsonl",
    "history.jsonl",
}
_BATCH_ENTRIES = 1 << 20
_UNFINISHED = ".*.arrows.writing"
_COMPANION = re.compile(r"companion-[0-9]{15,}-[0-9]{15,}\.arrows")

Vector = NDArray[np.float64]


@dataclass
class Checkpoint:
    """Everything that must survive: vectors of one length, and a record of numbers and options."""

    vectors: dict[str, Vector]
    record: dict[str, Any]
    path: Path | None = None
    damaged: list[tuple[Path, str]] = field(default_factory=list)
    """Newer checkpoints that could not be used, and why."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        return self._record_path.exists()

    @property
    def was_begun(self) -> bool:
        """Whether anybody has ever locked it: what is in it is ours."""
        return (self.path / "lock").exists()

    @property
    def data(self) -> Path:
        """Shards of rows that came from a program's memory."""
        return self.path / "data"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def _history_path(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def _record_path(self) -> Path:
        return self.path / "run.arrows"

    @property
    def _catalog_path(self) -> Path:
        return self.path / "catalog.arrows"

    def refuse_if_taken(self) -> None:
        """A new run needs a folder of its own. A record without any checkpoint is of a run that never trained a row:
        it may be replaced."""
        if self.checkpoints():
            raise RunError(
                f"run '{self.path}' exists already",
                f"go on with: streampgs resume {self.path}   or choose another --run",
            )
        if self.path.is_dir():
            halves = {entry.name for entry in self.path.glob(_UNFINISHED)}  # of a start that was killed
            strangers = sorted({entry.name for entry in self.path.iterdir()} - _OWN_NAMES - halves)
            if strangers and not self.exists:
                raise RunError(
                    f"--run '{self.path}' is a folder with other files in it ('{strangers[0]}')",
                    "name a new folder for the run, apart from the data",
                )

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"the folder '{self.path}' cannot be made: {error.strerror or error}", "name another folder as --run"
            ) from error

    def create(self, record: dict[str, Any], catalog: Catalog) -> None:
        """Start a run's folder with the record of its choices."""
        self.write_catalog(catalog)
        empty = pa.schema({})
        write_sealed(self._record_path, iter(()), empty, {"format": FORMAT, **record})

    def record(self) -> dict[str, Any]:
        if not self.path.is_dir():
            raise RunError(
                f"there is no run '{self.path}'",
                "start one with: streampgs train DATA --run " + str(self.path),
            )
        _, record = self._verified(self._record_path)
        if record.get("format") != FORMAT:
            raise RunError(
                f"run '{self.path}' is of format {record.get('format')}; this version reads format {FORMAT}",
                "use the version of streampgs that wrote it",
            )
        return record

    def run_record(self) -> RunRecord:
        record = self.record()
        with understanding(self._record_path):
            return decode(RunRecord, record)

    def write_catalog(self, catalog: Catalog) -> None:
        table = catalog.to_table()
        write_sealed(self._catalog_path, iter(table.to_batches()), table.schema, {"format": FORMAT})

    def catalog(self) -> Catalog:
        table, _ = self._verified(self._catalog_path)
        with understanding(self._catalog_path):
            check_columns(table)
            catalog = Catalog.from_table(table)
            check_catalog(catalog)
        return catalog

    # The encoding: learnt when the run starts, and never changed. What is learnt when the table has grown goes into
    # files of its own, each of which tells on which other it stands; earlier checkpoints have theirs.

    def _encoding_path(self, digest: str) -> Path:
        own = self.path / f"encoding-{digest}.arrows"
        return own if own.exists() else self.path / "encoding.arrows"

    def write_encoding(self, encoding: Encoding) -> None:
        path = self.path / ("encoding.arrows" if encoding.before is None else f"encoding-{encoding.digest}.arrows")
        record, arrays = encoding.to_record()
        schema = pa.schema({"name": pa.string(), "type": pa.string(), "data": pa.large_binary()})
        columns = [list(arrays), [array.dtype.str for array in arrays.values()], [a.tobytes() for a in arrays.values()]]
        batch = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        write_sealed(path, iter([batch]), schema, {"format": FORMAT, "encoding": record})

    def encoding(self, digest: str | None) -> Encoding | None:
        """The run's encoding, whose digest the caller knows; None where rows are used as they are."""
        if digest is None:
            return None
        with understanding(self.path):
            require(re.fullmatch(r"[0-9a-f]{32}", digest) is not None, f"an encoding called {digest!r:.100}")
        path = self._encoding_path(digest)
        table, record = self._verified(path)
        with understanding(path):
            before = self.encoding(record["encoding"].get("before"))
            arrays = {row["name"]: np.frombuffer(row["data"], np.dtype(row["type"])) for row in table.to_pylist()}
            encoding = Encoding.from_record(record["encoding"], arrays, before)
            check_encoding(encoding)
        if encoding.digest != digest:
            raise RunError(f"'{path}' is not the encoding of this run", "restore it from a copy, or start a new run")
        return encoding

    def _verified(self, path: Path) -> tuple[pa.Table, dict[str, Any]]:
        try:
            return read_sealed(path)
        except FileNotFoundError as error:
            raise RunError(
                f"'{self.path}' is no run: it has no {path.name}", "name the folder that was given as --run"
            ) from error
        except (SealBroken, OSError, pa.ArrowInvalid) as error:
            raise RunError(f"'{path}' is damaged: {error}", "restore it from a copy, or start a new run") from error

    # Checkpoints.

    def write_checkpoint(self, vectors: dict[str, Vector], record: dict[str, Any], rows: int) -> Path:
        path = self.path / f"checkpoint-{rows:015d}.arrows"
        schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in vectors])
        size = len(next(iter(vectors.values())))

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, size, _BATCH_ENTRIES):
                parts = [pa.array(vector[first : first + _BATCH_ENTRIES]) for vector in vectors.values()]
                yield pa.RecordBatch.from_arrays(parts, schema=schema)

        write_sealed(path, batches(), schema, {"format": FORMAT, **record})
        # What is named by more rows is damaged, or training would have gone on from there: it must not count.
        until_now = [old for old in self.checkpoints() if old.name <= path.name]
        for old in until_now[:-_KEPT_CHECKPOINTS]:
            old.unlink(missing_ok=True)
        self._drop_companions(_rows_of(path), record.get("companion"))
        return path

    # Companions: what a checkpoint needs beside the model. Written before the checkpoint that names it, removed after it.

    def write_companion(
        self, rows: int, mark: int, batches: Iterator[pa.RecordBatch], schema: pa.Schema, record: dict[str, Any]
    ) -> str:
        """Of the checkpoint of so many rows; `mark` tells it from others of the same. Gives its name."""
        path = self.path / f"companion-{rows:015d}-{mark:015d}.arrows"
        write_sealed(path, batches, schema, {"format": FORMAT, **record})
        return path.name

    @contextmanager
    def companion(self, name: str) -> Iterator[tuple[list[pa.RecordBatch], dict[str, Any]]]:
        """What is in it; what makes no sense there is a fault of the file."""
        table, record = self._verified(self.path / name)
        with understanding(self.path / name):
            yield table.to_batches(), record

    def _read_companion(self, name: str) -> None:
        try:
            read_sealed(self.path / name)
        except SealBroken as error:
            raise SealBroken(f"{name}: {error}") from error

    def companions(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.path.glob("companion-*.arrows"))

    def _drop_companions(self, rows: str, named: str | None) -> None:
        """Those of checkpoints that are gone, and those of the newest that it does not name."""
        kept = {_rows_of(checkpoint) for checkpoint in self.checkpoints()}
        for path in self.companions():
            own = _rows_of(path)
            if own not in kept or (own == rows and path.name != named):
                path.unlink(missing_ok=True)

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.path.glob("checkpoint-*.arrows"))

    def newest_checkpoint(self, with_companion: bool = False) -> Checkpoint | None:
        """The newest sound one, whose companion is sound if one is wanted; None if there is none at all. If all are
        damaged, an error."""
        damaged: list[tuple[Path, str]] = []
        for path in reversed(self.checkpoints()):
            try:
                table, record = read_sealed(path)
                if with_companion:
                    with understanding(path):
                        named = record["companion"]
                        whole = isinstance(named, str) and _COMPANION.fullmatch(named) is not None
                        require(whole, f"a companion called {named!r:.100}")
                    self._read_companion(named)
            except (SealBroken, OSError, pa.ArrowInvalid) as error:
                damaged.append((path, str(error)))
                continue
            if record.get("format") != FORMAT:
                raise RunError(
                    f"'{path}' is of format {record.get('format')}",
                    "use the version of streampgs that wrote it",
                )
            vectors = {name: np.array(table.column(name).combine_chunks()) for name in table.column_names}
            return Checkpoint(vectors, record, path, damaged)
        if damaged:
            listed = "; ".join(f"{path.name}: {why}" for path, why in damaged)
            raise RunError(
                f"no checkpoint of run '{self.path}' is sound ({listed})",
                "restore one from a copy, or start a new run",
            )
        return None

    def append_event(self, event: str, rows: int, steps: int, **facts: Any) -> None:
        try:
            append_event(self._history_path, event, rows, steps, **facts)
        except OSError as error:
            raise RunError(
                f"'{self._history_path}' cannot be written: {error.strerror or error}",
                "free some space or mend the permissions, then resume: the checkpoint is intact",
            ) from error

    def events(self) -> list[dict[str, Any]]:
        """What the run has lived through, oldest first."""
        return read_events(self._history_path)

    def append_metrics(self, record: dict[str, Any]) -> None:
        try:
            append_line(self.metrics, json.dumps(finite_or_null(record), allow_nan=False))
        except OSError as error:
            raise RunError(
                f"'{self.metrics}' cannot be written: {error.strerror or error}",
                "free some space or mend the permissions, then resume",
            ) from error


def finite_or_null(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(value, dict):
        return {key: finite_or_null(part) for key, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _rows_of(path: Path) -> str:
    """The rows that the name of a checkpoint or of its companion tells."""
    return path.stem.split("-")[1]


class RunLock:
    """Held by whoever trains. The system lets go of it when the holder dies, however it dies.

    The folder itself is locked as well, where its file system can: who takes the file for a leftover and deletes it must
    not let a second trainer in.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._held: list[int] = []

    def __enter__(self) -> RunLock:
        try:
            self._held.append(open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW))
            self._held.append(os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.flock(self._held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock_folder(self._held[1])
        except BlockingIOError as error:
            holder = re.match(r"\d*", os.pread(self._held[0], 32, 0).decode(errors="replace"))
            self._let_go()
            raise RunError(
                f"run '{self.path.parent}' is being trained by process {holder[0] if holder and holder[0] else 'unknown'}",
                "wait for it, or stop it with Ctrl-C or kill",
            ) from error
        except OSError as error:
            self._let_go()
            raise RunError(
                f"run '{self.path.parent}' cannot be locked: {error.strerror}",
                "make the folder writable, on a file system that knows locks",
            ) from error
        with suppress(OSError):  # the number is for people; on a full disk the lock holds without it
            os.ftruncate(self._held[0], 0)
            os.pwrite(self._held[0], str(os.getpid()).encode(), 0)
        remove_leftovers(self.path.parent, _UNFINISHED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    @staticmethod
    def _lock_folder(fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # over a network folders may not be lockable; then the file must do

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())
