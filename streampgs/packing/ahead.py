"""Run an iterator in a thread of its own, so that decompressing and parsing overlap with writing."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """The same items, one of them made in advance. Closing the generator closes `items`."""
    end: Any = object()
    with ThreadPoolExecutor(1, "streampgs-pack") as pool:
        try:
            coming = pool.submit(next, items, end)
            while (item := coming.result()) is not end:
                coming = pool.submit(next, items, end)
                yield item
                del item
        finally:
            pool.submit(getattr(items, "close", int)).result()
