"""Where the rows of a run come from."""

from __future__ import annotations

from typing import Protocol

from streampgs.base.stage import Bundle
from streampgs.order.cursor import Cursor
from streampgs.order.schedule import UpdatePass
from streampgs.reading.prefetch import StopAsked
from streampgs.reading.window import Window


class Source(Protocol):
    """Gives the window at a cursor: the same rows for the same cursor and the same restored state."""

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch."""

    def prepare(self, last_epoch: int | None) -> None:
        """Load, or compile, the loops that windows need; reading will end before the last epoch."""

    def window(self, cursor: Cursor, stop: StopAsked) -> Window | None:
        """The window that contains the cursor, until `release`. None when there is none, or on a stop."""

    def release(self, window: Window) -> None: ...

    def close(self) -> None: ...

    def epochs(self, cursor: Cursor, window: Window | None) -> float:
        """Epochs done, with the fraction of the current one; `window` is the one that contains the cursor."""

    def has_done(self, cursor: Cursor, epochs: int) -> bool:
        """Whether so many epochs are done, and the updates after them."""

    def update_pass(self, cursor: Cursor) -> UpdatePass | None:
        """None in an epoch, and for sources that do not grow."""

    def update_rows(self, cursor: Cursor, window: Window | None) -> tuple[float, float] | None:
        """About how many rows of the update are done, and how many it has; None in an epoch."""

    @property
    def seconds_waiting(self) -> float:
        """The waiting time in all calls of `window`."""

    def state(self) -> Bundle: ...

    def restore(self, bundle: Bundle) -> None:
        """Before the first window; raises ValueError for an invalid state."""
