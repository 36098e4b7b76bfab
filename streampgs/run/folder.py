"""The folder of a run: the files that are in it, and how each is written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.checks import decode, require, understanding
from streampgs.base.errors import RunError
from streampgs.base.faults import exists, names_in, remedy
from streampgs.base.files import append_line, make_folder, sync_folder
from streampgs.base.stage import Bundle
from streampgs.encoding.encoding import Encoding
from streampgs.run import checkpoint as checkpoints
from streampgs.run.checkpoint import Checkpoint, Kept
from streampgs.run.history import read_events, utc_now
from streampgs.run.lock import UNFINISHED
from streampgs.run.record import RunRecord
from streampgs.run.seal import SealBroken, read_sealed, write_sealed
from streampgs.table.catalog import Catalog

_OWN_NAMES = {
    "run.arrows",
    "catalog.arrows",
    "encoding.arrows",
    "cache",
    "data",
    "spool",
    "validation",
    "lock",
    "metrics.jsonl",
    "history.jsonl",
}
_DEFAULT_KEPT = Kept()


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.spool = path / "spool"
        """Shards of the rows of a stream."""
        self.metrics, self.history = path / "metrics.jsonl", path / "history.jsonl"
        self._record_path, self._catalog_path = path / "run.arrows", path / "catalog.arrows"

    @property
    def exists(self) -> bool:
        return exists(self._record_path)

    @property
    def was_started(self) -> bool:
        """Whether a trainer has ever locked it: then its contents are ours."""
        return exists(self.path / "lock")

    def refuse_if_taken(self) -> None:
        """A new run needs its own folder. A record without any checkpoint belongs to a run that never trained a row: it
        may be replaced."""
        if self.checkpoints() or self.lookalikes():
            raise RunError(
                f"run '{self.path}' exists already",
                f"continue it with: `streampgs resume {quote(str(self.path))}`   or choose another --run",
            )
        found = names_in(self.path)
        others = [name for name in found if name not in _OWN_NAMES and not fnmatch(name, UNFINISHED)]
        if others and not self.exists:
            raise RunError(
                f"`--run '{self.path}'` is a folder with other files in it ('{others[0]}')",
                "name a new folder for the run, separate from the data",
            )

    def make(self) -> None:
        try:
            make_folder(self.path)
        except OSError as error:
            raise RunError(
                f"the folder '{self.path}' cannot be created: {error.strerror or error}", "name another folder as --run"
            ) from error

    # The record and the catalog.

    def create(self, record: dict[str, Any], catalog: Catalog, encoding: Encoding | None = None) -> None:
        """Write the files of a new run."""
        if encoding is not None:
            self.write_encoding(encoding)
        self.write_catalog(catalog)
        write_sealed(self._record_path, iter(()), pa.schema({}), record)

    def record(self) -> dict[str, Any]:
        if not exists(self.path):
            raise RunError(
                f"there is no run '{self.path}'",
                f"start one with: `streampgs train DATA --run {quote(str(self.path))}`",
            )
        return self._verified(self._record_path)[1]

    def run_record(self) -> RunRecord:
        record = self.record()
        with understanding(self._record_path):
            return decode(RunRecord, record)

    def write_catalog(self, catalog: Catalog) -> None:
        table = catalog.to_table()
        write_sealed(self._catalog_path, iter(table.to_batches()), table.schema, {})

    def catalog(self) -> Catalog:
        table, _ = self._verified(self._catalog_path)
        with understanding(self._catalog_path):
            catalog = Catalog.from_table(table)
            require(len(catalog.shards) > 0, "no shard")
            sizes = np.append(catalog.group_rows, catalog.group_entries)
            require(bool((sizes >= 0).all()), "groups of invalid sizes")
            catalog.check_agreement()
        return catalog

    # Encodings: learned when the run starts, and never changed. What a grown table adds is a new file that names the
    # encoding it extends; earlier checkpoints still have theirs.

    def _encoding_path(self, digest: str) -> Path:
        own = self.path / f"encoding-{digest}.arrows"
        return own if exists(own) else self.path / "encoding.arrows"

    def write_encoding(self, encoding: Encoding) -> None:
        path = self.path / ("encoding.arrows" if encoding.before is None else f"encoding-{encoding.digest}.arrows")
        record, arrays = encoding.to_record()
        checkpoints.write_sections(path, {"encoding": Bundle(record, arrays)})

    def encoding(self, digest: str | None) -> Encoding | None:
        """The run's encoding with this digest; None where rows are used as they are."""
        if digest is None:
            return None
        path = self._encoding_path(digest)
        table, record = self._verified(path)
        with understanding(path):
            stored = checkpoints.sections_in(table, record)["encoding"]
            encoding = Encoding.from_record(stored.values, stored.arrays, self.encoding(stored.values.get("before")))
        if encoding.digest != digest:
            raise RunError(f"'{path}' is not the encoding of this run", "restore it from a copy, or start a new run")
        return encoding

    def _verified(self, path: Path) -> tuple[pa.Table, dict[str, Any]]:
        try:
            return read_sealed(path)
        except FileNotFoundError as error:
            raise RunError(
                f"'{self.path}' is not a run: it has no {path.name}", "name the folder that was given as --run"
            ) from error
        except SealBroken as error:
            raise RunError(f"'{path}' is damaged: {error}", "restore it from a copy, or start a new run") from error

    # Checkpoints.

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return checkpoints.checkpoints_in(self.path)

    def lookalikes(self) -> list[str]:
        return checkpoints.lookalikes_in(self.path)

    def newest_checkpoint(self, *wanted: str) -> Checkpoint | None:
        """`wanted`: the sections to take from it; none named: all."""
        return checkpoints.newest_checkpoint(self.path, *wanted)

    def write_checkpoint(self, sections: Mapping[str, Bundle], rows: int, kept: Kept = _DEFAULT_KEPT) -> Path:
        return checkpoints.write_checkpoint(self.path, sections, rows, kept)

    def sync(self) -> None:
        """Make the names durable that a killed trainer may have left: the checkpoint that a run continues from must not
        disappear."""
        with _naming_faults(self.path):
            sync_folder(self.path)

    # Lines of JSON.

    def append_event(self, event: str, rows: int, steps: int, **facts: Any) -> None:
        """Add a line that survives a crash of the machine."""
        line = {"time": utc_now(), "event": event, "rows": rows, "t": steps, **facts}
        with _naming_faults(self.history):
            append_line(self.history, json.dumps(line, allow_nan=False), durable=True)

    def events(self, last: int | None = None) -> list[dict[str, Any]]:
        """The run's history, oldest event first, or its last events."""
        return read_events(self.history, last)

    def last_place(self) -> tuple[int, int]:
        """Rows and steps at the last event."""
        events = self.events(last=1)
        return (events[-1]["rows"], events[-1]["t"]) if events else (0, 0)

    def append_metrics(self, record: dict[str, Any]) -> None:
        with _naming_faults(self.metrics):
            append_line(self.metrics, json.dumps(finite_or_null(record), allow_nan=False))


@contextmanager
def _naming_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"'{path}' cannot be written: {error.strerror or error}", remedy(error)) from error


def finite_or_null(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(value, dict):
        return {key: finite_or_null(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
