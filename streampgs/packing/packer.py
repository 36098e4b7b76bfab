"""`streampgs pack`: from files of many kinds to a folder of shards, in bounded memory, to be gone on with at any time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streampgs.errors import DataError, OptionError
from streampgs.option_fields import parse_size
from streampgs.packing import journal as journals
from streampgs.packing.ahead import ahead
from streampgs.packing.inputs import Input, Value, find_inputs
from streampgs.packing.journal import RUNS, Journal
from streampgs.packing.labels import Labels
from streampgs.packing.options import DEFAULT_BLOCK_BYTES, PackOptions
from streampgs.packing.pieces import Shape
from streampgs.packing.schemas import conformed, joined_schema
from streampgs.packing.shards import ShardWriter
from streampgs.packing.shuffle import RunWriter, merged, range_bits, share_of
from streampgs.run.memory import peak_rss_bytes
from streampgs.run.report import StopRequest

__all__ = ["PackReport", "PackStatus", "pack"]


_QUERY = "_query.sql"


@dataclass(frozen=True)
class PackStatus:
    """Where a pack stands."""

    phase: str
    """reading, mixing (of a shuffle), or looking at the types of all rows."""
    fraction: float
    rows: int


@dataclass(frozen=True)
class PackReport:
    """What a pack has come to; the keys of `pack --json`."""

    out: str
    rows: int
    """In shards: all that there are, unless the pack was stopped."""
    shards: int
    bytes: int
    columns: dict[str, str]
    skipped_rows: dict[str, int]
    seconds: float
    peak_rss_mb: float
    nothing_to_do: bool
    stopped_by: str


class _Widened(Exception):
    """Rows that the schema of the rows before does not hold."""

    def __init__(self, schema: pa.Schema, what: str, position: _Position) -> None:
        self.schema, self.what, self.position = schema, what, position


class _Stopped(Exception):
    pass


@dataclass(frozen=True)
class _Position:
    """Of the next row: in which input (or interval, of runs), how far from which of its marks, how many before it."""

    input: int = 0
    mark: tuple[int, ...] = ()
    offset: int = 0
    rows: int = 0

    @staticmethod
    def from_json(record: dict[str, Any] | None) -> _Position:
        return _Position() if record is None else _Position(**{**record, "mark": tuple(record["mark"])})

    def after(self, rows: int) -> _Position:
        return _Position(self.input, self.mark, self.offset + rows, self.rows + rows)


@dataclass
class _Placed:
    """Rows that are ready to be written."""

    batch: pa.RecordBatch
    position: _Position
    faults: dict[str, int]


def pack(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    *,
    sql: str | None = None,
    kind: str | None = None,
    header: bool = True,
    names: Iterable[str] | None = None,
    skip_lines: int = 0,
    delimiter: str | None = None,
    types: dict[str, str] | None = None,
    nulls: Iterable[str] | None = None,
    labels: str | Path | None = None,
    on_bad_row: str = "error",
    format: str = "arrow",
    rows_per_shard: int | None = None,
    block_bytes: int | str = DEFAULT_BLOCK_BYTES,
    shuffle: bool = False,
    seed: int = 0,
    memory: int | str = "512MB",
    overwrite: bool = False,
    on_progress: Callable[[PackStatus], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    stop: StopRequest | None = None,
) -> PackReport:
    """Write the rows of all inputs as shards into the folder `out`; the same call again goes on where it stopped.

    Inputs are files, folders and globs; 'FILE::label=1' adds a column of one value. Keywords are the options of
    `streampgs pack`; `kind` is its --from. With `sql`, a query of DuckDB's, there are no other inputs.
    """
    target = Path(os.path.abspath(out))
    if sql is not None:
        if kind is not None or inputs:
            raise OptionError("a query together with other inputs", "name the files in the query")
        kind = "sql"
    options = PackOptions(
        kind=kind,
        header=header,
        names=None if names is None else tuple(names),
        skip_lines=skip_lines,
        delimiter=delimiter,
        types=tuple(sorted((types or {}).items())),
        nulls=None if nulls is None else tuple(nulls),
        labels=None if labels is None else os.path.abspath(labels),
        on_bad_row=on_bad_row,
        format=format,
        rows_per_shard=rows_per_shard,
        block_bytes=parse_size(block_bytes),
        shuffle=shuffle,
        seed=seed,
        memory=parse_size(memory),
    )
    if target.exists() and not target.is_dir():
        raise OptionError(f"'{target}' is a file", "name a folder that is absent or empty")
    passed: list[Path] = []
    if sql is not None:
        _make_ready(target, overwrite)
        found = [Input(_kept_query(sql, target, overwrite), "sql")]
    else:
        sources = [str(inputs)] if isinstance(inputs, str | Path) else [str(source) for source in inputs]
        found, passed = find_inputs(sources, target, options.kind)
    note = on_note or (lambda _: None)
    if passed:
        more = f" and {len(passed) - 1:,} more" if len(passed) > 1 else ""
        note(f"left out, for their names say nothing: '{passed[0]}'{more}; --from takes all in")
    _make_ready(target, overwrite)
    with journals.locked(target):
        journal = _open_journal(target, found, options, overwrite)
        work = _Packing(found, target, options, journal, on_progress or (lambda _: None), note, stop or StopRequest())
        return work.run()


def _kept_query(sql: str, out: Path, overwrite: bool) -> Path:
    """The query as a file beside the shards; left alone if it is the same, for then its time stamp is."""
    path = out / _QUERY
    if path.exists() and path.read_text() == sql:
        return path
    if (out / journals.NAME).exists() and not overwrite:
        raise OptionError(
            f"'{out}' was packed by another command", "start anew with --overwrite, or name another folder"
        )
    path.write_text(sql)
    return path


def _make_ready(out: Path, overwrite: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if not (out / journals.NAME).exists():
        held = next((file for file in out.iterdir() if not file.name.startswith(".") and file.name != _QUERY), None)
        if held is not None:
            raise OptionError(
                f"the folder '{out}' holds '{held.name}' and was not packed into before",
                "name an absent or empty folder" + ("; --overwrite removes packed shards only" if overwrite else ""),
            )


def _open_journal(out: Path, inputs: list[Input], options: PackOptions, overwrite: bool) -> Journal:
    told = [input.to_json() for input in inputs]
    if options.labels is not None:
        told.append(Input(Path(options.labels), "labels").to_json() if os.path.exists(options.labels) else {})
    journal = None if overwrite else journals.load(out)
    if journal is not None and (journal.shards or journal.runs):
        journals.check_same(journal, told, options.to_json(), out)
        return journal
    journal = Journal(told, options.to_json(), options.memory)
    journal.save(out)
    return journal


class _Packing:
    def __init__(
        self,
        inputs: list[Input],
        out: Path,
        options: PackOptions,
        journal: Journal,
        on_progress: Callable[[PackStatus], None],
        note: Callable[[str], None],
        stop: StopRequest,
    ) -> None:
        self._inputs, self._out, self._options, self._journal = inputs, out, options, journal
        self._on_progress, self._note, self._stop = on_progress, note, stop
        self._input_bytes = sum(input.path.stat().st_size for input in inputs)
        self._used_bytes = 0
        self._shape = Shape(journal.arrow_schema or pa.schema([]))
        self._labels = Labels(Path(options.labels), options.memory) if options.labels is not None else None
        self._started = time.perf_counter()

    def run(self) -> PackReport:
        self._journal.check_whole(self._out)
        self._journal.clear_strangers(self._out)
        if self._journal.done:
            return self._report("done", nothing_to_do=True)
        try:
            while True:
                try:
                    self._write()
                    break
                except _Widened as widened:
                    self._widen(widened)
        except _Stopped:
            return self._report(self._stop.reason or "")
        if self._labels is not None:
            self._labels.check_all_used(self._journal.rows)
        self._journal.done = True
        self._journal.runs = []
        self._journal.save(self._out)
        self._journal.clear_strangers(self._out)
        return self._report("done")

    # ------------------------------------------------------------------------------------------------ rows in

    def _rows(self, position: _Position, surveying: bool = False) -> Iterator[_Placed]:
        """All rows from a position on, under one schema. Surveying, the schema grows instead of being refused."""
        before = position.rows
        handed_on = position.rows > 0
        for number in range(position.input, len(self._inputs)):
            input = self._inputs[number]
            reader = input.reader(self._options)
            begun = number == position.input
            mark, skip = (position.mark, position.offset) if begun else ((), 0)
            for piece in reader.pieces(self._shape, mark, skip, self._advance):
                to_skip = skip - piece.offset if begun and piece.mark == mark else 0
                if to_skip > 0 and to_skip >= piece.batch.num_rows:
                    continue
                to_skip = max(to_skip, 0)
                here = _Position(number, piece.mark, piece.offset + to_skip, before)
                # The whole piece first: what is cut off it is then the same as if there had been no interruption.
                batch = self._with_columns(piece.batch, input, before - to_skip)
                self._take_in(batch.schema, reader.as_text, input, here, surveying or not handed_on)
                if not surveying:
                    batch = conformed(batch, self._shape.schema)
                batch = batch.slice(to_skip)
                handed_on = handed_on or piece.batch.num_rows > 0  # rows without columns are rows, too
                before += batch.num_rows
                yield _Placed(batch, here, {} if to_skip else piece.faults)
            self._check_unchanged(number)

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

    def _take_in(self, schema: pa.Schema, as_text: bool, input: Input, here: _Position, grow: bool) -> None:
        known = self._shape.schema
        if schema.equals(known, check_metadata=True):
            return
        joined = joined_schema(known, schema, as_text, f"'{input.path}'") if len(known) else schema
        if joined.equals(known, check_metadata=True):
            return
        if not grow:
            raise _Widened(joined, f"'{input.path}': {_difference(known, joined)}", here)
        self._shape.schema = joined

    def _check_unchanged(self, number: int) -> None:
        if self._inputs[number].to_json() != self._journal.inputs[number]:
            raise DataError(
                f"'{self._inputs[number].path}' was changed while it was read",
                "let its writer finish, then start anew with --overwrite",
            )

    def _advance(self, count: int) -> None:
        self._used_bytes += count

    def _widen(self, widened: _Widened) -> None:
        """Find the schema that holds all rows, and begin once more with it: rows already written are too narrow."""
        self._note(f"{widened.what}; the types of all rows are found out, then the pack starts again")
        self._shape.schema = widened.schema
        with closing(ahead(self._rows(widened.position, surveying=True))) as placed:
            for some in placed:
                self._tell("looking at types", some.position.rows)
        self._used_bytes = 0
        self._journal.begin_anew(self._shape.schema)
        self._journal.save(self._out)
        self._journal.clear_strangers(self._out)

    # ----------------------------------------------------------------------------------------------- rows out

    def _write(self) -> None:
        if not self._options.shuffle:
            self._write_shards(self._rows(_Position.from_json(self._journal.position)), "reading")
            return
        bits = range_bits(self._input_bytes, self._journal.memory)
        if not self._journal.runs_complete:
            self._write_runs(bits)
        self._write_shards(self._mixed(bits), "mixing")

    def _write_shards(self, rows: Iterator[_Placed], phase: str) -> None:
        journal, writer = self._journal, None
        mixing = phase == "mixing"
        try:
            with closing(ahead(rows)) as placed:
                for some in placed:
                    if not mixing:
                        _count(journal.skipped, some.faults)
                    if writer is None and some.batch.num_rows:
                        writer = self._new_writer()
                    start = 0
                    while writer is not None and start < some.batch.num_rows:
                        start += writer.add(some.batch.slice(start))
                        if writer.full:
                            self._finish(writer, some.position.after(start))
                    end = some.position.after(some.batch.num_rows)
                    self._tell(phase, end.rows)
            if writer is not None and writer.rows:
                self._finish(writer, end)
        finally:
            if writer is not None:
                writer.abandon()
        if not journal.rows:
            raise DataError("there are no rows in the inputs", "name files that hold some")

    def _new_writer(self) -> ShardWriter:
        if self._journal.schema is None:
            self._journal.settle(self._shape.schema)
        options = self._options
        return ShardWriter(
            self._out,
            self._shape.schema,
            options.format,
            options.rows_per_shard,
            options.block_bytes,
            len(self._journal.shards),
        )

    def _finish(self, writer: ShardWriter, position: _Position) -> None:
        shard = writer.finish()
        self._journal.shards.append(asdict(shard))
        if not self._options.shuffle:
            self._journal.rows += shard.rows
        self._journal.position = asdict(position)
        self._journal.save(self._out)

    def _write_runs(self, bits: int) -> None:
        journal = self._journal
        writer: RunWriter | None = None
        with closing(ahead(self._rows(_Position.from_json(journal.position)))) as placed:
            for some in placed:
                _count(journal.skipped, some.faults)
                if writer is None and some.batch.num_rows:
                    if journal.schema is None:
                        journal.settle(self._shape.schema)
                    share = share_of(journal.memory)
                    folder = self._out / RUNS
                    writer = RunWriter(folder, self._shape.schema, self._options.seed, share, bits, len(journal.runs))
                end = some.position.after(some.batch.num_rows)
                if writer is not None and some.batch.num_rows:
                    writer.add(some.batch, some.position.rows)
                    if writer.full:
                        self._finish_run(writer, end)
                self._tell("reading", end.rows)
        if writer is not None and writer.rows:
            self._finish_run(writer, end)
        journal.runs_complete, journal.position = True, None
        journal.save(self._out)

    def _finish_run(self, writer: RunWriter, position: _Position) -> None:
        run = writer.finish()
        self._journal.runs.append(run)
        self._journal.rows += run["rows"]
        self._journal.position = asdict(position)
        self._journal.save(self._out)

    def _mixed(self, bits: int) -> Iterator[_Placed]:
        journal = self._journal
        begun = _Position.from_json(journal.position)
        before = begun.rows
        paths = [self._out / RUNS / run["name"] for run in journal.runs]
        total_bytes = sum(run["bytes"] for run in journal.runs)
        share = share_of(journal.memory)
        for piece in merged(paths, self._shape.schema, total_bytes, share, bits, begun.input):
            to_skip = begun.offset - piece.offset if piece.mark == (begun.input,) else 0
            if to_skip >= piece.batch.num_rows:
                continue
            batch = piece.batch.slice(max(to_skip, 0))
            yield _Placed(batch, _Position(piece.mark[0], (), piece.offset + max(to_skip, 0), before), {})
            before += batch.num_rows

    # ------------------------------------------------------------------------------------------------ what is told

    def _tell(self, phase: str, rows: int) -> None:
        done, of = (rows, self._journal.rows) if phase == "mixing" else (self._used_bytes, self._input_bytes)
        self._on_progress(PackStatus(phase, min(1.0, done / max(1, of)), rows))
        if self._stop.reason is not None:
            raise _Stopped

    def _report(self, stopped_by: str, nothing_to_do: bool = False) -> PackReport:
        shards = self._journal.shards
        schema = self._journal.arrow_schema or pa.schema([])
        return PackReport(
            out=str(self._out),
            rows=sum(shard["rows"] for shard in shards),
            shards=len(shards),
            bytes=sum(shard["file_bytes"] for shard in shards),
            columns={field.name: str(field.type) for field in schema},
            skipped_rows=dict(self._journal.skipped),
            seconds=time.perf_counter() - self._started,
            peak_rss_mb=peak_rss_bytes() / 1e6,
            nothing_to_do=nothing_to_do,
            stopped_by=stopped_by,
        )


def _count(counts: dict[str, int], more: dict[str, int]) -> None:
    for fault, rows in more.items():
        counts[fault] = counts.get(fault, 0) + rows


def _constant(value: Value, rows: int) -> pa.Array:
    return pa.array(np.full(rows, value)) if not isinstance(value, str) else pa.array([value] * rows, pa.string())


def _difference(before: pa.Schema, after: pa.Schema) -> str:
    for field in after:
        place = before.get_field_index(field.name)
        if place < 0:
            return f"a column '{field.name}' turns up"
        if before.field(place).type != field.type:
            return f"column '{field.name}' turns out to be {field.type}, not {before.field(place).type}"
    return "names of features turn out to be of several namespaces"
