"""Steps all lanes over rows: alone, or in rounds of several workers that merge what they learned."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from streampgs.engine.crew import Crew, Threads
from streampgs.engine.rounds import first_round, share_of
from streampgs.errors import OptionError
from streampgs.learn.lanes import Group, Lanes
from streampgs.learn.learner import Lines
from streampgs.learn.state import Merge, State


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

    def __init__(
        self,
        lanes: Lanes,
        crew: Crew | int = 1,
        access: str = "rows",
        kept: Collection[str] = ("none",),
    ) -> None:
        """`access`: what lines of the source are; `kept`: which values per row there can be."""
        self.lanes = lanes
        self.crew = Threads(crew) if isinstance(crew, int) else crew
        self.access, self.kept = access, kept
        self._copies: list[_Copies] = []
        self._checked: list[Group] | None = None

    def advance(self, lines: Lines, first: int, stop: int, end: int | None = None) -> int:
        """Step over rows from `first`, where a step or a round begins, to `stop`; returns the row that was reached. The
        last step or round is completed: it may reach beyond `stop`, but not beyond `end`."""
        if self._checked is not self.lanes.groups:
            self._refuse_unmet_needs()
        end = stop if end is None else end
        groups, workers = self.lanes.groups, self.crew.workers
        batch = groups[0].learner.spec.batch
        row = first
        while row < stop:
            steps = self.lanes.steps
            alone = first_round(workers, self.lanes.features) - steps if workers > 1 else stop - row
            share = (
                0 if alone > 0 else min(share_of(steps, workers, self.lanes.features), (end - row) // (workers * batch))
            )
            if share:
                row = self._round(lines, row, share * batch)
                continue
            steps_left = -(-(stop - row) // batch)
            until = min(end, row + batch * (min(steps_left, alone) if alone > 0 else steps_left))
            for group in groups:
                if not _joined_later(group):
                    group.learner.step(group.state, lines, row, until)
            row = until
        for group in groups:
            if _joined_later(group):
                group.learner.step(group.state, lines, first, row)
        return row

    def _round(self, lines: Lines, first: int, rows: int) -> int:
        """Worker k steps over rows [first + k·rows, first + (k+1)·rows)."""
        workers = self.crew.workers
        groups = [group for group in self.lanes.groups if not _joined_later(group)]
        self._copies = [copies for copies in self._copies if any(copies.of is group.state for group in groups)]
        self._copies = [self._ready_copies(group) for group in groups]

        def step(worker: int) -> None:
            own = first + worker * rows
            for group, copies in zip(groups, self._copies, strict=True):
                state = copies.states[worker - 1] if worker else group.state
                group.learner.step(state, lines, own, own + rows, workers)

        self.crew.each(step, workers)
        for group, copies in zip(groups, self._copies, strict=True):
            group.learner.merge(group.state, copies.states, self.crew.each)
            copies.steps = int(group.state["steps"])
        return first + workers * rows

    def _ready_copies(self, group: Group) -> _Copies:
        """Copies that continue from the group's state: those of the last round as they are if nothing has changed."""
        learner, state = group.learner, group.state
        copies = next((copies for copies in self._copies if copies.of is state), None)
        if copies is None:
            copies = _Copies(state, -1, learner.copies(self.lanes.features + 1, self.crew.workers - 1))
        if copies.steps != int(state["steps"]):
            learner.spread(state, copies.states, self.crew.each)
        return copies

    def _refuse_unmet_needs(self) -> None:
        for group in self.lanes.groups:
            solver, needs = group.learner.spec.learner, group.learner.needs
            if needs.lines != self.access:
                raise OptionError(
                    f"--solver {solver} needs {needs.lines}, and this source gives {self.access}", "use another solver"
                )
            if needs.keeps not in self.kept:
                raise OptionError(
                    f"--solver {solver} needs a value per row that starts at its {needs.keeps}, which is not stored",
                    "use another solver",
                )
            refused = [name for name, field in group.learner.fields.items() if field.merge is Merge.REFUSED]
            if refused and self.crew.workers > 1:
                raise OptionError(
                    f"--solver {solver} with --threads {self.crew.workers}: workers cannot merge their '{refused[0]}'",
                    "use --threads 1",
                )
        self._checked = self.lanes.groups


def _joined_later(group: Group) -> bool:
    return group.learner.spec.target.joined > 0
