"""How a run on a stream starts and goes on: what comes on standard input is looked at, learnt from, and trained on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streampgs.checks import decode, encode, require, understanding
from streampgs.data.budget import check_stream_fits, stream_batch_bytes, stream_sizes
from streampgs.data.open import STREAM_NAME, columns_of, open_stream
from streampgs.data.stream import StreamSource
from streampgs.errors import DataError, OptionError, RunError
from streampgs.formats.format import Fingerprint
from streampgs.options import EncodingOptions, Limits, ModelOptions, Resources, StreamOptions
from streampgs.order.cursor import Arrival, Cursor
from streampgs.order.schedule import Sizes
from streampgs.reading.blocks import Stopped
from streampgs.reading.stream_input import StreamInput
from streampgs.reading.stream_windows import rows_taken
from streampgs.run.folder import RunFolder
from streampgs.run.history import RESUMED, STARTED
from streampgs.run.lock import RunLock
from streampgs.run.record import RunRecord
from streampgs.run.report import Observer, Report, StopRequest
from streampgs.run.session import Session
from streampgs.run.validate import check_cursor
from streampgs.table.catalog import Catalog, Shard
from streampgs.table.layout import Columns, Layout, find_layout

STANDARD_INPUT = "-"
_HORIZON = 1_000_000
_SAMPLE_ROWS, _SAMPLE_BYTES = 1 << 16, 32 << 20
_STDIN = 0


def start(
    run: Path,
    options: ModelOptions,
    limits: Limits,
    resources: Resources,
    observer: Observer,
    stop: StopRequest,
    encoding_options: EncodingOptions,
    stream_options: StreamOptions,
) -> Report:
    """Start a run on the Arrow stream that comes on standard input."""
    _refuse_senseless(options, limits, resources)
    folder = RunFolder(run)
    sizes = stream_sizes(resources, stream_options.replay, _HORIZON)
    with _input(resources, stop) as stream:
        sample = stream.sample(_SAMPLE_ROWS, min(_SAMPLE_BYTES, resources.window or _SAMPLE_BYTES))
    table = open_stream(stream.schema, sample, options, encoding_options)
    del sample
    pa.default_memory_pool().release_unused()
    for note in table.notes:
        observer.note(note)
    catalog = Catalog([Shard(Path(STREAM_NAME), "stream", Fingerprint(0, 0, ""), table.layout, True, False, (), ())])
    folder.make()
    with RunLock(run):
        folder.refuse_if_taken()
        digest = None if table.encoding is None else table.encoding.digest
        record = RunRecord(
            table.options,
            (STANDARD_INPUT,),
            Sizes(sizes.window_bytes, sizes.window_bytes),
            None,
            0,
            limits,
            digest,
            stream=sizes,
        )
        if table.encoding is not None:
            folder.write_encoding(table.encoding)
        folder.create(encode(record), catalog)
        folder.append_event(STARTED, 0, 0, shards=1, stream_rows=0, loss=table.options.loss)
        source = StreamSource(record, catalog, resources, stream)
        cursor = Cursor((Arrival(0, 0, 1, 0),))
        return Session(folder, record, catalog, cursor, observer, stop, resources, table.encoding, source).run()


def resume(
    run: Path,
    limits: Limits,
    resources: Resources,
    observer: Observer,
    stop: StopRequest,
    on_bad_row: str | None = None,
    skip_taken: bool = False,
) -> Report:
    """Go on with a run on a stream: with what was kept of it, then with what comes. `skip_taken`: the stream begins again
    at its first row."""
    folder = RunFolder(run)
    record = folder.run_record()
    assert record.stream is not None
    _refuse_senseless(record.options, limits, resources)
    with RunLock(run):
        check_stream_fits(record.stream, resources)
        encoding, catalog = folder.encoding(record.encoding), folder.catalog()
        with understanding(folder.path / "catalog.arrows"):
            require([shard.format for shard in catalog.shards] == ["stream"], "shards in a run on a stream")
        checkpoint = folder.newest_checkpoint()
        for path, why in checkpoint.damaged if checkpoint else ():
            observer.note(f"checkpoint '{path.name}' is damaged ({why}); using the one before")
        cursor = Cursor((Arrival(0, 0, 1, 0),))
        section, taken = None, 0
        if checkpoint is not None:
            with understanding(checkpoint.path):
                saved = checkpoint.sections
                record = record.as_of(saved["run"])
                cursor = decode(Cursor, saved["worker"].values["cursor"])
                check_cursor(cursor, catalog)
                section = saved["source"]
                taken = rows_taken(section)
        if limits.given:
            record = replace(record, limits=limits)
        if on_bad_row is not None:
            record = replace(record, options=replace(record.options, on_bad_row=on_bad_row))
        with _input(resources, stop, 0 if skip_taken else taken) as stream:
            _refuse_other_columns(stream.schema, columns_of(record.options, encoding), catalog.shards[0].layout)
            if skip_taken:
                stream.pass_over(taken)
                observer.note(f"{taken:,} rows of the stream were taken before and are passed over")
            elif taken:
                observer.note(
                    f"{taken:,} rows of the stream were taken before: the first one that comes now is taken to be row "
                    f"{taken:,}, counted from 0. Where the stream begins again at its first row, give --skip-taken"
                )
        source = StreamSource(record, catalog, resources, stream, section, checkpoint.path if checkpoint else None)
        session = Session(folder, record, catalog, cursor, observer, stop, resources, encoding, source)
        rows = steps = 0
        if checkpoint is not None and "lanes" in checkpoint.sections:
            session.restore(checkpoint)
            assert session.solver is not None
            rows, steps = session.totals.rows, session.solver.steps
        folder.append_event(RESUMED, rows, steps, shards=1, stream_rows=taken)
        return session.run()


@contextmanager
def _input(resources: Resources, stop: StopRequest, given: int = 0) -> Iterator[StreamInput]:
    """What comes on standard input, whose first row has this number. Inside, a stop breaks off what waits for it."""
    if os.isatty(_STDIN):
        raise OptionError(
            "'-' stands for standard input, which is a terminal here",
            "pipe an Arrow IPC stream into it: producer | streampgs train - --run RUN",
        )
    try:
        stream = StreamInput(_STDIN, stream_batch_bytes(resources), lambda: stop.reason is not None)
        stream.given = given
        yield stream
    except Stopped:
        raise RunError(
            f"stopped by {stop.reason} before the first step: nothing was trained on or kept",
            "begin again with the same command and the same row of the stream",
        ) from None


def _refuse_senseless(options: ModelOptions, limits: Limits, resources: Resources) -> None:
    if limits.epochs is not None:
        raise OptionError(
            "--epochs with a stream, whose rows come once", "limit it with --rows or --seconds, or not at all"
        )
    if options.sampling != "epoch":
        raise OptionError(
            f"--sampling {options.sampling} with a stream, whose rows come in its order",
            "leave it out; --replay says how many rows of the past are mixed in",
        )
    if resources.no_cache or resources.cache is not None or resources.cache_limit is not None:
        raise OptionError("an option of the cache with a stream, which has none", "leave it out")


def _refuse_other_columns(schema: pa.Schema, columns: Columns, layout: Layout) -> None:
    missing = [name for name in layout.columns if name not in schema.names]
    if missing:
        raise DataError(
            f"standard input: no column '{missing[0]}' among its columns ({', '.join(schema.names)})",
            "let the producer write the columns that the run began with",
        )
    find_layout(schema, columns, STREAM_NAME)
