"""Run an iterator in a thread of its own, so that decompressing and parsing overlap with writing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

Item = TypeVar("Item")

_POLL_SECONDS = 0.01


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items, one of them made in advance. Closing the generator ends the thread."""
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(1)
    left = threading.Event()
    end = object()

    def work() -> None:
        try:
            for item in items:
                ready.put((item, None))
                if left.is_set():
                    return
            ready.put((end, None))
        except BaseException as error:  # raised where the items are used
            ready.put((end, error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="streampgs-pack", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
            del item
    finally:
        left.set()
        while thread.is_alive():  # it may wait for the queue
            with suppress(queue.Empty):
                ready.get_nowait()
            thread.join(_POLL_SECONDS)
