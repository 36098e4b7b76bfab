"""Who carries out the jobs of a round. Threads here; other machines would be another crew."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class Crew(Protocol):
    workers: int

    def each(self, job: Callable[[int], None], count: int) -> None:
        """Run job(0) … job(count - 1), at most one for each worker, and wait for all of them."""


class Threads:
    """The calling thread is the first worker."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers - 1, "streampgs-worker") if workers > 1 else None

    def each(self, job: Callable[[int], None], count: int) -> None:
        running = [self._pool.submit(job, worker) for worker in range(1, count)] if self._pool else []
        job(0)
        for done in running:
            done.result()
