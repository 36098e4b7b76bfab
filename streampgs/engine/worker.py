"""Who takes rows from a source: the cursor, the open window and the rows that were skipped.

A numbering of the features seen so far and values per row will belong here too: both change with the rows that are taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace

from streampgs.base.checks import Count, decode, encode, require
from streampgs.base.errors import DataError
from streampgs.base.stage import Bundle
from streampgs.data.source import Source
from streampgs.order.arrivals import shortened
from streampgs.order.cursor import Cursor
from streampgs.reading.bad_rows import counts_by_name
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import RowCounts, Window


class Worker:
    name = "worker"

    def __init__(self, source: Source, cursor: Cursor) -> None:
        self.source = source
        self.cursor = cursor
        """The first row not yet trained on."""
        self.window: Window | None = None
        self.counts = RowCounts()
        """Counts over all rows so far; each row counts once. The examples are those of this session."""
        self.counts_before = RowCounts()
        """The same at the start of this session."""

    @property
    def epochs(self) -> float:
        return self.source.epochs(self.cursor, self.window)

    def open(self, stop: StopAsked) -> Window | None:
        """The next window that has rows. None when there is none, or on a stop."""
        first_epoch = self.cursor.epoch
        while True:
            window = self.source.window(self.cursor, stop)
            if window is None:
                return None
            if len(window) > 0:
                self.window = window
                return window
            assert window.span is not None
            self.counts.add(window.counts)
            self.cursor = window.span.next
            self.source.release(window)
            if self.cursor.epoch > first_epoch + 1:
                raise DataError("a whole epoch has no usable row", "fix the data; `streampgs inspect DATA` shows more")

    def advance_to(self, row: int) -> None:
        """The rows of the window before `row` have been trained on."""
        window = self.window
        assert window is not None
        assert window.span is not None
        if self.cursor.row == 0:
            self.counts.add(window.counts)
        self.cursor = self.cursor.at_row(row) if row < len(window) else window.span.next

    def release(self) -> None:
        """All rows of the window have been trained on."""
        assert self.window is not None
        self.source.release(self.window)

    def state(self) -> Bundle:
        bundle = self.source.state()
        # The same for all histories that lead here, also if other shards came and had vanished before they began.
        bundle.values["cursor"] = encode(replace(self.cursor, arrivals=shortened(self.cursor.arrivals, self.cursor)))
        bundle.values["skipped"] = {str(reason): count for reason, count in self.counts.skipped.items()}
        bundle.values["clipped"] = dict(self.counts.clipped)
        return bundle

    def continue_from(self, other: Worker) -> None:
        """With the counts and the columns of the worker that was replaced."""
        self.source.restore(other.source.state())
        self.counts, self.counts_before = other.counts, other.counts_before

    def restore(self, bundle: Bundle) -> None:
        """All but the cursor: the source was made for it, and shards may have joined since."""
        counts = decode(dict[str, Count], bundle.values["skipped"])
        skipped = Counter({int(reason): count for reason, count in counts.items()})
        counts_by_name(skipped)
        clipped = Counter(clipped_in(bundle))
        self.counts, self.counts_before = RowCounts(skipped, clipped), RowCounts(skipped.copy(), clipped.copy())
        self.source.restore(bundle)


def clipped_in(bundle: Bundle) -> dict[str, int]:
    """How many values of each column were clipped, by the worker's section of a checkpoint."""
    return decode(dict[str, Count], bundle.values["clipped"])


def cursor_in(bundle: Bundle) -> Cursor:
    """The cursor of a worker's section."""
    record = bundle.values["cursor"]
    require(set(record) == {field.name for field in fields(Cursor)}, f"a cursor of {list(record)!r:.100}")
    return decode(Cursor, record)
