"""Work that is done in a thread of its own while what came before is used: decompressing, parsing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

Item = TypeVar("Item")

_LOOKS_UP_SECONDS = 0.01


def ahead(items: Iterator[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The same items, up to `depth` of them made before they are asked for. Close it, and the thread ends."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    left = threading.Event()

    def work() -> None:
        try:
            for item in items:
                ready.put(("item", item))
                if left.is_set():
                    return
            ready.put(("end", None))
        except BaseException as error:  # handed over: it is raised where the items are used
            ready.put(("error", error))
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="streampgs-pack", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
            del item
    finally:
        left.set()
        while thread.is_alive():  # it may wait for room
            with suppress(queue.Empty):
                ready.get_nowait()
            thread.join(_LOOKS_UP_SECONDS)
