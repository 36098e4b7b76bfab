"""`streampgs pack`: files of many kinds become a folder of shards, in bounded memory.

A pack that was killed has left no shards, and the next one begins again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.options.fields import build
from streampgs.packing.inputs import Input, find_inputs, labels_in
from streampgs.packing.kinds import KINDS
from streampgs.packing.options import PackOptions
from streampgs.packing.readers.tables import rows_of_query
from streampgs.packing.schemas import conformed, joined_schema
from streampgs.packing.shards import Shard, complete_or_absent, remove_folder, written
from streampgs.packing.shuffle import share_of, shuffled
from streampgs.packing.source import Source
from streampgs.reading.in_memory import with_columns
from streampgs.run.memory import peak_rss_bytes

_SPILL = "spill"


@dataclass(frozen=True)
class PackStatus:
    """The progress of a pack."""

    phase: str
    """checking types, or reading."""
    fraction: float
    rows: int


@dataclass(frozen=True)
class PackReport:
    """The result of a pack; its fields are the keys of `pack --json`."""

    out: str
    rows: int
    shards: int
    bytes: int
    columns: dict[str, str]
    skipped_rows: dict[str, int]
    seconds: float
    peak_rss_mb: float


class _Widened(Exception):
    """The schema so far does not hold these rows."""


def pack(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    on_progress: Callable[[PackStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    **chosen: Any,
) -> PackReport:
    """Write the rows of all inputs as shards into the folder `out`.

    Inputs are files, folders and globs; 'FILE::label=1' adds a column of one value. Keywords are the options of
    `streampgs pack`, with the names in docs/reference.md. With `sql`, a DuckDB query, there are no other inputs.
    """
    started, target = time.perf_counter(), Path(os.path.abspath(out))
    (options,) = build("pack", chosen, PackOptions)
    if options.sql is not None and inputs:
        raise OptionError("a query together with other inputs", "name the files in the query")
    found: list[Input] = []
    if options.sql is None:
        sources = [str(inputs)] if isinstance(inputs, str | Path) else [str(source) for source in inputs]
        found, passed = find_inputs(sources, target, options.kind)
        if passed and on_note is not None:
            more = f" and {len(passed) - 1:,} more" if len(passed) > 1 else ""
            on_note(f"left out, because the name tells no kind: '{passed[0]}'{more}; --from includes all files")
    with complete_or_absent(target, options.overwrite) as staging:
        packing = _Packing(found, staging, options, on_progress, on_note)
        shards = packing.write()
    return PackReport(
        out=str(target),
        rows=sum(shard.rows for shard in shards),
        shards=len(shards),
        bytes=sum(shard.file_bytes for shard in shards),
        columns={column.name: str(column.type) for column in packing.schema},
        skipped_rows=dict(packing.skipped),
        seconds=time.perf_counter() - started,
        peak_rss_mb=peak_rss_bytes() / 1e6,
    )


@dataclass
class _Packing:
    """The rows of all inputs on their way to shards."""

    inputs: list[Input]
    staging: Path
    options: PackOptions
    on_progress: Callable[[PackStatus], None] | None
    on_note: Callable[[str], None] | None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    skipped: Counter[str] = field(default_factory=Counter)

    def write(self) -> list[Shard]:
        if self.options.sql is None:
            self._look_at(most=1)
        while True:
            try:
                return self._written()
            except _Widened as widened:
                if self.on_note is not None:
                    self.on_note(f"{widened}; the pack looks at the types of all rows, then begins again")
                self._look_at(most=None)

    def _look_at(self, most: int | None) -> None:
        """Let the schema hold the first batches of each input; None: all of them."""
        for where, batch in self._rows("checking types", most):
            self.schema = _joined(self.schema, batch.schema, where)

    def _written(self) -> list[Shard]:
        options, batches = self.options, self._conformed()
        self.skipped.clear()
        if options.labels is not None:
            batches = with_columns(batches, {"label": labels_in(Path(options.labels), options.memory)})
        if options.shuffle:
            batches = shuffled(batches, self.staging / _SPILL, options.seed, share_of(options.memory))
        try:
            shards = written(batches, self.staging, options.format, options.rows_per_shard, options.block_bytes)
        finally:
            remove_folder(self.staging / _SPILL)
        if not shards:
            raise DataError("there are no rows in the inputs", "name files with rows")
        return shards

    def _conformed(self) -> Iterator[pa.RecordBatch]:
        for where, batch in self._rows("reading"):
            if not len(self.schema):
                self.schema = batch.schema
            joined = _joined(self.schema, batch.schema, where)
            if not joined.equals(self.schema, check_metadata=True):
                changed = [column.name for column in joined if column not in self.schema] or ["features"]
                self.schema = joined
                raise _Widened(f"{where} has new columns or other types: {', '.join(changed)}")
            yield conformed(batch, self.schema, where)

    def _rows(self, phase: str, most: int | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The batches of all inputs, or the first of each, and where each is from."""
        if self.options.sql is not None:
            for batch in rows_of_query(self.options.sql, self.options.memory, self.staging / _SPILL):
                yield "the query", batch
        sizes = [input.path.stat().st_size for input in self.inputs]
        rows = 0
        for number, input in enumerate(self.inputs):
            source = Source(input.path, self.options)
            for batch in islice(KINDS[input.kind].load()(source, self.schema), most):
                rows += batch.num_rows
                if self.on_progress is not None:
                    done = (sum(sizes[:number]) + source.place) / max(1, sum(sizes))
                    self.on_progress(PackStatus(phase, min(1.0, done), rows))
                yield f"'{input.path}'", _with_constants(batch, input)
            self.skipped.update(source.skipped)


def _with_constants(batch: pa.RecordBatch, input: Input) -> pa.RecordBatch:
    """The rows with the columns that are set for their file."""
    for name, value in input.sets:
        if name in batch.schema.names:
            raise DataError(f"'{input.path}' has a column '{name}' of its own", "set a column of another name")
        batch = batch.append_column(name, pa.array([value] * batch.num_rows))
    return batch


def _joined(known: pa.Schema, schema: pa.Schema, where: str) -> pa.Schema:
    """The schema that holds both. A file whose first row is taken for the names of its columns has none of the others."""
    vectors = {"indices", "features", "label"}
    names, others = set(known.names) - vectors, set(schema.names) - vectors
    if names and others and not names & others and len(names | others) == len({*known.names, *schema.names}):
        raise DataError(
            f"{where} has none of the columns of the files before, but {', '.join(schema.names[:6])}",
            "name its columns with `--names A,B,…` and --no-header if its first line is a row; or pack it separately",
        )
    return joined_schema(known, schema, where) if len(known) else schema
