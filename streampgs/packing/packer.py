"""`streampgs pack`: files of many kinds become a folder of shards, in bounded memory, resumable after any interruption.

Readers are deterministic, so a resumed pack skips the inputs whose rows are all in complete shards, reads the next one
from its beginning, and drops the rows that are in shards already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.base.errors import DataError, OptionError
from streampgs.base.faults import exists
from streampgs.base.files import make_folder, read_whole, sole_writer, writing
from streampgs.base.globs import is_folder
from streampgs.base.printable import without_secrets
from streampgs.options.fields import build
from streampgs.packing import journal as journals
from streampgs.packing.inputs import Input, Value, find_inputs
from streampgs.packing.journal import QUERY, RUNS, Journal, ReadInput
from streampgs.packing.labels import Labels
from streampgs.packing.options import PackOptions
from streampgs.packing.readers.sql import LONGEST_QUERY
from streampgs.packing.schemas import conformed, joined_schema
from streampgs.packing.shards import written
from streampgs.packing.shuffle import merged, share_of, write_runs
from streampgs.packing.source import Shape, Source, ahead
from streampgs.run.memory import peak_rss_bytes
from streampgs.run.report import StopRequest

__all__ = ["PackReport", "PackStatus", "pack"]


@dataclass(frozen=True)
class PackStatus:
    """The progress of a pack."""

    phase: str
    """reading, mixing (of a shuffle), or checking the types of all rows."""
    fraction: float
    rows: int


@dataclass(frozen=True)
class PackReport:
    """The result of a pack; its fields are the keys of `pack --json`."""

    out: str
    rows: int
    """In complete shards."""
    shards: int
    bytes: int
    columns: dict[str, str]
    skipped_rows: dict[str, int]
    seconds: float
    peak_rss_mb: float
    nothing_to_do: bool
    stopped_by: str


class _Widened(Exception):
    """The schema of the rows before does not hold these rows."""

    def __init__(self, schema: pa.Schema, what: str) -> None:
        self.schema, self.what = schema, what


class _Stopped(Exception):
    pass


def pack(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    sql: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[PackStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    stop: StopRequest | None = None,
    **chosen: Any,
) -> PackReport:
    """Write the rows of all inputs as shards into the folder `out`; the same call resumes an interrupted pack.

    Inputs are files, folders and globs; 'FILE::label=1' adds a column of one value. Keywords are the options of
    `streampgs pack`, with the names in docs/reference.md. With `sql`, a DuckDB query, there are no other inputs.
    """
    target = Path(os.path.abspath(out))
    if sql is not None:
        if "kind" in chosen or inputs:
            raise OptionError("a query together with other inputs", "name the files in the query")
        chosen["kind"] = "sql"
    elif chosen.get("kind") == "sql":
        raise OptionError("`--from sql` without a query", "give it with `--sql QUERY`")
    (options,) = build("pack", chosen, PackOptions)
    for name, text in (("--sql", sql), ("--labels", str(options.labels))):
        if text is not None and without_secrets(text) != text:
            raise OptionError(
                f"{name} has an address with a password or a query, and it is recorded in the output",
                "give credentials in the environment, or fetch the file first",
            )
    if exists(target) and not is_folder(target):
        raise OptionError(f"'{target}' is a file", "name a new or empty folder")
    found: list[Input] = []
    passed: list[Path] = []
    if sql is None:
        sources = [str(inputs)] if isinstance(inputs, str | Path) else [str(source) for source in inputs]
        found, passed = find_inputs(sources, target, options.kind)
    note, progress = on_note or (lambda _: None), on_progress or (lambda _: None)
    if passed:
        more = f" and {len(passed) - 1:,} more" if len(passed) > 1 else ""
        note(f"left out, because the name tells no kind: '{passed[0]}'{more}; --from includes all files")
    make_folder(target)
    with sole_writer(target):
        _refuse_other_files(target, overwrite)
        if sql is not None:
            found = [Input(_kept_query(sql, target, overwrite), "sql")]
        journal = _open_journal(target, found, options, overwrite)
        return _Packing(found, target, options, journal, progress, note, stop or StopRequest()).run()


def _kept_query(sql: str, out: Path, overwrite: bool) -> Path:
    """The query as a file next to the shards; the same query keeps its file and time stamp."""
    path = out / QUERY
    query = _utf8(sql)
    with suppress(OSError, ValueError):
        if not path.is_symlink() and read_whole(path, LONGEST_QUERY) == query:
            return path
    if (out / journals.NAME).exists() and not overwrite:
        raise OptionError(f"'{out}' was packed by another command", "add --overwrite, or name another folder")
    with writing(path, replace=True) as file:
        file.write(query)
    return path


def _utf8(sql: str) -> bytes:
    query = sql.encode(errors="surrogateescape")
    try:
        query.decode()
    except UnicodeDecodeError:
        raise OptionError("--sql is not UTF-8", "give files other names, which the query can hold") from None
    if len(query) > LONGEST_QUERY:
        raise OptionError(f"--sql has {len(query):,} bytes", f"write a query of at most {LONGEST_QUERY:,}")
    return query


def _refuse_other_files(out: Path, overwrite: bool) -> None:
    if not (out / journals.NAME).exists():
        held = next((file for file in out.iterdir() if not file.name.startswith(".") and file.name != QUERY), None)
        if held is not None:
            raise OptionError(
                f"the folder '{out}' holds '{held.name}' and is not the output of an earlier pack",
                "name a new or empty folder" + ("; --overwrite removes packed shards only" if overwrite else ""),
            )


def _open_journal(out: Path, inputs: list[Input], options: PackOptions, overwrite: bool) -> Journal:
    facts = [input.to_json() for input in inputs]
    if options.labels is not None:
        facts.append(Input(Path(options.labels), "labels").to_json() if exists(options.labels) else {})
    journal = None if overwrite else journals.load(out)
    if journal is not None and (journal.shards or journal.runs):
        journals.check_same(journal, facts, options.to_json(), out)
        return journal
    replaced = _shards_to_replace(out) if overwrite else journal.replaced if journal is not None else []
    journal = Journal(facts, options.to_json(), options.memory, replaced=replaced)
    journal.save(out)
    return journal


def _shards_to_replace(out: Path) -> list[str]:
    """The shards of an earlier pack; all with such names if its record cannot be read."""
    try:
        journal = journals.load(out)
    except DataError:
        return journals.shard_names_in(out)
    return [] if journal is None else journal.own_names


@dataclass
class _Packing:
    inputs: list[Input]
    out: Path
    options: PackOptions
    journal: Journal
    on_progress: Callable[[PackStatus], None]
    note: Callable[[str], None]
    stop: StopRequest

    def __post_init__(self) -> None:
        self._sizes = [input.path.stat().st_size for input in self.inputs]
        self._reading = 0, Source(self.inputs[0].path, self.options)
        """The bytes of earlier inputs, and the present one."""
        self._shape = Shape(self.journal.arrow_schema or pa.schema([]))
        labels = self.options.labels
        self._labels = None if labels is None else Labels(Path(labels), self.options.memory)
        self._started = time.perf_counter()

    def run(self) -> PackReport:
        journal, out = self.journal, self.out
        journal.check_files(out)
        journal.remove_leftovers(out)
        foreign = journal.foreign_shards(out)
        if foreign:
            self.note(f"'{out / foreign[0]}' is not of this pack; training on '{out}' would use it")
        if journal.done:
            return self._report("done", nothing_to_do=True)
        try:
            while True:
                try:
                    self._write()
                    break
                except _Widened as widened:
                    self._start_over(widened)
        except _Stopped:
            return self._report(self.stop.reason or "")
        if self._labels is not None:
            self._labels.check_all_used(journal.rows)
        journal.done, journal.runs = True, []
        journal.save(out)
        journal.remove_leftovers(out)
        return self._report("done")

    # ------------------------------------------------------------------------------------------------ rows in

    def _batches(self, first_row: int, surveying: bool = False) -> Iterator[pa.RecordBatch]:
        """All rows from a row on, under one schema. While surveying, the schema grows; otherwise that is refused."""
        before = 0
        for number, input in enumerate(self.inputs):
            known = None if surveying else next(iter(self.journal.read[number : number + 1]), None)
            if known is not None and before + known.rows <= first_row:
                before += known.rows
                continue
            source, start = Source(input.path, self.options), before
            self._reading = sum(self._sizes[:number]), source
            for batch in input.batches(source, self._shape):
                if before == start:
                    self._refuse_other_columns(batch.schema.names, input)
                batch = self._with_columns(batch, input, before)
                self._include(batch.schema, input, surveying or before == 0)
                skipped = min(max(0, first_row - before), batch.num_rows)
                before += batch.num_rows
                if not surveying:
                    batch = conformed(batch, self._shape.schema, f"'{input.path}'").slice(skipped)
                yield batch
            self._check_unchanged(number)
            if known is None and not surveying:
                self.journal.read.append(ReadInput(before - start, dict(source.skipped)))

    def _with_columns(self, batch: pa.RecordBatch, input: Input, before: int) -> pa.RecordBatch:
        """With the labels of a file and the columns that are set."""
        added: list[tuple[str, Any]] = [(name, _constant(value, batch.num_rows)) for name, value in input.sets]
        if self._labels is not None:
            added.insert(0, ("label", self._labels.column(before, batch.num_rows)))
        for name, column in added:
            if name in batch.schema.names:
                raise DataError(
                    f"'{input.path}' has a column '{name}' of its own", "set a column of another name, or leave it out"
                )
            batch = batch.append_column(name, column)
        return batch

    def _refuse_other_columns(self, names: list[str], input: Input) -> None:
        """A file whose first row is taken for the names of its columns has none of the others' columns."""
        known = set(self._shape.schema.names) - {"label", *(name for name, _ in input.sets)}
        if known and names and not known & set(names) and not {"label", "indices", "features"} & {*names, *known}:
            raise DataError(
                f"'{input.path}' has none of the columns of the files before, but {', '.join(names[:6])}",
                "name its columns with `--names A,B,…` and --no-header if its first line is a row; or pack it separately",
            )

    def _include(self, schema: pa.Schema, input: Input, grow: bool) -> None:
        known = self._shape.schema
        if schema.equals(known, check_metadata=True):
            return
        joined = joined_schema(known, schema, input.is_text, f"'{input.path}'") if len(known) else schema
        if joined.equals(known, check_metadata=True):
            return
        if not grow:
            raise _Widened(joined, f"'{input.path}': {_difference(known, joined)}")
        self._shape.schema = joined

    def _check_unchanged(self, number: int) -> None:
        if self.inputs[number].to_json() != self.journal.inputs[number]:
            raise DataError(
                f"'{self.inputs[number].path}' was changed while it was read",
                "let its writer finish, then start over with --overwrite",
            )

    def _start_over(self, widened: _Widened) -> None:
        """Find the schema that holds all rows. Shards that were written are too narrow."""
        self.note(f"{widened.what}; the pack checks the types of all rows, then starts over")
        self._shape.schema = widened.schema
        with closing(self._watched(self._batches(0, surveying=True), "checking types")) as batches:
            for _ in batches:
                pass
        self.journal.start_over(self._shape.schema)
        self.journal.save(self.out)
        self.journal.remove_leftovers(self.out)

    # ----------------------------------------------------------------------------------------------- rows out

    def _write(self) -> None:
        journal, options = self.journal, self.options
        if options.shuffle and not journal.runs:
            self._write_runs()
        batches = self._mixed(journal.rows) if options.shuffle else self._batches(journal.rows)
        phase = "mixing" if options.shuffle else "reading"
        with closing(self._watched(batches, phase, journal.rows)) as watched:
            for shard in written(
                watched, self.out, options.format, options.rows_per_shard, options.block_bytes, len(journal.shards)
            ):
                if journal.schema is None:
                    journal.settle(self._shape.schema)
                journal.shards.append(shard)
                journal.save(self.out)
        if not journal.rows:
            raise DataError("there are no rows in the inputs", "name files with rows")

    def _write_runs(self) -> None:
        journal = self.journal
        with closing(self._watched(self._batches(0), "reading")) as watched:
            runs = write_runs(watched, self.out / RUNS, self.options.seed, share_of(journal.memory))
        if not runs:
            raise DataError("there are no rows in the inputs", "name files with rows")
        journal.settle(self._shape.schema)
        journal.runs = runs
        journal.save(self.out)

    def _mixed(self, first_row: int) -> Iterator[pa.RecordBatch]:
        runs = self.journal.runs
        paths, total_bytes = [self.out / RUNS / run.name for run in runs], sum(run.bytes for run in runs)
        before = 0
        for batch in merged(paths, total_bytes, share_of(self.journal.memory)):
            yield batch.slice(min(max(0, first_row - before), batch.num_rows))
            before += batch.num_rows

    # ----------------------------------------------------------------------------------------------- progress

    def _watched(self, batches: Iterator[pa.RecordBatch], phase: str, rows: int = 0) -> Any:
        """The batches, made in advance; reports progress, and stops on request."""
        with closing(ahead(batches)) as made:
            for batch in made:
                rows += batch.num_rows
                yield batch
                earlier, source = self._reading
                done, of = earlier + source.place, sum(self._sizes)
                if phase == "mixing":
                    done, of = rows, sum(run.rows for run in self.journal.runs)
                self.on_progress(PackStatus(phase, min(1.0, done / max(1, of)), rows))
                if self.stop.reason is not None:
                    raise _Stopped

    def _report(self, stopped_by: str, nothing_to_do: bool = False) -> PackReport:
        journal = self.journal
        return PackReport(
            out=str(self.out),
            rows=journal.rows,
            shards=len(journal.shards),
            bytes=sum(shard.file_bytes for shard in journal.shards),
            columns={field.name: str(field.type) for field in journal.arrow_schema or pa.schema([])},
            skipped_rows=journal.skipped,
            seconds=time.perf_counter() - self._started,
            peak_rss_mb=peak_rss_bytes() / 1e6,
            nothing_to_do=nothing_to_do,
            stopped_by=stopped_by,
        )


def _constant(value: Value, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value)) if not isinstance(value, str) else pa.array([value] * rows, pa.string())


def _difference(before: pa.Schema, after: pa.Schema) -> str:
    for field in after:
        place = before.get_field_index(field.name)
        if place < 0:
            return f"there is a new column '{field.name}'"
        if before.field(place).type != field.type:
            return f"column '{field.name}' is {field.type}, not {before.field(place).type}"
    return "the features have names of several namespaces"
