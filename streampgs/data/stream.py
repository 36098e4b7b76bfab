"""A stream on standard input as the source of a session's windows."""

from __future__ import annotations

from pathlib import Path

from streampgs.checks import understanding
from streampgs.data.budget import Forecast, stream_forecast
from streampgs.errors import DataError
from streampgs.options import Resources
from streampgs.order.cursor import Cursor
from streampgs.reading.loader import RowRules
from streampgs.reading.stream_input import StreamInput
from streampgs.reading.stream_rows import StreamEncoder
from streampgs.reading.stream_windows import StreamWindows, rows_taken, warm_up
from streampgs.reading.window import Window
from streampgs.run.record import RunRecord
from streampgs.run.report import StopRequest
from streampgs.run.words import stream_choices
from streampgs.stage import Bundle
from streampgs.table.catalog import Catalog


class StreamSource:
    ends = "end of stream"

    def __init__(
        self,
        record: RunRecord,
        catalog: Catalog,
        resources: Resources,
        stream: StreamInput,
        section: Bundle | None = None,
        path: Path | None = None,
    ) -> None:
        """`section` of the checkpoint at `path`: to continue from."""
        assert record.stream is not None
        self.sizes = record.stream
        self.epoch_rows = record.stream.horizon
        self._record = record
        self._shard = catalog.shards[0]
        self._resources = resources
        self._stream = stream
        self._section, self._path = section, path
        self._encoder: StreamEncoder | None = None
        self._windows: StreamWindows | None = None
        self._saved = -1
        self._had_rows = section is not None

    @property
    def seconds_waiting(self) -> float:
        return self._windows.seconds_waiting if self._windows is not None else 0.0

    def prepare(self, rules: RowRules, last_epoch: int | None) -> None:
        self._encoder = StreamEncoder(self._shard, rules)
        self._encoder.warm_up()
        warm_up(self._encoder.shape)

    def start(self, cursor: Cursor) -> None:
        assert self._encoder is not None
        self._windows = StreamWindows(self._stream, self._encoder, self.sizes, self._record.options.seed, cursor)
        if self._section is not None:
            with understanding(self._path):
                self._windows.restore(self._section)
            self._saved, self._section = rows_taken(self._section), None
        self._windows.start()

    def next(self, stop: StopRequest) -> Window | None:
        assert self._windows is not None
        window = self._windows.next(stop)
        self._had_rows |= window is not None and window.rows > 0
        if window is None and stop.reason is None and not self._had_rows:
            raise DataError("no row of the stream could be used", "mend the producer")
        return window

    def release(self, window: Window) -> None:
        assert self._windows is not None
        self._windows.release(window)

    def close(self) -> None:
        if self._windows is not None:
            self._windows.close()

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        return 0.0

    def forecast(self, process: int, features: int, feature_bytes: int) -> Forecast:
        encoded = self._record.encoding is not None
        return stream_forecast(self.sizes, self._resources, process, features * feature_bytes, encoded)

    def choices(self, window: Window, features: int, epochs_left: int | None) -> dict[str, str]:
        return stream_choices(self._shard.layout.kind, features, self.sizes, window.rows)

    def hints(self, window: Window) -> list[str]:
        return []

    def remarks(self) -> list[str]:
        if not self._stream.unmarked:
            return []
        return [
            f"the stream ended without Arrow's end mark: if the producer broke off, let it go on from row {self.taken:,}"
        ]

    @property
    def taken(self) -> int | None:
        return self._windows.taken if self._windows is not None else max(0, self._saved)

    @property
    def has_unsaved(self) -> bool:
        return self._windows is not None and self._windows.closed and self.taken != self._saved

    def state(self) -> Bundle | None:
        if self._windows is None or not self.taken:
            return None
        bundle = self._windows.state()
        self._saved = rows_taken(bundle)
        return bundle
