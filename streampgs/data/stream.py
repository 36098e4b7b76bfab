"""Rows of a stream on standard input, mixed with rows of its past."""

from __future__ import annotations

from streampgs.base.errors import DataError
from streampgs.base.stage import Bundle
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import UpdatePass
from streampgs.reading.mixed_window import StreamSizes
from streampgs.reading.placing import RowRules
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.stream_input import StreamInput
from streampgs.reading.stream_rows import StreamEncoder
from streampgs.reading.stream_state import rows_taken
from streampgs.reading.stream_windows import StreamWindows, warm_up
from streampgs.reading.window import Window
from streampgs.table.layout import Layout


class StreamSource:
    ends = "end of stream"

    def __init__(
        self, stream: StreamInput, layout: Layout, rules: RowRules, sizes: StreamSizes, seed: int, cursor: Cursor
    ) -> None:
        self._encoder = StreamEncoder(layout, rules)
        self.epoch_rows = sizes.horizon
        self._windows = StreamWindows(stream, self._encoder, sizes, seed, cursor)
        self._started = self._had_rows = False
        self._saved = 0

    @property
    def seconds_waiting(self) -> float:
        return self._windows.seconds_waiting

    def prepare(self, last_epoch: int | None) -> None:
        self._encoder.warm_up()
        warm_up(self._encoder.shape)

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        if not self._started:
            self._windows.start()
            self._started = True
        window = self._windows.next(stop)
        self._had_rows |= window is not None and window.rows > 0
        if window is None and stop.reason is None and not self._had_rows:
            raise DataError("no row of the stream could be used", "fix the producer")
        return window

    def release(self, window: Window) -> None:
        self._windows.release(window)

    def close(self) -> None:
        self._windows.close()

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        return 0.0

    @property
    def rows_taken(self) -> int | None:
        return self._windows.taken if self._started or self._windows.closed else self._saved

    @property
    def has_unsaved(self) -> bool:
        return self._windows.closed and self.rows_taken != self._saved

    def has_done(self, cursor: Cursor, epochs: int) -> bool:
        return cursor.epoch >= epochs and not cursor.part

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        return None

    def update_rows(self, cursor: Cursor, window: Window | None) -> tuple[float, float] | None:
        return None

    def state(self) -> Bundle:
        bundle = self._windows.state()
        self._saved = rows_taken(bundle)
        return bundle

    def restore(self, bundle: Bundle) -> None:
        self._windows.restore(bundle)
        self._saved, self._had_rows = rows_taken(bundle), True
