"""Several workers on one model, in rounds: all start from the same state, each takes rows of its own, and they meet.

Each worker counts its gradients, and its steps, as often as there are workers, and the duals are averaged: the result is
the sum of all gradients at the step count that all rows together make. (Were the workers' changes summed, every worker
would correct the same frequent features, and the sum would overshoot.) A round is a small part of the rows seen so far,
so that its rows are worth nearly as much as in sequence; before there are enough, one worker goes alone.

Nothing here depends on who the workers are: threads run them here, and the sizes of rounds are functions of the step
count, the number of features and the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from streampgs.kernels import pgs_loop as loops
from streampgs.learn.averaging import Array

# A round is at most one part in so many of the steps before it.
_SEEN_BEFORE = 20
_SMALLEST_SHARE, _USUAL_SHARE = 1024, 16384
# To meet takes a look at every feature, so the more features, the longer a round must be to be worth it.
_FEATURES_PER_ROW_AT_LEAST, _FEATURES_PER_ROW = 64, 16

Step = Callable[[Array, Array, int, int], None]
"""step(coordinates, scalars, first, stop): a worker's steps over its rows."""


def first_round(workers: int, features: int) -> int:
    """The step count from which on rounds pay."""
    return _SEEN_BEFORE * workers * max(_SMALLEST_SHARE, features // _FEATURES_PER_ROW_AT_LEAST)


def share_of(steps: int, workers: int, features: int) -> int:
    """How many steps of the next round are one worker's."""
    return min(max(_USUAL_SHARE, features // _FEATURES_PER_ROW), steps // (_SEEN_BEFORE * workers))


class Rounds:
    """The workers of one group of lanes. The first works on the state itself, the others on copies of it."""

    def __init__(self, workers: int, p: float, lanes: int, averaging: bool) -> None:
        self.workers = workers
        self._loops = loops.meeting_for(p, lanes, averaging)
        self._others: list[Array] = []
        self._scalars = np.zeros((workers - 1, loops.SCALARS, lanes))
        self._pool = ThreadPoolExecutor(workers - 1, "streampgs-worker")
        self._alike = False
        """Whether the copies are those of the present state."""

    def forget(self) -> None:
        """The state has been changed outside of a round."""
        self._alike = False

    def run(
        self, coordinates: Array, scalars: Array, first: int, share: int, step: Step, rebuild: Callable[[], None]
    ) -> None:
        """One round: worker k steps over rows [first + k·share, first + (k+1)·share)."""
        self._hand_out(coordinates, scalars)

        def work(worker: int) -> None:
            its_first, its_stop = first + worker * share, first + (worker + 1) * share
            if worker == 0:
                step(coordinates, scalars, its_first, its_stop)
            else:
                step(self._others[worker - 1], self._scalars[worker - 1], its_first, its_stop)

        self._together(work)
        self._meet(coordinates, scalars, rebuild)

    def _hand_out(self, coordinates: Array, scalars: Array) -> None:
        if self._others and self._others[0].shape != coordinates.shape:
            self._others, self._alike = [], False
        while len(self._others) < self.workers - 1:
            self._others.append(np.zeros_like(coordinates))
        if not self._alike:
            self._spread(coordinates, self._others)
        self._scalars[:] = scalars
        self._scalars[:, loops.MULTIPLIER_SUM] = 0.0
        self._scalars[:, loops.REGULARIZER_TALLY :] = 0.0

    def _meet(self, coordinates: Array, scalars: Array, rebuild: Callable[[], None]) -> None:
        """Average the duals and sum up all else; each worker does so for a part of the features."""
        parts = self._parts(coordinates)
        power_sums = np.zeros((self.workers, scalars.shape[1]))
        own = scalars[loops.MULTIPLIER_SUM].copy()
        taken = np.zeros_like(own)

        def meet(worker: int) -> None:
            for number, other in enumerate(self._others):
                multipliers = own if number == 0 else taken
                its = self._scalars[number, loops.MULTIPLIER_SUM]
                if number < len(self._others) - 1:
                    self._loops.fold(coordinates, other, multipliers, its, *parts[worker])
                else:
                    self._loops.settle(
                        coordinates, other, multipliers, its, self.workers, *parts[worker], power_sums[worker]
                    )

        self._together(meet)
        scalars[loops.MULTIPLIER_SUM] = 0.0
        scalars[loops.REGULARIZER_TALLY :] += self._scalars[:, loops.REGULARIZER_TALLY :].sum(axis=0)
        if self._loops.derived:
            rebuild()
            self._spread(coordinates, self._others)
        else:
            scalars[loops.POWER_SUM] = power_sums.sum(axis=0)
            self._spread(coordinates, self._others[:-1])
        self._alike = True

    def _spread(self, coordinates: Array, others: list[Array]) -> None:
        parts = self._parts(coordinates)

        def spread(worker: int) -> None:
            for other in others:
                self._loops.spread(coordinates, other, *parts[worker])

        if others:
            self._together(spread)

    def _parts(self, coordinates: Array) -> list[tuple[int, int]]:
        size = len(coordinates)
        return [(size * worker // self.workers, size * (worker + 1) // self.workers) for worker in range(self.workers)]

    def _together(self, work: Callable[[int], None]) -> None:
        running = [self._pool.submit(work, worker) for worker in range(1, self.workers)]
        work(0)
        for done in running:
            done.result()
