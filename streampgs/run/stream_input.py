"""A stream on standard input as the data of a run: how a run on it starts and continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streampgs.base.checks import encode, require, understanding
from streampgs.base.errors import DataError, OptionError, RunError
from streampgs.data.budget import Forecast, check_stream_fits, stream_batch_bytes, stream_forecast, stream_sizes
from streampgs.data.open import STREAM_NAME, OpenStream, columns_of, open_stream
from streampgs.data.row_form import RowForm
from streampgs.data.source import Source
from streampgs.data.stream import StreamSource
from streampgs.encoding.encoding import Encoding
from streampgs.engine.worker import cursor_in
from streampgs.options.commands import KEEP, EncodingOptions, Limits, ModelOptions, NewLimits, Resources
from streampgs.options.solvers import SOLVERS
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import Sizes
from streampgs.reading.blocks import Stopped
from streampgs.reading.placing import RowRules
from streampgs.reading.stream_input import StreamInput as StandardInput
from streampgs.reading.stream_state import rows_taken
from streampgs.reading.window import Window
from streampgs.run.checkpoint import Checkpoint
from streampgs.run.folder import RunFolder
from streampgs.run.record import RunRecord, StreamRecord
from streampgs.run.report import Observer, StopRequest
from streampgs.run.words import stream_choices
from streampgs.table.layout import find_layout

STANDARD_INPUT = "-"
_HORIZON = 1_000_000
_SAMPLE_ROWS, _SAMPLE_BYTES = 1 << 16, 32 << 20
_STDIN = 0


@dataclass(frozen=True)
class StreamInput:
    record: RunRecord
    encoding: Encoding | None
    cursor: Cursor
    stream: StandardInput
    resources: Resources

    @property
    def _own(self) -> StreamRecord:
        assert self.record.stream is not None
        return self.record.stream

    @property
    def form(self) -> RowForm:
        return RowForm(self.record.options, self.encoding, self._own.layout.kind)

    def with_record(self, record: RunRecord) -> StreamInput:
        return replace(self, record=record)

    def source(self, rules: RowRules) -> Source:
        return StreamSource(
            self.stream, self._own.layout, rules, self._own.sizes, self.record.options.seed, self.cursor
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        return {}

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        model, encoded = features * feature_bytes, self.encoding is not None
        return stream_forecast(self._own.sizes, self.resources, process, model, encoded)

    def choices(self, window: Window, features: int) -> dict[str, str]:
        return stream_choices(self._own.layout.kind, features, self._own.sizes, window.rows)

    def hints(self, window: Window) -> list[str]:
        return []

    def remarks(self, source: Source) -> list[str]:
        if not self.stream.unmarked:
            return []
        return [
            "the stream ended without Arrow's end mark: if the producer was interrupted, let it continue from row "
            f"{source.rows_taken:,}"
        ]


def open_standard_input(
    options: ModelOptions, encoding_options: EncodingOptions, resources: Resources, stop: StopRequest
) -> tuple[StandardInput, OpenStream]:
    with standard_input(resources, stop) as stream:
        sample = stream.sample(_SAMPLE_ROWS, min(_SAMPLE_BYTES, resources.window or _SAMPLE_BYTES))
    opened = open_stream(stream.schema, sample, options, encoding_options)
    del sample
    pa.default_memory_pool().release_unused()
    return stream, opened


def start_on_stream(
    folder: RunFolder,
    stream: StandardInput,
    opened: OpenStream,
    limits: Limits,
    resources: Resources,
    replay: float,
) -> StreamInput:
    """Decide sizes, and write them into the run's folder."""
    sizes = stream_sizes(resources, replay, _HORIZON)
    record = RunRecord(
        opened.options,
        (STANDARD_INPUT,),
        Sizes(sizes.window_bytes, sizes.window_bytes),
        None,
        0,
        limits,
        None if opened.encoding is None else opened.encoding.digest,
        stream=StreamRecord(sizes, opened.layout),
        keep=resources.keep or KEEP,
    )
    folder.create(encode(record), None, opened.encoding)
    return StreamInput(record, opened.encoding, Cursor(()), stream, resources)


def resume_on_stream(
    folder: RunFolder,
    record: RunRecord,
    checkpoint: Checkpoint | None,
    resources: Resources,
    observer: Observer,
    stop: StopRequest,
    skip_taken: bool,
) -> StreamInput:
    """`skip_taken`: the stream begins again at its first row."""
    own = record.stream
    assert own is not None
    check_stream_fits(own.sizes, resources)
    cursor, taken = Cursor(()), 0
    if checkpoint is not None:
        with understanding(checkpoint.path):
            section = checkpoint.sections["worker"]
            cursor, taken = cursor_in(section), rows_taken(section)
            require(not cursor.arrivals and cursor.epoch == cursor.part == cursor.slice == 0, f"cursor {cursor.place}")
    encoding = folder.encoding(record.encoding)
    with standard_input(resources, stop, 0 if skip_taken else taken) as stream:
        columns = columns_of(record.options, encoding)
        missing = [name for name in own.layout.columns if name not in stream.schema.names]
        if missing:
            raise DataError(
                f"standard input: no column '{missing[0]}' among its columns ({', '.join(stream.schema.names)})",
                "let the producer write the columns that the run started with",
            )
        find_layout(stream.schema, columns, STREAM_NAME)
        if skip_taken:
            stream.pass_over(taken)
            observer.note(f"{taken:,} rows of the stream were taken before and are skipped")
        elif taken:
            observer.note(
                f"{taken:,} rows of the stream were taken before: the first row of standard input is taken to be row "
                f"{taken:,}, counted from 0. If the stream begins again at its first row, give --skip-taken"
            )
    return StreamInput(record, encoding, cursor, stream, resources)


@contextmanager
def standard_input(resources: Resources, stop: StopRequest, given: int = 0) -> Iterator[StandardInput]:
    """`given`: the number of its first row. Inside, a stop interrupts waiting for rows."""
    if os.isatty(_STDIN):
        raise OptionError(
            "'-' stands for standard input, which is a terminal here",
            "pipe an Arrow IPC stream into it: `producer | streampgs train - --run RUN`",
        )
    try:
        stream = StandardInput(_STDIN, stream_batch_bytes(resources), lambda: stop.reason is not None)
        stream.given = given
        yield stream
    except Stopped:
        raise RunError(
            f"stopped by {stop.reason} before the first step: nothing was trained on or kept",
            "start again with the same command and the same row of the stream",
        ) from None


def refuse_options(options: ModelOptions, limits: Limits | NewLimits, resources: Resources) -> None:
    if SOLVERS[options.solver].needs.passes:
        raise OptionError(
            f"`--solver {options.solver}` with a stream: it needs every row several times", "use `--solver pgs`"
        )
    if limits.epochs is not None:
        raise OptionError(
            "--epochs with a stream, whose rows arrive once", "limit it with --rows or --seconds, or not at all"
        )
    if options.sampling != "epoch":
        raise OptionError(
            f"`--sampling {options.sampling}` with a stream, which has its own order",
            "leave it out; --replay sets how many rows of the past are mixed in",
        )
    if resources.no_cache or resources.cache is not None or resources.cache_limit is not None:
        raise OptionError("an option of the cache with a stream, which has none", "leave it out")
