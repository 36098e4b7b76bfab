"""Simulates histories, and adds up what happened in them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence

from tests.faults.simulator.machine import simulated
from tests.faults.simulator.observing import observed
from tests.faults.simulator.short_history import ShortHistory, unobserved
from tests.faults.simulator.tally import Tally
from tests.faults.simulator.whole_history import WholeHistory

KINDS = {"short": ShortHistory, "whole": WholeHistory}
WATCHES = {"short": unobserved, "whole": observed}
_CHUNK = 200


def simulate(kind: str, seeds: Sequence[int], say: Callable[[str], None] | None = None) -> Tally:
    """`say`: called with each step."""
    tally = Tally()
    with simulated() as machine, WATCHES[kind](machine) as watch:
        for seed in seeds:
            history = KINDS[kind](machine, seed, say)
            watch(history)
            machine.disk.log = say
            try:
                history.run()
            except Exception as error:
                history.tally.failures.append((kind, seed, f"{type(error).__name__}: {error}"))
            tally.add(history.tally)
    return tally


def simulate_in(processes: int, kind: str, seeds: range) -> Iterator[Tally]:
    """Piece by piece."""
    pieces = [(kind, seeds[first : first + _CHUNK]) for first in range(0, len(seeds), _CHUNK)]
    if processes == 1:
        yield from (simulate(*piece) for piece in pieces)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_simulate, pieces)


def _simulate(piece: tuple[str, range]) -> Tally:
    return simulate(*piece)
