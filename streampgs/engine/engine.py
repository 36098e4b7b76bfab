"""Steps all lanes over rows: alone, or in rounds of several workers that merge what they learned.

All workers start a round from the same state, each takes rows of its own, and they merge. Each worker counts its
gradients, and its steps, as often as there are workers, and what they learned is averaged: the result is the sum of all
gradients at the step count that all rows together make. (If the workers' changes were summed, every worker would
correct the same frequent features, and the sum would overshoot.) A round is a small part of the rows seen so far, so
that its rows are worth nearly as much as in sequence; before there are enough, one worker steps alone. The length of a
round is a function of step counts, never of where a call ends.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from streampgs.base.errors import OptionError
from streampgs.kernels.rows import Rows
from streampgs.learn.lanes import Group, Lanes
from streampgs.learn.learner import Passes, merge, spread, step
from streampgs.learn.state import Merge, State, copies_of, sizes_of

# A round is at most one part in so many of the steps before it.
_SEEN_BEFORE = 20
_SMALLEST_SHARE, _USUAL_SHARE = 1024, 16384
# A merge looks at every feature, so the more features, the longer a round must be to be worth it.
_FEATURES_PER_ROW_AT_LEAST, _FEATURES_PER_ROW = 64, 16


class Threads:
    """Carry out the jobs of a round. The calling thread is the first worker."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers - 1, "streampgs-worker") if workers > 1 else None

    def each(self, job: Callable[[int], None], count: int) -> None:
        """Run job(0) … job(count - 1), at most one for each worker, and wait for all of them."""
        running = [self._pool.submit(job, worker) for worker in range(1, count)] if self._pool else []
        job(0)
        for done in running:
            done.result()


@dataclass
class _Copies:
    """What the other workers step on."""

    of: State
    steps: int
    """At which they were equal to the state."""
    states: list[State]


class Engine:
    """Steps the lanes that the run started with in rounds. Lanes that joined later have taken fewer steps, so their rounds
    would end at other rows: they step alone over the same rows."""

    def __init__(self, lanes: Lanes, workers: int = 1) -> None:
        self.lanes, self.crew = lanes, Threads(workers)
        self._copies: list[_Copies] = []
        self._checked: list[Group] | None = None

    def advance(self, lines: Rows, first: int, stop: int, end: int | None = None) -> int:
        """Step over rows from `first`, where a step or a round begins, to `stop`; returns the row that was reached. The
        last step or round is completed: it may reach beyond `stop`, but not beyond `end`."""
        if self._checked is not self.lanes.groups:
            self._refuse_unmet_needs()
        end = stop if end is None else end
        groups, workers = self.lanes.groups, self.crew.workers
        batch = groups[0].learner.spec.batch
        row = first
        while row < stop:
            steps, features = self.lanes.steps, self.lanes.features
            alone = first_round(workers, features) - steps if workers > 1 else stop - row
            share = 0 if alone > 0 else min(share_of(steps, workers, features), (end - row) // (workers * batch))
            if share:
                row = self._round(lines, row, share * batch)
                continue
            steps_left = -(-(stop - row) // batch)
            until = min(end, row + batch * (min(steps_left, alone) if alone > 0 else steps_left))
            for group in groups:
                if not _joined_later(group):
                    step(group.learner, group.state, lines, row, until)
            row = until
        for group in groups:
            if _joined_later(group):
                step(group.learner, group.state, lines, first, row)
        self.lanes.refuse_stopped()
        return row

    def reach_epoch(self, epoch: int) -> bool:
        """The epochs before this one are over. True if weights have just changed, and more epochs over the same rows would
        hardly change any lane."""
        groups = self.lanes.groups
        moved = [g.learner.reach_epoch(g.state, epoch) for g in groups if isinstance(g.learner, Passes)]
        if any(moved):
            self.lanes.refuse_stopped()
        return any(moved) and self.lanes.have_converged()

    def _round(self, lines: Rows, first: int, rows: int) -> int:
        """Worker k steps over rows [first + k·rows, first + (k+1)·rows)."""
        workers = self.crew.workers
        groups = [group for group in self.lanes.groups if not _joined_later(group)]
        self._copies = [copies for copies in self._copies if any(copies.of is group.state for group in groups)]
        self._copies = [self._ready_copies(group) for group in groups]

        def work(worker: int) -> None:
            own = first + worker * rows
            for group, copies in zip(groups, self._copies, strict=True):
                state = copies.states[worker - 1] if worker else group.state
                step(group.learner, state, lines, own, own + rows, workers)

        self.crew.each(work, workers)
        for group, copies in zip(groups, self._copies, strict=True):
            merge(group.learner, group.state, copies.states, self.crew.each)
            copies.steps = int(group.state["steps"])
        return first + workers * rows

    def _ready_copies(self, group: Group) -> _Copies:
        """Copies that continue from the group's state: those of the last round as they are if nothing has changed."""
        learner, state = group.learner, group.state
        copies = next((copies for copies in self._copies if copies.of is state), None)
        if copies is None:
            sizes = sizes_of(self.lanes.features + 1, learner.width)
            copies = _Copies(state, -1, copies_of(learner.fields, sizes, self.crew.workers - 1))
        if copies.steps != int(state["steps"]):
            spread(learner, state, copies.states, self.crew.each)
        return copies

    def _refuse_unmet_needs(self) -> None:
        for group in self.lanes.groups:
            solver = group.learner.spec.learner
            refused = [name for name, field in group.learner.fields.items() if field.merge is Merge.REFUSED]
            if refused and self.crew.workers > 1:
                raise OptionError(
                    f"`--solver {solver}` with `--threads {self.crew.workers}`: workers cannot merge their '{refused[0]}'",
                    "use `--threads 1`",
                )
        self._checked = self.lanes.groups


def first_round(workers: int, features: int) -> int:
    """The step count from which on rounds pay."""
    return _SEEN_BEFORE * workers * max(_SMALLEST_SHARE, features // _FEATURES_PER_ROW_AT_LEAST)


def share_of(steps: int, workers: int, features: int) -> int:
    """How many steps of the next round each worker takes."""
    return min(max(_USUAL_SHARE, features // _FEATURES_PER_ROW), steps // (_SEEN_BEFORE * workers))


def _joined_later(group: Group) -> bool:
    return group.learner.spec.target.joined > 0
